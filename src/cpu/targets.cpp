// Compiles the kernels once per SIMD target and lists the tables this CPU can run.
//
// Disabled on x86: SSSE3 and the AVX-512 variants whose extra instructions float32 does not use
// (AVX3_DL, ZEN4, SPR, AVX10), by their bits, since older Highway versions do not name all of them.
#if (defined(__x86_64__) || defined(_M_X64)) && !defined(HWY_DISABLED_TARGETS)
#define HWY_DISABLED_TARGETS (0xFFLL | (1LL << 12))
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/targets.cpp"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include "cpu/kernels.h"

// Scalable vectors (SVE, RVV) have no size known at compile time, which arrays of accumulators
// need.
#if HWY_HAVE_SCALABLE == 0
#include "cpu/backward-inl.h"
#include "cpu/bias_grad-inl.h"
#include "cpu/forward-inl.h"
#include "cpu/probs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strobe::cpu::HWY_NAMESPACE {

static_assert(kPanel <= kMaxPanel && kQueryBlock % kPanel == 0);

extern const Kernels kKernels;
const Kernels kKernels = {
    .name = hwy::TargetName(HWY_TARGET),
    .panel = static_cast<std::int64_t>(kPanel),
    .rows = static_cast<std::int64_t>(kRows),
    .forward_scratch = ForwardScratchBytes,
    .forward = Forward,
    .backward_scratch = BackwardScratchBytes,
    .backward_rows = BackwardRows,
    .backward = Backward,
    .bias_grad = BiasGradient,
    .probs_scratch = ForwardScratchBytes,
    .probs = Probs,
};

}  // namespace strobe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
#include <vector>

namespace strobe::cpu {

std::span<const Kernels* const> available_kernels() {
  static const std::vector<const Kernels*> kAvailable = [] {
    const std::int64_t supported = hwy::SupportedTargets();
    std::vector<const Kernels*> list;
    const auto add = [&](std::int64_t target, const Kernels& kernels) {
      if (supported & target) list.push_back(&kernels);
    };
#if HWY_TARGETS & HWY_AVX3
    add(HWY_AVX3, N_AVX3::kKernels);
#endif
#if HWY_TARGETS & HWY_AVX2
    add(HWY_AVX2, N_AVX2::kKernels);
#endif
#if HWY_TARGETS & HWY_SSE4
    add(HWY_SSE4, N_SSE4::kKernels);
#endif
#if defined(HWY_SSE2) && (HWY_TARGETS & HWY_SSE2)
    add(HWY_SSE2, N_SSE2::kKernels);
#endif
#if HWY_TARGETS & HWY_NEON
    add(HWY_NEON, N_NEON::kKernels);
#endif
#if defined(HWY_NEON_WITHOUT_AES) && (HWY_TARGETS & HWY_NEON_WITHOUT_AES)
    add(HWY_NEON_WITHOUT_AES, N_NEON_WITHOUT_AES::kKernels);
#endif
#if HWY_TARGETS & HWY_EMU128
    add(HWY_EMU128, N_EMU128::kKernels);
#endif
#if HWY_TARGETS & HWY_SCALAR
    add(HWY_SCALAR, N_SCALAR::kKernels);
#endif
    return list;
  }();
  return kAvailable;
}

}  // namespace strobe::cpu
#endif
