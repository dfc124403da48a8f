// A program on its foundation, loaded by ExecuTorch's Module, with XNNPACK's weight cache on or off.
//
// Without the cache, XNNPACK packs a copy of every weight that a program uses, the foundation's included, at each load.
// With it, programs whose weights have the same keys share one packed copy; ptdock's keys are the SHA-256 of the bytes.
#pragma once

#include <executorch/extension/module/module.h>

#include <string>
#include <vector>

namespace ptdock {

class Model {
 public:
  // Throws Error("runtime") with ExecuTorch's number in words.
  Model(const std::string& program, const std::string& foundation, bool weight_cache);

  // `input` are the values of the only input, a float tensor; the values of the first output are answered.
  std::vector<float> run(const std::vector<float>& input);

 private:
  executorch::extension::Module module_;
};

}  // namespace ptdock
