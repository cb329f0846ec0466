// The two devices that run launch lists: a GPU, and the emulator.
#ifndef STROBE_SRC_GPU_DEVICE_H_
#define STROBE_SRC_GPU_DEVICE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "api/backend.h"
#include "gpu/family.h"

namespace strobe::gpu {

// Cheap; no context is made. Fails where there is no such device.
api::Status device_facts(strobe_device_kind kind, int index, DeviceFacts* facts);

// One run: what is launched, and the memory it may touch.
struct Run {
  const Program& program;
  const strobe_problem& problem;
  const strobe_run_args& args;
  std::size_t workspace_bytes;
};

// A device as a plan holds it.
class Device {
 public:
  virtual ~Device() = default;
  virtual api::Status load(const Need& need, const LoadedKernel** kernel) = 0;
  virtual api::Status run(const Run& run, void* stream) const = 0;
  virtual int threads() const { return 0; }            // of the host
  virtual api::Facts facts() const = 0;                // for explain
  virtual std::string last_run() const { return {}; }  // JSON; as api::PlannedKernel
};
api::Status open_device(const api::Options& options, std::unique_ptr<Device>* device);

// Override keys that the device itself has.
inline constexpr api::OverrideKey kEmulatorKeys[] = {
    {"seed", "of the emulator's order of threads and landing of copies, 0 to 2^64 - 1; default 1"},
    {"landing", "when asynchronous operations land: immediate | late | random (default)"},
};

}  // namespace strobe::gpu

#endif  // STROBE_SRC_GPU_DEVICE_H_
