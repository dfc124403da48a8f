#include "model.hpp"

#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/backend/backend_options_map.h>
#include <executorch/runtime/backend/options.h>

#include <cstdio>

#include "ptdock.hpp"

namespace ptdock {
namespace {

using executorch::extension::Module;
using executorch::runtime::BackendOptions;
using executorch::runtime::LoadBackendOptionsMap;

// The names are those of backends/xnnpack/runtime/XNNPACKBackend.h, a header that the wheel does not carry.
constexpr char kBackend[] = "XnnpackBackend";
constexpr char kWeightCache[] = "weight_cache_enabled";

void check(executorch::runtime::Error error, const char* what) {
  if (error == executorch::runtime::Error::Ok) return;
  char number[16];
  std::snprintf(number, sizeof number, "0x%x", static_cast<unsigned>(error));
  throw Error("runtime", std::string(what) + ": ExecuTorch answers " + number);
}

}  // namespace

Model::Model(const std::string& program, const std::string& foundation, bool weight_cache)
    : module_(program, std::vector<std::string>{foundation}, Module::LoadMode::Mmap) {
  BackendOptions<1> options;
  check(options.set_option(kWeightCache, weight_cache), "the option");
  LoadBackendOptionsMap map;  // for this program alone; executorch::runtime::set_option would set it for all
  check(map.set_options(kBackend, options.view()), "the option");
  check(module_.load(map), "the program");
  check(module_.load_forward(), "its method");
}

std::vector<float> Model::run(const std::vector<float>& input) {
  const auto meta = module_.method_meta("forward");
  check(meta.error(), "its method");
  const auto tensor = meta->input_tensor_meta(0);
  check(tensor.error(), "its input");
  const std::vector<executorch::aten::SizesType> sizes(tensor->sizes().begin(), tensor->sizes().end());
  if (tensor->nbytes() != input.size() * sizeof(float)) {
    throw Error("runtime", "the program takes " + std::to_string(tensor->nbytes() / sizeof(float)) + " values");
  }
  const auto outputs = module_.forward(executorch::extension::make_tensor_ptr(sizes, input));
  check(outputs.error(), "running it");
  const auto answer = outputs->at(0).toTensor();
  return {answer.const_data_ptr<float>(), answer.const_data_ptr<float>() + answer.numel()};
}

}  // namespace ptdock
