// What each further adapter costs: loads programs on one foundation one after another, all staying loaded, and prints
// after each a line of JSON: load time, and this process's memory by the kernel's account.
//
//   weight_cache on|off FOUNDATION.ptd PROGRAM.pte ... < INPUT        (raw little-endian floats)
#include <chrono>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>

#include "json.hpp"
#include "model.hpp"

namespace {

// Bytes of a line of /proc/self/status, such as RssAnon.
std::int64_t memory(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::cerr << "usage: weight_cache on|off FOUNDATION PROGRAM... < INPUT\n";
    return 2;
  }
  const std::string raw{std::istreambuf_iterator<char>(std::cin), {}};
  std::vector<float> input(raw.size() / sizeof(float));
  std::memcpy(input.data(), raw.data(), input.size() * sizeof(float));
  std::vector<std::unique_ptr<ptdock::Model>> models;
  try {
    for (int i = 3; i < count; ++i) {
      const auto began = std::chrono::steady_clock::now();
      models.push_back(std::make_unique<ptdock::Model>(arguments[i], arguments[2], arguments[1] == std::string("on")));
      const std::chrono::duration<double, std::milli> loaded = std::chrono::steady_clock::now() - began;
      const float first = models.back()->run(input).front();
      std::cout << ptdock::Json{{"loaded", models.size()},   {"load_ms", loaded.count()}, {"first", first},
                                {"rss", memory("VmRSS")},    {"anonymous", memory("RssAnon")},
                                {"file", memory("RssFile")}, {"peak", memory("VmHWM")}}
                << std::endl;
    }
  } catch (const ptdock::Error& error) {
    std::cerr << "error " << error.code << ": " << error.what() << "\n";
    return 1;
  }
}
