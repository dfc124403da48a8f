// A device in one command: takes what a channel offers it out of a static tree (`ptdock site publish DIR`), verified,
// and runs every adapter of the set on one foundation. Prints one JSON document.
//
//   device SITE CHANNEL KEY.pem DIR ID [--weight-cache] < INPUT       (raw little-endian floats)
//
// An app does the same with its own downloads in place of SITE, and keeps `Seen` and the active set in a file.
#include <openssl/evp.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>

#include "json.hpp"
#include "model.hpp"
#include "ptdock.hpp"

namespace fs = std::filesystem;
using ptdock::Json;

namespace {

std::string read(const fs::path& path, std::uintmax_t limit) {
  std::ifstream file(path, std::ios::binary);
  std::error_code absent;
  if (!file || fs::file_size(path, absent) > limit) throw ptdock::Error("not-found", path.string() + " is not there");
  return {std::istreambuf_iterator<char>(file), {}};
}

// The digest of a file that may be larger than memory.
std::string digest_of(const fs::path& path) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
  std::ifstream file(path, std::ios::binary);
  std::string piece(1 << 20, '\0');
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0) {
    EVP_DigestUpdate(context.get(), piece.data(), static_cast<std::size_t>(file.gcount()));
  }
  unsigned char raw[EVP_MAX_MD_SIZE];
  EVP_DigestFinal_ex(context.get(), raw, nullptr);
  std::ostringstream hex;
  for (int i = 0; i < 32; ++i) hex << "0123456789abcdef"[raw[i] >> 4] << "0123456789abcdef"[raw[i] & 15];
  return hex.str();
}

// The device's store: complete files under their digests, made whole aside and then renamed.
class Store {
 public:
  Store(fs::path site, fs::path directory) : site_(std::move(site)), directory_(std::move(directory)) {
    fs::create_directories(directory_ / "blobs" / "sha256");
    fs::create_directories(directory_ / "partial");
  }

  fs::path path(const ptdock::File& file) const { return directory_ / "blobs" / "sha256" / file.digest; }

  std::set<std::string> holds() const {
    std::set<std::string> found;
    for (const auto& each : fs::directory_iterator(directory_ / "blobs" / "sha256")) {
      found.insert(each.path().filename().string());
    }
    return found;
  }

  void fetch(const ptdock::File& file) const {
    const fs::path from = site_ / "blobs" / "sha256" / file.digest, aside = directory_ / "partial" / file.digest;
    std::error_code absent;
    if (fs::file_size(from, absent) != static_cast<std::uintmax_t>(file.size)) {
      throw ptdock::Error("not-found", file.digest + " is not there with the pinned size");
    }
    fs::copy_file(from, aside, fs::copy_options::overwrite_existing);
    if (digest_of(aside) != file.digest) {
      fs::remove(aside);
      throw ptdock::Error("digest", file.digest + ": other bytes than pinned");
    }
    fs::rename(aside, path(file));
  }

  std::string bytes(const ptdock::File& file) const { return read(path(file), static_cast<std::uintmax_t>(file.size)); }

  void write(const ptdock::File& file, const std::string& bytes) const {
    const fs::path aside = directory_ / "partial" / file.digest;
    std::ofstream(aside, std::ios::binary) << bytes;
    fs::rename(aside, path(file));
  }

 private:
  fs::path site_, directory_;
};

double since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
}

ptdock::Manifest verified_manifest(const fs::path& site, const std::string& channel, const std::string& key) {
  const std::string bytes = read(site / "targets" / "v1" / (channel + ".json"), 4u << 20);
  ptdock::verify(key, bytes, read(site / "targets" / "v1" / (channel + ".json.sig"), 256));
  ptdock::Manifest manifest = ptdock::read_manifest(bytes);
  if (manifest.channel != channel) throw ptdock::Error("integrity", "the manifest is another channel's");
  return manifest;
}

// The programs to load, by name; those that came as factors are written now.
std::vector<std::pair<std::string, fs::path>> installed(const Store& store, const ptdock::Line& line,
                                                       const ptdock::Plan& plan, Json& report) {
  std::vector<std::pair<std::string, fs::path>> programs{{"", store.path(line.base)}};
  for (const ptdock::Adapter& each : plan.adapters) {
    if (!fs::exists(store.path(each.program))) {
      const ptdock::Factors& parts = each.factors.value();
      const auto began = std::chrono::steady_clock::now();
      store.write(each.program, ptdock::relink(store.bytes(parts.program_template), store.bytes(parts.table),
                                               store.bytes(parts.file), each.program));
      report["relinked"][each.name] = since(began);
    }
    programs.emplace_back(each.name, store.path(each.program));
  }
  return programs;
}

Json run(const fs::path& site, const std::string& channel, const std::string& key, const fs::path& directory,
         const std::string& id, bool weight_cache, const std::vector<float>& input) {
  const ptdock::Manifest manifest = verified_manifest(site, channel, key);
  const Store store(site, directory);
  ptdock::Device device;
  device.id = id;
  device.platform = "linux";
  device.executorch = {1, 5};
  device.backends = {"XnnpackBackend"};
  device.holds = store.holds();
  ptdock::check_fresh(manifest, std::nullopt, std::time(nullptr));
  const std::int64_t number = ptdock::bucket(manifest.salt, id);
  Json report{{"channel", channel}, {"sequence", manifest.sequence}, {"bucket", number}, {"relinked", Json::object()}};
  const auto chosen = ptdock::choose(manifest.arms, number, std::nullopt);
  if (!chosen) return report;
  store.fetch(manifest.pin(*chosen));
  const ptdock::Release release = ptdock::read_release(store.bytes(manifest.pin(*chosen)));
  const ptdock::Plan plan = ptdock::make_plan(manifest, release, device);
  std::int64_t bytes = 0;
  for (const ptdock::File& each : plan.download) {
    store.fetch(each);
    bytes += each.size;
  }
  report["release"] = *chosen;
  report["fetched"] = bytes;
  const ptdock::Line& line = release.lines[plan.line];
  std::vector<std::unique_ptr<ptdock::Model>> models;  // all stay loaded: a swap is then which one is asked
  for (const auto& [name, program] : installed(store, line, plan, report)) {
    const auto began = std::chrono::steady_clock::now();
    models.push_back(std::make_unique<ptdock::Model>(program, store.path(line.foundation), weight_cache));
    const double loaded = since(began);
    report["programs"].push_back({{"adapter", name}, {"load_ms", loaded}, {"output", models.back()->run(input)}});
  }
  return report;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 6) {
    std::cerr << "usage: device SITE CHANNEL KEY.pem DIR ID [--weight-cache] < INPUT\n";
    return 2;
  }
  try {
    const std::string raw{std::istreambuf_iterator<char>(std::cin), {}};
    std::vector<float> input(raw.size() / sizeof(float));
    std::memcpy(input.data(), raw.data(), input.size() * sizeof(float));
    const bool weight_cache = count > 6 && std::string_view(arguments[6]) == "--weight-cache";
    std::cout << run(arguments[1], arguments[2], read(arguments[3], 4096), arguments[4], arguments[5], weight_cache,
                     input)
              << "\n";
  } catch (const ptdock::Error& error) {
    std::cerr << "error " << error.code << ": " << error.what() << "\n";
    return 1;
  }
}
