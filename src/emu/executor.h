// Runs launch lists on the emulator.
#ifndef STROBE_SRC_EMU_EXECUTOR_H_
#define STROBE_SRC_EMU_EXECUTOR_H_

#include <cstdint>
#include <mutex>
#include <string>

#include "emu/machine.h"
#include "gpu/launch.h"

namespace strobe::emu {

struct Settings {
  std::uint64_t seed = 1;
  Landing landing = Landing::kRandom;
  int host_threads = 1;
};
const char* name(Landing landing);

// What one run sees and what it leaves behind.
struct EmulatedRun {
  Memory memory;  // every tensor of the run, registered
  Report report;
};

class EmulatorExecutor final : public gpu::Executor {
 public:
  explicit EmulatorExecutor(const Settings& settings) : settings_(settings) {}

  api::Status load(const gpu::Row& row, std::uint32_t shared_bytes,
                   const gpu::LoadedKernel** kernel) override;

  // `stream` is the EmulatedRun. The first hazard ends the run and becomes its status.
  api::Status run(std::span<const gpu::Step> steps, void* stream) const override;

  // JSON of the last run to end, of any thread: hazards, traffic, counters and what they cost
  // by the machine model. Empty before the first.
  std::string last_run() const;

  const Settings& settings() const { return settings_; }

 private:
  Settings settings_;
  mutable std::mutex mutex_;
  mutable Report last_;
  mutable bool has_run_ = false;
};

}  // namespace strobe::emu

#endif  // STROBE_SRC_EMU_EXECUTOR_H_
