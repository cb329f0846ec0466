// One long sequence through Strobe or through standard attention, in a process of its own, so that
// each has a peak memory of its own.
#ifndef STROBE_EXAMPLES_DEMO_LONG_SEQUENCE_H_
#define STROBE_EXAMPLES_DEMO_LONG_SEQUENCE_H_

#include <cstdint>
#include <optional>
#include <string>

namespace strobe::demo {

// One batch entry, one head, float32.
struct LongRun {
  std::int64_t seqlen = 0;  // a multiple of 32
  bool causal = true;
  bool standard = false;  // standard attention, else Strobe
  int threads = 1;
};
constexpr std::int64_t kLongHeadDim = 64;

struct Measurement {
  double seconds = 0;     // the best of several runs in the same memory
  double error = 0;       // max |o - float64| over a sample of rows
  double bound = 0;       // of docs/numerics.md, over these rows
  double peak_bytes = 0;  // of the whole process, q, k, v and o included
  bool ok() const { return error <= bound; }
};

// Runs this program again (`program` is argv[0]) as a child; on failure *error says why.
std::optional<Measurement> measure_in_child(const char* program, const LongRun& run,
                                            std::string* error);

// The child's part: measures and writes the Measurement to standard output, peak_bytes left 0.
// Returns the exit code.
int child_main(const LongRun& run);

// `wanted`, halved until its scores fit into the memory that is free; a multiple of 32.
std::int64_t seqlen_for_memory(std::int64_t wanted, double available_bytes);
// Free memory in bytes, of the machine or of this process's control group; unlimited where unknown.
double available_memory();

}  // namespace strobe::demo

#endif  // STROBE_EXAMPLES_DEMO_LONG_SEQUENCE_H_
