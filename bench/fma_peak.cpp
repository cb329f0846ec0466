#include "bench/fma_peak.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/fma_peak.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace strobe::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Two FMA units of four to five cycles each need ten accumulators in flight, and four units (recent
// Arm cores) sixteen. Twelve is what 16 registers hold beside a and b; 32 registers hold 24.
double fma_run(std::int64_t iterations) {
  const hn::ScalableTag<float> d;
  // x -> x a + b stays near b / (1 - a) = 1: neither overflow nor denormals.
  const auto a = hn::Set(d, 0.9375f), b = hn::Set(d, 0.0625f);
  auto x0 = hn::Iota(d, 0), x1 = hn::Iota(d, 1), x2 = hn::Iota(d, 2), x3 = hn::Iota(d, 3);
  auto x4 = hn::Iota(d, 4), x5 = hn::Iota(d, 5), x6 = hn::Iota(d, 6), x7 = hn::Iota(d, 7);
  auto x8 = hn::Iota(d, 8), x9 = hn::Iota(d, 9), x10 = hn::Iota(d, 10), x11 = hn::Iota(d, 11);
  const auto step = [&](auto& u0, auto& u1, auto& u2, auto& u3) HWY_ATTR {
    u0 = hn::MulAdd(u0, a, b);
    u1 = hn::MulAdd(u1, a, b);
    u2 = hn::MulAdd(u2, a, b);
    u3 = hn::MulAdd(u3, a, b);
  };
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
  constexpr int kAccumulators = 24;
  auto y0 = hn::Iota(d, 12), y1 = hn::Iota(d, 13), y2 = hn::Iota(d, 14), y3 = hn::Iota(d, 15);
  auto y4 = hn::Iota(d, 16), y5 = hn::Iota(d, 17), y6 = hn::Iota(d, 18), y7 = hn::Iota(d, 19);
  auto y8 = hn::Iota(d, 20), y9 = hn::Iota(d, 21), y10 = hn::Iota(d, 22), y11 = hn::Iota(d, 23);
#else
  constexpr int kAccumulators = 12;
#endif
  for (std::int64_t i = 0; i < iterations; ++i) {
    step(x0, x1, x2, x3);
    step(x4, x5, x6, x7);
    step(x8, x9, x10, x11);
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
    step(y0, y1, y2, y3);
    step(y4, y5, y6, y7);
    step(y8, y9, y10, y11);
#endif
  }
  // Every accumulator reaches the result, so that none is optimised away.
  auto sum =
      hn::Add(hn::Add(hn::Add(x0, x1), hn::Add(x2, x3)), hn::Add(hn::Add(x4, x5), hn::Add(x6, x7)));
  sum = hn::Add(sum, hn::Add(hn::Add(x8, x9), hn::Add(x10, x11)));
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
  sum = hn::Add(sum, hn::Add(hn::Add(hn::Add(y0, y1), hn::Add(y2, y3)),
                             hn::Add(hn::Add(y4, y5), hn::Add(y6, y7))));
  sum = hn::Add(sum, hn::Add(hn::Add(y8, y9), hn::Add(y10, y11)));
#endif
  volatile float sink = hn::GetLane(sum);
  (void)sink;
  return 2.0 * kAccumulators * static_cast<double>(hn::Lanes(d)) * static_cast<double>(iterations);
}

}  // namespace strobe::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cctype>
#include <vector>

namespace strobe::bench {
namespace {

std::vector<FmaTarget> make_targets() {
  const std::int64_t supported = hwy::SupportedTargets();
  std::vector<FmaTarget> targets;
  const auto add = [&](std::int64_t target, double (*run)(std::int64_t)) {
    if (supported & target) targets.push_back({hwy::TargetName(target), run});
  };
  // Not by HWY_EXPORT, which would choose once for the whole process.
#if HWY_TARGETS & HWY_AVX3
  add(HWY_AVX3, N_AVX3::fma_run);
#endif
#if HWY_TARGETS & HWY_AVX2
  add(HWY_AVX2, N_AVX2::fma_run);
#endif
#if HWY_TARGETS & HWY_SSE4
  add(HWY_SSE4, N_SSE4::fma_run);
#endif
#if HWY_TARGETS & HWY_NEON
  add(HWY_NEON, N_NEON::fma_run);
#endif
  // What the compiler assumes of every CPU, unless it is one of these.
  const char* baseline = hwy::TargetName(HWY_STATIC_TARGET);
  if (targets.empty() || targets.back().name != std::string(baseline)) {
    targets.push_back({baseline, HWY_STATIC_DISPATCH(fma_run)});
  }
  return targets;
}

}  // namespace

std::span<const FmaTarget> fma_targets() {
  static const std::vector<FmaTarget> targets = make_targets();
  return targets;
}

const FmaTarget* find_fma_target(const std::string& name) {
  std::string wanted = name;
  std::transform(wanted.begin(), wanted.end(), wanted.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  for (const FmaTarget& target : fma_targets()) {
    if (wanted.empty() || wanted.starts_with(target.name)) return &target;
  }
  return nullptr;
}

}  // namespace strobe::bench
#endif  // HWY_ONCE
