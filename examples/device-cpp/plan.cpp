// Whether a manifest counts, which release a device is offered, and what it fetches of it.
#include <algorithm>
#include <map>

#include "ptdock.hpp"

namespace ptdock {
namespace {

template <typename Set>
bool has_all(const Set& has, const std::vector<std::string>& needed) {
  return std::all_of(needed.begin(), needed.end(), [&has](const std::string& name) { return has.count(name) > 0; });
}

bool meets(const Device& device, const Line& line) {
  if (device.executorch < line.executorch_min || !has_all(device.backends, line.backends)) return false;
  if (device.operators && !has_all(*device.operators, line.operators)) return false;
  if (device.ram_bytes && *device.ram_bytes < line.ram_bytes) return false;
  for (const auto& [platform, build] : line.app_builds) {
    if (platform == device.platform && device.app_build < build) return false;
  }
  return true;
}

std::vector<Adapter> installable(const Manifest& manifest, const Line& line, const Device& device) {
  std::vector<Adapter> found;
  for (const Adapter& each : line.adapters) {
    const bool wanted = !device.wants || device.wants->count(each.name) > 0;
    const bool waits = each.on_demand && device.on_demand.count(each.name) == 0;
    if (wanted && !waits && manifest.revoked.count(each.program.digest) == 0) found.push_back(each);
  }
  return found;
}

// A set's files that the device lacks, each once, and the room that they and the programs written from factors take.
class Fetch {
 public:
  explicit Fetch(const Device& device) : device_(device) {}

  void add(const std::optional<File>& file) {
    if (file && device_.holds.count(file->digest) == 0 && seen_.insert(file->digest).second) {
      files.push_back(*file);
      room += file->size;
    }
  }

  void add_adapters(const std::vector<Adapter>& adapters) {
    const std::set<std::string> cheaper = cheaper_as_factors(adapters);
    for (const Adapter& each : adapters) {
      const bool written = each.factors && cheaper.count(each.factors->program_template.digest) > 0 &&
                           device_.holds.count(each.program.digest) == 0;
      if (written) {
        add(each.factors->program_template);
        add(each.factors->table);
        add(each.factors->file);
        room += each.program.size;
      } else {
        add(each.program);
      }
      add(each.prompt);
      add(each.self_test);
    }
  }

  std::vector<File> files;
  std::int64_t room = 0;

 private:
  std::int64_t missing(const File& file) const { return device_.holds.count(file.digest) > 0 ? 0 : file.size; }

  // The templates whose adapters weigh no more as factors than as programs, template and table included.
  std::set<std::string> cheaper_as_factors(const std::vector<Adapter>& adapters) const {
    std::map<std::string, std::int64_t> difference;
    for (const Adapter& each : adapters) {
      if (!each.factors) continue;
      const Factors& parts = *each.factors;
      const auto [at, added] = difference.try_emplace(parts.program_template.digest, 0);
      if (added) at->second = missing(parts.program_template) + missing(parts.table);
      if (device_.holds.count(each.program.digest) == 0) at->second += missing(parts.file) - each.program.size;
    }
    std::set<std::string> found;
    for (const auto& [digest, bytes] : difference) {
      if (bytes <= 0) found.insert(digest);
    }
    return found;
  }

  const Device& device_;
  std::set<std::string> seen_;
};

}  // namespace

void check_fresh(const Manifest& manifest, const std::optional<Seen>& seen, std::int64_t now, std::int64_t root) {
  if (seen && seen->registry != manifest.registry) throw Error("another-registry", "the channel followed another one");
  if (seen && std::pair(root, manifest.sequence) < std::pair(seen->root, seen->sequence)) {
    throw Error("older", "a newer manifest was seen already");
  }
  now = std::max({now, manifest.issued, seen ? seen->issued : 0});
  if (now > manifest.expires) throw Error("expired", "the manifest expired; what runs stays");
}

std::int64_t bucket(std::string_view salt, std::string_view device) {
  const std::string hex = sha256(std::string(salt) + ":" + std::string(device));
  return std::stoll(hex.substr(0, 8), nullptr, 16) % 10000;
}

std::optional<std::int64_t> choose(const std::vector<Arm>& arms, std::int64_t bucket,
                                   std::optional<std::int64_t> active) {
  std::int64_t end = 0;
  for (const Arm& arm : arms) {
    end += arm.share_bp;
    if (bucket < end && (arm.open || arm.release == active)) return arm.release;
  }
  return std::nullopt;
}

Plan make_plan(const Manifest& manifest, const Release& release, const Device& device) {
  bool met = false;
  for (std::size_t index = 0; index < release.lines.size(); ++index) {
    const Line& line = release.lines[index];
    if (!meets(device, line)) continue;
    met = true;
    Plan plan{index, installable(manifest, line, device), {}};
    Fetch fetch(device);
    for (const auto& file : {std::optional(line.foundation), std::optional(line.base), line.tokenizer, line.prompt}) {
      fetch.add(file);
    }
    fetch.add_adapters(plan.adapters);
    plan.download = std::move(fetch.files);
    if (!device.free_disk || fetch.room <= *device.free_disk) return plan;
  }
  if (met) throw Error("no-room", "the new set does not fit beside what is there");
  throw Error("no-line", "the device meets no line's requirements");
}

}  // namespace ptdock
