// Vectors of the current Highway target: lanes, exp, tanh and 16-bit float conversions.
// Included once per target; no include guard of the usual kind.
#if defined(STROBE_SRC_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STROBE_SRC_CPU_SIMD_INL_H_
#undef STROBE_SRC_CPU_SIMD_INL_H_
#else
#define STROBE_SRC_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace strobe::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using TagI = hn::RebindToSigned<Tag>;
using TagU = hn::RebindToUnsigned<Tag>;
using Tag16 = hn::Rebind<uint16_t, Tag>;
using Vec = hn::Vec<Tag>;
using Mask = hn::Mask<Tag>;

constexpr size_t kLanes = hn::MaxLanes(Tag());
// A panel: the queries that one tile of S^T or O^T holds side by side. Two vectors, so that each
// broadcast of an element of K or V feeds two multiply-adds.
constexpr size_t kPanel = 2 * kLanes;
// Rows of a register tile: kRows x 2 accumulators, 2 vectors of the panel and a broadcast fill the
// register file.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr size_t kRows = 12;
#else
constexpr size_t kRows = 6;
#endif

// exp(factor * t), factor > 0, with relative error below 2e-7 + |factor * t| * 2^-24 (2^-23 without
// fused multiply-add): log2(e) is one float, whose rounding counts in proportion to t. Next to
// exp(0) = 1, the largest of a row, the absolute error stays below 2e-7. Below exp(-87) the result
// is exactly 0, at -inf too; NaN gives NaN. kAnyT: above exp(88.3) it is inf; without it, factor *
// t must be at most that.
//
// 2^x = 2^n * 2^r with n = round(x): adding 1.5 * 2^23 leaves n in the low mantissa bits, from
// where it is shifted into the exponent. 2^r by a degree-5 polynomial, minimax in relative error
// (9e-8) with p(0) = 1 exactly, so that a row with one visible key returns that key's value
// unchanged. (FlashAttention-4, section on software exp2, has the same shape with degree 3, enough
// for bf16.) The factor costs nothing: it joins log2(e).
struct Exp {
  Vec log2e, lowest, highest;

  explicit HWY_INLINE Exp(float factor = 1.0f)
      : log2e(hn::Set(Tag(), factor * 1.44269504088896341f)),
        // Finite, so that -inf is below it whatever the factor.
        lowest(hn::Set(Tag(), std::max(-87.0f / factor, std::numeric_limits<float>::lowest()))),
        highest(hn::Set(Tag(), 88.3f / factor)) {}

  template <bool kAnyT = false>
  HWY_INLINE Vec operator()(Vec t) const {
    const Tag d;
    const TagI di;
    const Vec magic = hn::Set(d, 12582912.0f);
    const Vec shifted = hn::MulAdd(t, log2e, magic);
    const Vec n = hn::Sub(shifted, magic);
    const Vec r = hn::MulSub(t, log2e, n);
    Vec p = hn::Set(d, 1.32647e-3f);
    p = hn::MulAdd(p, r, hn::Set(d, 9.67151e-3f));
    p = hn::MulAdd(p, r, hn::Set(d, 5.550734e-2f));
    p = hn::MulAdd(p, r, hn::Set(d, 2.4022242e-1f));
    p = hn::MulAdd(p, r, hn::Set(d, 6.9314698e-1f));
    p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
    const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
    p = hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
    p = hn::IfThenZeroElse(hn::Lt(t, lowest), p);
    if constexpr (kAnyT) {
      const Vec inf = hn::BitCast(d, hn::Set(di, 0x7F800000));
      p = hn::IfThenElse(hn::Gt(t, highest), inf, p);
    }
    return p;
  }
};

// z limited to [-limit, limit]; NaN stays NaN.
HWY_INLINE Vec Clamp(Vec z, float limit) {
  const Tag d;
  const Vec high = hn::Set(d, limit), low = hn::Set(d, -limit);
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  return hn::Max(low, hn::Min(high, z));  // x86 returns the second operand where one is NaN
#else
  z = hn::IfThenElse(hn::Gt(z, high), high, z);
  return hn::IfThenElse(hn::Lt(z, low), low, z);
#endif
}

// tanh(y) within four units in the last place, without a branch: with E = exp(2 y) - 1 it is
// E / (E + 2). E keeps its relative accuracy near zero as 2^n (2^r - 1) + (2^n - 1), where 2^r - 1
// is r times a polynomial, minimax in relative error (2e-8).
HWY_INLINE Vec Tanh(Vec y) {
  const Tag d;
  const TagI di;
  const Vec one = hn::Set(d, 1.0f), magic = hn::Set(d, 12582912.0f);
  const Vec log2e = hn::Set(d, 1.44269504088896341f);
  const Vec z = Clamp(hn::Add(y, y), 20.0f);  // beyond, tanh is 1 to the last bit
  const Vec shifted = hn::MulAdd(z, log2e, magic);
  const Vec r = hn::MulSub(z, log2e, hn::Sub(shifted, magic));
  Vec q = hn::Set(d, 1.54035128e-4f);
  q = hn::MulAdd(q, r, hn::Set(d, 1.33907356e-3f));
  q = hn::MulAdd(q, r, hn::Set(d, 9.61823749e-3f));
  q = hn::MulAdd(q, r, hn::Set(d, 5.55035743e-2f));
  q = hn::MulAdd(q, r, hn::Set(d, 2.40226498e-1f));
  q = hn::MulAdd(q, r, hn::Set(d, 6.93147188e-1f));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
  const Vec power = hn::BitCast(d, hn::Add(exponent, hn::BitCast(di, one)));  // 2^n
  const Vec e = hn::MulAdd(power, hn::Mul(q, r), hn::Sub(power, one));
  return hn::Div(e, hn::Add(e, hn::Set(d, 2.0f)));
}

// bf16 and f16 to float, exactly: subnormals, infinities and NaN included.
HWY_INLINE Vec LoadBf16(const uint16_t* from) {
  const TagU du;
  return hn::BitCast(Tag(), hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(Tag16(), from))));
}

HWY_INLINE Vec LoadF16(const uint16_t* from) {
  const Tag d;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  // One instruction. Elsewhere Highway's own conversion may not know infinities and NaN.
  const hn::Rebind<hwy::float16_t, Tag> half;
  return hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(from)));
#else
  const TagU du;
  const auto h = hn::PromoteTo(du, hn::LoadU(Tag16(), from));
  const auto magnitude = hn::And(h, hn::Set(du, 0x7FFFu));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(h, magnitude));
  const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(du, 112u << 23));
  const auto subnormal = hn::BitCast(
      du, hn::Mul(hn::ConvertTo(d, hn::BitCast(TagI(), magnitude)), hn::Set(d, 0x1p-24f)));
  const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x400u)), subnormal, normal);
  const auto special = hn::Gt(magnitude, hn::Set(du, 0x7BFFu));
  const auto bits = hn::IfThenElse(special, hn::Or(finite, hn::Set(du, 0x7F800000u)), finite);
  return hn::BitCast(d, hn::Or(bits, sign));
#endif
}

}  // namespace strobe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
