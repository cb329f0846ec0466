// Launch lists: what a planned kernel does in one run(), as data. A plan loads its rows once
// (Executor::load); run() fills in the parameters, which hold the pointers of this run, and hands
// the list to the executor of the plan's device: src/cuda on a GPU, src/emu on the emulator.
#ifndef STROBE_SRC_GPU_LAUNCH_H_
#define STROBE_SRC_GPU_LAUNCH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "api/status.h"
#include "gpu/rows.h"

namespace strobe::gpu {

// A row made ready on one device. Owned by the process: valid for as long as it runs.
struct LoadedKernel {
  Row row{};
  int registers = 0;            // per thread; 0: not known
  std::size_t local_bytes = 0;  // per thread: stack and spills
  std::size_t static_shared_bytes = 0;
  const char* image = "";  // "cubin", "ptx", "nvrtc", "nvrtc (cached)", "emulator": for explain
};

struct Launch {
  const LoadedKernel* kernel = nullptr;
  std::uint32_t grid = 0;          // blocks; 0 launches nothing
  std::uint32_t block = 0;         // threads
  std::uint32_t shared_bytes = 0;  // dynamic; at most what load() was told
  std::uint32_t cluster = 1;       // blocks per cluster; divides the grid
  bool overlap_previous = false;  // programmatic dependent launch: may start before the step before
                                  // it has ended, and waits itself (griddepcontrol.wait)
  // Its CTAs wait for each other through device memory, only ever for ones of lower index: the
  // emulator runs them all in one world.
  bool together = false;
  const void* params = nullptr;  // the kernel's Params, read during run() alone
  std::size_t params_bytes = 0;
};

struct Memset {
  void* to = nullptr;  // device memory
  std::uint8_t value = 0;
  std::size_t bytes = 0;
};

struct Copy {  // within the device
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
};

using Step = std::variant<Launch, Memset, Copy>;

class Executor {
 public:
  virtual ~Executor() = default;

  // Makes a row ready, which may read images, compile and allocate; for plan time. shared_bytes is
  // the most dynamic shared memory that its launches will use. Loading again is cheap.
  virtual api::Status load(const Row& row, std::uint32_t shared_bytes,
                           const LoadedKernel** kernel) = 0;

  // Enqueues the steps in order on the caller's stream. Allocates nothing and waits for nothing.
  virtual api::Status run(std::span<const Step> steps, void* stream) const = 0;
};

}  // namespace strobe::gpu

#endif  // STROBE_SRC_GPU_LAUNCH_H_
