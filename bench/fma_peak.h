// The peer of the CPU suites: a loop of multiply-adds that never leaves the registers, i.e. the
// most that one core does with one SIMD target.
#ifndef STROBE_BENCH_FMA_PEAK_H_
#define STROBE_BENCH_FMA_PEAK_H_

#include <cstdint>
#include <span>
#include <string>

namespace strobe::bench {

struct FmaTarget {
  const char* name;  // Highway's: "AVX3", "AVX2" ...
  // Runs `iterations` of the loop; returns the floating-point operations done.
  double (*run)(std::int64_t iterations);
};

// The targets in this program that this CPU runs, best first.
std::span<const FmaTarget> fma_targets();

// The target of that name, in any case of letters and with any suffix after it ("avx3_zen4" is
// AVX3, with which it shares its FMA units); the best one for ""; nullptr where there is none.
const FmaTarget* find_fma_target(const std::string& name);

}  // namespace strobe::bench

#endif  // STROBE_BENCH_FMA_PEAK_H_
