// Every backend of this library: the one place to add a row.
#include <array>

#include "api/backend.h"
#include "cpu/cpu_backend.h"
#include "gpu/backend.h"
#include "reference/reference.h"

namespace strobe::api {

std::span<const Backend* const> backends() {
  static constexpr std::array kBackends = {
    &cpu::kBackend,
    &reference::kBackend,
    &gpu::kFa2OnCuda,
    &gpu::kGenericOnCuda,
    &gpu::kFa1OnCuda,
    &gpu::kStandardOnCuda,
#if STROBE_EMULATED_KERNELS
    &gpu::kFa2OnEmulator,
    &gpu::kGenericOnEmulator,
    &gpu::kFa1OnEmulator,
    &gpu::kStandardOnEmulator,
#endif
  };
  return kBackends;
}

}  // namespace strobe::api
