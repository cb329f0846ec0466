// What a run on the emulator reports: hazards, and counts of everything a GPU
// would have done.
#ifndef STROBE_SRC_EMU_REPORT_H_
#define STROBE_SRC_EMU_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/counted.h"

namespace strobe::emu {

// Where in the kernel source an operation stands. The default is the caller's
// own place.
struct Here {
  const char* file;
  int line;
  constexpr Here(const char* f = __builtin_FILE(), int l = __builtin_LINE()) : file(f), line(l) {}
};

enum class HazardKind {
  kDeadlock,       // nobody can go on
  kRace,           // two accesses of one place, one of them a write, that nothing orders
  kUninitialised,  // a read of what nobody wrote
  kOutOfBounds,    // outside shared memory or every registered tensor
  kMisaligned,     // an address that the operation does not take
  kDivergence,     // lanes of a warp at different collective operations
  kBarrier,        // a barrier used with differing counts, or by exited threads
  kLeak,           // arrivals or copies left over at exit
  kLimit,          // more shared memory, threads or registers than the machine has
};
const char* name(HazardKind kind);

struct Hazard {
  HazardKind kind;
  std::string message;  // who, what, where; one or more lines
  std::uint32_t cta;
  std::uint32_t thread;
  Here here;
};

struct Counters {
  std::uint64_t ctas = 0;
  std::uint64_t mma_flops = 0;  // 2 per multiply-add
  std::uint64_t ops[static_cast<int>(core::Op::kCount)] = {};
  std::uint64_t shared_bytes_read = 0;
  std::uint64_t shared_bytes_written = 0;
  // Passes over the banks of shared memory: each serves every bank once.
  // Without conflicts ldmatrix needs one per 8 rows, other accesses one per 128
  // bytes that a warp touches.
  std::uint64_t shared_wavefronts = 0;
  std::uint64_t bank_conflicts = 0;    // wavefronts beyond those
  std::uint64_t cross_warp_bytes = 0;  // read from shared memory, written by another warp
  std::uint64_t shuffles = 0;
  std::uint64_t barriers = 0;  // arrivals of threads at named barriers
  std::uint64_t atomics = 0;
  std::uint64_t switches = 0;  // of fibers: the emulator's own cost

  void add(const Counters& other);
};

// Traffic of one registered tensor with device memory.
struct TensorTraffic {
  std::string name;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t bytes_reduced = 0;  // atomics and reductions
};

// How often threads executed operations that stand on one line.
struct LineHits {
  Here here;
  std::uint64_t count;
};

struct Report {
  std::vector<Hazard> hazards;  // at most kMaxHazards, one per kind and place
  std::uint64_t hazards_dropped = 0;
  Counters counters;
  std::vector<TensorTraffic> tensors;
  std::vector<LineHits> lines;

  static constexpr std::size_t kMaxHazards = 32;
  bool clean() const { return hazards.empty(); }
  void add(Hazard hazard);
  void add_hits(const Here& here, std::uint64_t count);
  // Executions of operations on lines [first, last] of files whose path ends in
  // `file`: which branches of a kernel have run.
  std::uint64_t hits(const char* file, int first, int last) const;
  std::string text() const;  // of the hazards; empty when clean
};

}  // namespace strobe::emu

#endif  // STROBE_SRC_EMU_REPORT_H_
