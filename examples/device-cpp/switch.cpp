// XNNPACK's weight cache for a process that loads programs through ExecuTorch's Python package, which has no switch:
//
//   import executorch.runtime                                              # loads libexecutorch.so
//   ctypes.CDLL("build/device-cpp/libweight_cache_switch.so").ptdock_weight_cache(1)
//
// Programs that are loaded afterwards share what they pack. Answers 0, or ExecuTorch's error.
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/backend/options.h>

extern "C" unsigned ptdock_weight_cache(int on) {
  executorch::runtime::BackendOptions<1> options;
  const auto made = options.set_option("weight_cache_enabled", on != 0);
  if (made != executorch::runtime::Error::Ok) return static_cast<unsigned>(made);
  return static_cast<unsigned>(executorch::runtime::set_option("XnnpackBackend", options.view()));
}
