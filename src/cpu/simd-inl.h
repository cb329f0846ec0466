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

// tanh(z / 2) = z (1/2 + z^2 q(z^2)) on [-1.25, 1.25]: q, for a relative error below 5e-9.
constexpr float kTanh[5] = {-4.16666024e-2f, 4.16607565e-3f, -4.19841443e-4f, 4.03106485e-5f,
                            -2.7856182e-6f};

// tanh(y) within two units in the last place. Near zero an odd polynomial, elsewhere
// 1 - 2 / (exp(2 |y|) + 1), which loses nothing on the positive side.
HWY_INLINE Vec Tanh(Vec y) {
  const Tag d;
  const Vec one = hn::Set(d, 1.0f);
  const Vec z = hn::Add(y, y);
  const Vec e = Exp()(hn::Min(hn::Abs(z), hn::Set(d, 20.0f)));
  const Vec large = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one)));
  const Vec w = hn::Mul(z, z);
  Vec q = hn::Set(d, kTanh[4]);
  q = hn::MulAdd(q, w, hn::Set(d, kTanh[3]));
  q = hn::MulAdd(q, w, hn::Set(d, kTanh[2]));
  q = hn::MulAdd(q, w, hn::Set(d, kTanh[1]));
  q = hn::MulAdd(q, w, hn::Set(d, kTanh[0]));
  const Vec small = hn::Mul(z, hn::MulAdd(q, w, hn::Set(d, 0.5f)));
  const Vec signed_large = hn::CopySignToAbs(large, y);
  return hn::IfThenElse(hn::Ge(w, hn::Set(d, 1.5625f)), signed_large, small);  // NaN: small
}

// bf16 and f16 to float, exactly: subnormals, infinities and NaN included.
HWY_INLINE Vec LoadBf16(const uint16_t* from) {
  const TagU du;
  return hn::BitCast(Tag(), hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(Tag16(), from))));
}

HWY_INLINE Vec LoadF16(const uint16_t* from) {
  const Tag d;
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
}

}  // namespace strobe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
