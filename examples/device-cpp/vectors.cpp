// Runs the shared vectors (tests/vectors) and says how many agree; ends with 1 when one does not.
#include <openssl/evp.h>
#include <zlib.h>

#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>

#include "json.hpp"
#include "ptdock.hpp"

namespace {

using ptdock::Json;

int passed = 0, failed = 0;

void check(const std::string& what, bool agrees) {
  ++(agrees ? passed : failed);
  if (!agrees) std::cerr << "differs: " << what << "\n";
}

bool throws(const char* code, const std::function<void()>& act) {
  try {
    act();
  } catch (const ptdock::Error& error) {
    return error.code == code;
  }
  return false;
}

Json load(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

std::string base64(const std::string& text) {
  std::string out(text.size() / 4 * 3, '\0');
  EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()), reinterpret_cast<const unsigned char*>(text.data()),
                  static_cast<int>(text.size()));
  for (std::size_t at = text.size(); at > 0 && text[at - 1] == '='; --at) out.pop_back();
  return out;
}

std::optional<std::int64_t> number(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<std::int64_t>());
}

std::set<std::string> names(const Json& values) { return {values.begin(), values.end()}; }

void buckets(const Json& vectors) {
  for (const Json& each : vectors["buckets"]) {
    const std::string salt = each["salt"], device = each["device"];
    check("bucket of " + device, ptdock::bucket(salt, device) == each["bucket"].get<std::int64_t>());
  }
  for (const Json& choice : vectors["choices"]) {
    std::vector<ptdock::Arm> arms;
    for (const Json& arm : choice["arms"]) {
      arms.push_back({number(arm["release"]), arm["share_bp"].get<std::int64_t>(), arm["state"] == "open"});
    }
    for (const Json& each : choice["cases"]) {
      const auto chosen = ptdock::choose(arms, each["bucket"].get<std::int64_t>(), number(each["active"]));
      check("choice " + each.dump(), chosen == number(each["release"]));
    }
  }
}

void documents(const Json& vectors) {
  const std::string text = vectors["manifest"], release = vectors["release"];
  const ptdock::Manifest manifest = ptdock::read_manifest(text);
  check("the manifest's digest", "sha256:" + ptdock::sha256(text) == vectors["manifest_digest"]);
  check("the release's pin", "sha256:" + manifest.pin(12).digest == vectors["release_digest"]);
  check("the release's size", manifest.pin(12).size == static_cast<std::int64_t>(release.size()));
  check("the release", ptdock::read_release(release).number == 12);
  for (const Json& each : vectors["ignored"]) {
    check(each["note"], ptdock::read_manifest(each["manifest"].get<std::string>()).sequence == manifest.sequence);
  }
  for (const Json& each : vectors["refused"]) {
    check(each["note"], throws("format", [&] { ptdock::read_manifest(each["manifest"].get<std::string>()); }));
  }
}

void signatures(const Json& vectors) {
  const std::string key = vectors["public_key"];
  for (const Json& each : vectors["vectors"]) {
    const std::string manifest = each["manifest"], signature = base64(each["signature"]);
    const bool refused = throws("integrity", [&] { ptdock::verify(key, manifest, signature); });
    check(each["note"], refused != each["valid"].get<bool>());
  }
}

std::string packed(const std::string& text) {
  uLongf size = compressBound(text.size());
  std::string out(size, '\0');
  compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(text.data()), text.size());
  return out.substr(0, size);
}

std::string written(const Json& vector, const Json& table) {
  const ptdock::File program{vector["program_digest"].get<std::string>().substr(7), vector["program_size"]};
  return ptdock::relink(base64(vector["template"]), packed(table), base64(vector["factors"]), program);
}

void programs(const Json& vectors) {
  for (const Json& each : vectors["vectors"]) {
    check(each["note"], written(each, each["table"]) == base64(each["program"]));
  }
  for (const Json& each : vectors["refused"]) {
    check(each["note"], throws("format", [&] { written(vectors["vectors"][0], each["table"]); }));
  }
}

ptdock::Device device(const Json& state) {
  ptdock::Device made;
  made.id = state["id"];
  made.platform = state["app"]["platform"];
  made.app_build = state["app"]["build"];
  const std::string version = state["executorch"];
  std::sscanf(version.c_str(), "%ld.%ld", &made.executorch.first, &made.executorch.second);
  made.backends = names(state["backends"]);
  if (state.contains("operators")) made.operators = names(state["operators"]);
  if (state.contains("ram_bytes")) made.ram_bytes = number(state["ram_bytes"]);
  if (state.contains("free_disk")) made.free_disk = number(state["free_disk"]);
  for (const Json& file : state["holds"]) made.holds.insert(file["digest"].get<std::string>().substr(7));
  if (state.contains("wants")) made.wants = names(state["wants"]);
  made.on_demand = names(state["on_demand"]);
  return made;
}

std::optional<ptdock::Seen> seen(const Json& state, const std::string& channel) {
  if (!state["channels"].contains(channel)) return std::nullopt;
  const Json& channels = state["channels"][channel];
  return ptdock::Seen{channels["registry"], channels["root"], channels["sequence"], channels["issued"]};
}

// What the plan answers, as the vectors write it.
Json planned(const Json& vector, const std::string& document) {
  const ptdock::Manifest manifest = ptdock::read_manifest(vector["manifest"].get<std::string>());
  const ptdock::Device asks = device(vector["device"]);
  try {
    ptdock::check_fresh(manifest, seen(vector["device"], manifest.channel), vector["now"]);
    const auto chosen = ptdock::choose(manifest.arms, ptdock::bucket(manifest.salt, asks.id), asks.active);
    if (!chosen) return {{"release", nullptr}};
    const ptdock::Release release = ptdock::read_release(document);
    const ptdock::Plan plan = ptdock::make_plan(manifest, release, asks);
    Json answer{{"release", *chosen}, {"line", plan.line}, {"adapters", Json::array()}, {"download", Json::array()}};
    for (const ptdock::Adapter& each : plan.adapters) answer["adapters"].push_back(each.name);
    for (const ptdock::File& each : plan.download) answer["download"].push_back("sha256:" + each.digest);
    return answer;
  } catch (const ptdock::Error& error) {
    return {{"code", error.code}};
  }
}

void plans(const Json& vectors) {
  for (const Json& each : vectors["vectors"]) check(each["note"], planned(each, vectors["release"]) == each["plan"]);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: vectors DIRECTORY\n";
    return 2;
  }
  const std::string folder = arguments[1];
  buckets(load(folder + "/bucket.json"));
  documents(load(folder + "/documents.json"));
  signatures(load(folder + "/light.json"));
  programs(load(folder + "/relink.json"));
  plans(load(folder + "/plan.json"));
  std::cout << passed << " passed, " << failed << " failed\n";
  return failed > 0;
}
