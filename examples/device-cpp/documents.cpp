// The manifest and the release, read strictly.
#include <algorithm>
#include <regex>

#include "json.hpp"
#include "ptdock.hpp"

namespace ptdock {
namespace {

constexpr const char* kManifestFields[] = {
    "arms",     "channel", "critical", "digest",  "expires", "holdout",  "issued",   "log_head", "poll_seconds",
    "registry", "release", "releases", "revoked", "salt",    "schema",   "sequence", "share_bp", "size",
    "state"};
constexpr const char* kReleaseFields[] = {
    "adapters",   "app",   "backends", "base",     "critical", "delivery",  "digest",   "encodings", "executorch",
    "file",       "format", "foundation", "guaranteed", "holes", "lines",   "min",      "min_build", "name",
    "operators",  "prompt", "ram_bytes", "release", "requires", "schema",   "segments", "self_test", "size",
    "table",      "template", "tokenizer", "type", "version"};

std::string matching(const Json& object, const char* name, const char* pattern) {
  std::string value = text(object, name);
  if (value.size() > 64 || !std::regex_match(value, std::regex(pattern))) throw format(name);
  return value;
}

std::string name_of(const Json& object, const char* field) {
  return matching(object, field, "[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9_-])?");
}

std::string digest(const std::string& value) {
  const std::string hex = value.substr(std::min<std::size_t>(7, value.size()));
  const bool sound = value.compare(0, 7, "sha256:") == 0 && hex.size() == 64 &&
                     hex.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!sound) throw format("digest");
  return hex;
}

// No file is larger than 1 TiB, so sums of sizes stay far from the end of their type.
File file(const Json& object) {
  const File made{digest(text(object, "digest")), integer(object, "size")};
  if (made.size > std::int64_t{1} << 40) throw format("size");
  return made;
}

std::optional<File> optional_file(const Json& object, const char* name) {
  if (!object.contains(name)) return std::nullopt;
  return file(member(object, name));
}

std::vector<std::string> texts(const Json& object, const char* name) {
  std::vector<std::string> found;
  if (!object.contains(name)) return found;
  for (const Json& value : list(object, name)) {
    if (!value.is_string()) throw format(name);
    found.push_back(value.get<std::string>());
  }
  return found;
}

template <std::size_t N>
Json opened(std::string_view bytes, const char* const (&known)[N]) {
  Json document = parse(bytes);
  if (integer(document, "schema", 1) > 1) throw Error("format", "the document is for a newer client");
  for (const std::string& field : texts(document, "critical")) {
    if (std::find(std::begin(known), std::end(known), field) == std::end(known)) {
      throw Error("format", "the document needs a client that knows '" + field + "'");
    }
  }
  return document;
}

Arm arm(const Json& object) {
  Arm made;
  if (!member(object, "release").is_null()) made.release = integer(object, "release", 1);
  made.share_bp = integer(object, "share_bp", 1);
  if (made.share_bp > 10000) throw format("share_bp");
  const std::string state = text(object, "state");
  if (state != "open" && state != "halted") throw format("state");
  made.open = state == "open";
  if (!made.open && !made.release) throw Error("format", "an arm without a release cannot be halted");
  return made;
}

void check_arms(const Manifest& manifest) {
  std::int64_t sum = 0;
  for (const Arm& each : manifest.arms) {
    sum += each.share_bp;
    if (each.release) manifest.pin(*each.release);
  }
  if (sum != 10000) throw Error("format", "the arms' shares do not sum to 10000");
}

Adapter adapter(const Json& object) {
  Adapter made;
  made.name = name_of(object, "name");
  made.version = text(object, "version");
  made.program = file(object);
  made.on_demand = object.contains("delivery") && text(object, "delivery") == "on-demand";
  made.self_test = optional_file(object, "self_test");
  made.prompt = optional_file(object, "prompt");
  if (!object.contains("encodings")) return made;
  for (const Json& each : list(object, "encodings")) {
    if (text(each, "type") == "factors" && !made.factors) {
      made.factors = Factors{file(each), file(member(each, "template")), file(member(each, "table"))};
    }
  }
  return made;
}

Version version(const Json& object, const char* name) {
  const Json& pair = list(object, name);
  if (pair.size() != 2) throw format(name);
  return {integer(pair[0], name), integer(pair[1], name)};
}

void read_requires(const Json& object, Line& line) {
  line.executorch_min = version(member(object, "executorch"), "min");
  line.backends = texts(object, "backends");
  line.operators = texts(object, "operators");
  if (object.contains("ram_bytes")) line.ram_bytes = integer(object, "ram_bytes");
  if (!object.contains("app")) return;
  for (const auto& [platform, needs] : member(object, "app").items()) {
    line.app_builds.emplace_back(platform, integer(needs, "min_build"));
  }
}

Line line_of(const Json& object) {
  Line made;
  made.foundation = file(member(object, "foundation"));
  made.base = file(member(object, "base"));
  read_requires(member(object, "requires"), made);
  std::set<std::string> names;
  for (const Json& each : list(object, "adapters")) {
    made.adapters.push_back(adapter(each));
    if (!names.insert(made.adapters.back().name).second) throw Error("format", "an adapter stands twice in a line");
  }
  if (object.contains("tokenizer")) made.tokenizer = file(member(member(object, "tokenizer"), "file"));
  made.prompt = optional_file(object, "prompt");
  return made;
}

}  // namespace

const File& Manifest::pin(std::int64_t release) const {
  for (const auto& [number, file] : releases) {
    if (number == release) return file;
  }
  throw Error("format", "the manifest pins no release " + std::to_string(release));
}

Manifest read_manifest(std::string_view bytes) {
  if (bytes.size() > (4u << 20)) throw Error("format", "the manifest is larger than 4 MiB");
  const Json document = opened(bytes, kManifestFields);
  Manifest made;
  made.registry = matching(document, "registry", "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}");
  made.channel = name_of(document, "channel");
  made.salt = matching(document, "salt", "[0-9a-f]{32}");
  made.sequence = integer(document, "sequence", 1);
  made.issued = integer(document, "issued");
  made.expires = integer(document, "expires");
  if (made.expires <= made.issued) throw format("expires");
  made.poll_seconds = integer(document, "poll_seconds", 1);
  for (const Json& each : list(document, "arms")) made.arms.push_back(arm(each));
  std::set<std::int64_t> numbers;
  for (const Json& each : list(document, "releases")) {
    const std::int64_t number = integer(each, "release", 1);
    if (!numbers.insert(number).second) throw Error("format", "a release is pinned twice");
    made.releases.emplace_back(number, file(each));
  }
  for (const std::string& each : texts(document, "revoked")) made.revoked.insert(digest(each));
  check_arms(made);
  return made;
}

Release read_release(std::string_view bytes) {
  const Json document = opened(bytes, kReleaseFields);
  Release made;
  made.number = integer(document, "release", 1);
  for (const Json& each : list(document, "lines")) made.lines.push_back(line_of(each));
  if (made.lines.empty()) throw Error("format", "the release has no line");
  return made;
}

}  // namespace ptdock
