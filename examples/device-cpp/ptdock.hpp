// What a device does with ptdock's files, in small: read them strictly, check who signed, compute the bucket, plan,
// and write an adapter's program from its factors. docs/devices.md has the formats, tests/vectors the cases.
//
//   verify(key, bytes, signature);                       // before anything in the bytes is believed
//   Manifest manifest = read_manifest(bytes);
//   check_fresh(manifest, seen, now);
//   auto number = choose(manifest.arms, bucket(manifest.salt, device.id), device.active);
//   Release release = read_release(document);            // the bytes that manifest.pin(*number) pins
//   Plan plan = make_plan(manifest, release, device);    // what to fetch
//   std::string pte = relink(template, table, factors, pinned);
//
// Every failure is an Error with one of the codes of docs/devices.md. Nothing here opens a file or a connection.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ptdock {

struct Error : std::runtime_error {
  Error(std::string code, const std::string& message) : std::runtime_error(message), code(std::move(code)) {}
  std::string code;  // "format", "integrity", "digest", "expired", "older", "another-registry", "no-line", "no-room"
};

struct File {
  std::string digest;  // 64 lower-case hex digits of SHA-256
  std::int64_t size = 0;
};

struct Arm {
  std::optional<std::int64_t> release;  // none: keep what you have
  std::int64_t share_bp = 0;            // of 10000
  bool open = true;
};

struct Manifest {
  std::string registry, channel, salt;
  std::int64_t sequence = 0, issued = 0, expires = 0, poll_seconds = 0;  // times in seconds since 1970
  std::vector<Arm> arms;
  std::vector<std::pair<std::int64_t, File>> releases;
  std::set<std::string> revoked;

  const File& pin(std::int64_t release) const;
};

struct Factors {
  File file, program_template, table;
};

struct Adapter {
  std::string name, version;
  File program;
  bool on_demand = false;
  std::optional<File> self_test, prompt;
  std::optional<Factors> factors;
};

using Version = std::pair<std::int64_t, std::int64_t>;

struct Line {
  File foundation, base;
  Version executorch_min;
  std::vector<std::string> backends, operators;
  std::int64_t ram_bytes = 0;
  std::vector<std::pair<std::string, std::int64_t>> app_builds;  // platform, least build
  std::vector<Adapter> adapters;
  std::optional<File> tokenizer, prompt;
};

struct Release {
  std::int64_t number = 0;
  std::vector<Line> lines;
};

// What this channel last said to the device. `root` counts the keys that the app was built with: it grows with a
// build that pins new ones, and the sequence may then start again.
struct Seen {
  std::string registry;
  std::int64_t root = 0, sequence = 0, issued = 0;
};

struct Device {
  std::string id, platform;
  std::int64_t app_build = 0;
  Version executorch;                                // compiled into the app: the runtime cannot be asked
  std::set<std::string> backends;
  std::optional<std::set<std::string>> operators;    // none: unknown, so no line is refused for them
  std::optional<std::int64_t> ram_bytes, free_disk;  // likewise
  std::set<std::string> holds;                       // digests of complete files
  std::optional<std::set<std::string>> wants;        // adapters to install; none: all
  std::set<std::string> on_demand;                   // of those that are fetched at first use, the ones asked for
  std::optional<std::int64_t> active;                // the release that runs
};

struct Plan {
  std::size_t line = 0;
  std::vector<Adapter> adapters;  // to install: without revoked ones and those that wait for their first use
  std::vector<File> download;     // foundation and base program first, then adapter by adapter
};

std::string sha256(std::string_view bytes);

// Throws integrity, or format when the key is no P-256 key in PEM. `signature` is DER.
void verify(std::string_view public_key, std::string_view manifest, std::string_view signature);

// Unknown fields are ignored unless `critical` names them. Throw format.
Manifest read_manifest(std::string_view bytes);
Release read_release(std::string_view bytes);

// Throws expired, older or another-registry. The clock counts as no earlier than what was seen or says `issued`.
void check_fresh(const Manifest& manifest, const std::optional<Seen>& seen, std::int64_t now, std::int64_t root = 0);

std::int64_t bucket(std::string_view salt, std::string_view device);
std::optional<std::int64_t> choose(const std::vector<Arm>& arms, std::int64_t bucket,
                                   std::optional<std::int64_t> active);

// The first line whose requirements the device meets and whose files it has room for. Throws no-line or no-room.
Plan make_plan(const Manifest& manifest, const Release& release, const Device& device);

// `packed_template` and `table` are zlib streams; `factors` as they travelled. Throws format, or digest when the
// result is not the pinned program.
std::string relink(std::string_view packed_template, std::string_view table, std::string_view factors,
                   const File& program);

}  // namespace ptdock
