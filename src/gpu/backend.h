// A family and a device make a backend row.
#ifndef STROBE_SRC_GPU_BACKEND_H_
#define STROBE_SRC_GPU_BACKEND_H_

#include <algorithm>
#include <array>
#include <memory>

#include "gpu/device.h"
#include "gpu/family.h"

namespace strobe::gpu {

// Loads the plan's rows on the device that the options name.
api::Status plan_on_device(const strobe_problem& problem, const api::Options& options,
                           std::unique_ptr<KernelPlan> kernel_plan,
                           std::unique_ptr<api::PlannedKernel>* planned);

template <const Family& kFamily, strobe_device_kind kDevice>
struct BackendOf {
  static constexpr bool kEmulator = kDevice == STROBE_DEVICE_EMULATOR;
  static constexpr std::size_t kOwnKeys = kEmulator ? std::size(kEmulatorKeys) : 0;
  static constexpr auto kKeys = [] {
    std::array<api::OverrideKey, kFamily.override_keys.size() + kOwnKeys> keys{};
    const auto end =
        std::copy(kFamily.override_keys.begin(), kFamily.override_keys.end(), keys.begin());
    if constexpr (kEmulator) std::copy(std::begin(kEmulatorKeys), std::end(kEmulatorKeys), end);
    return keys;
  }();

  static api::Status supports(const strobe_problem& problem, const api::Options& options) {
    DeviceFacts facts;
    api::Status status = device_facts(kDevice, options.device_index, &facts);
    return status.ok() ? kFamily.supports(problem, options, facts) : status;
  }
  static double cost(const strobe_problem& problem, const api::Options& options) {
    DeviceFacts facts;
    return device_facts(kDevice, options.device_index, &facts).ok() ? kFamily.cost(problem, facts)
                                                                    : 0;
  }
  static api::Status plan(const strobe_problem& problem, const api::Options& options,
                          std::unique_ptr<api::PlannedKernel>* planned) {
    DeviceFacts facts;
    api::Status status = device_facts(kDevice, options.device_index, &facts);
    if (!status.ok()) return status;
    std::unique_ptr<KernelPlan> kernel_plan;
    status = kFamily.plan(problem, options, facts, &kernel_plan);
    return status.ok() ? plan_on_device(problem, options, std::move(kernel_plan), planned) : status;
  }

  static constexpr api::Backend kRow = {kFamily.name, kDevice, kKeys, kFamily.note,
                                        &supports,    &cost,   &plan};
};

// Every row, family by family; src/api/registry.cpp takes those of the devices that the build has.
extern const api::Backend kFa2OnCuda, kFa2OnEmulator;
extern const api::Backend kGenericOnCuda, kGenericOnEmulator;
extern const api::Backend kFa1OnCuda, kFa1OnEmulator;
extern const api::Backend kStandardOnCuda, kStandardOnEmulator;

}  // namespace strobe::gpu

#endif  // STROBE_SRC_GPU_BACKEND_H_
