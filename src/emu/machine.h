// The emulated GPU, as its users see it: a launch of one kernel over registered
// tensors. docs/design/emulator.md says what it checks and how.
#ifndef STROBE_SRC_EMU_MACHINE_H_
#define STROBE_SRC_EMU_MACHINE_H_

#include <cstdint>

#include "emu/memory.h"
#include "emu/report.h"

namespace strobe::emu {

// When an asynchronous operation's effect lands.
enum class Landing {
  kImmediate,  // as it is issued: shows a place reused too early
  kLate,       // as late as the waits allow: shows a missing wait by its values
  kRandom,     // at a seeded time in between
};

struct Launch {
  const char* name;
  std::uint32_t grid;
  std::uint32_t threads;
  std::uint32_t shared_bytes;
  bool together = false;  // all CTAs in one world: they wait for each other
                          // through device memory
  void (*entry)(const void* params);
  const void* params;
  std::uint64_t seed = 1;
  Landing landing = Landing::kRandom;
  int host_threads = 1;
  // Goes on after races and uninitialised reads, to show the values they lead to.
  bool go_on = false;
};

// Runs one launch to its end, or until a hazard: then CTAs of higher index
// count as not run. Adds hazards and counters to `report`; traffic stays with
// the tensors (Memory::add_traffic_to).
//
// The result follows from `seed` alone, not from host_threads, but for float32
// atomics, whose order between CTAs is left to chance, and for which of several
// races between CTAs is found.
void run(const Launch& launch, Memory& memory, Report& report);

constexpr std::uint32_t kWarpLanes = 32;
constexpr std::uint32_t kMaxThreads = 1024;
constexpr std::uint32_t kMaxSharedBytes = 232448;  // 227 KiB: Hopper's and Blackwell's limit
// Shared-memory addresses start here, as they do on a GPU whose driver keeps
// the first KiB.
constexpr std::uint32_t kSharedBase = 1024;
constexpr int kNamedBarriers = 16;

}  // namespace strobe::emu

#endif  // STROBE_SRC_EMU_MACHINE_H_
