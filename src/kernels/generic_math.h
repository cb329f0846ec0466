// What the generic and the float64 kernels compute with: the arithmetic type of an element type,
// its accurate functions, and the scores of one head in the order of docs/numerics.md.
#ifndef STROBE_SRC_KERNELS_GENERIC_MATH_H_
#define STROBE_SRC_KERNELS_GENERIC_MATH_H_

#include "core/math64.h"
#include "core/philox.h"
#include "isa/isa.h"
#include "kernels/params.h"

namespace strobe::STROBE_TARGET {

// float32 for f32, bf16 and f16; float64 for f64. Also the type of LSE, slopes, sinks and dBias.
template <class T>
struct RealOf {
  using Type = f32;
};
template <>
struct RealOf<double> {
  using Type = double;
};
template <class T>
using Real = typename RealOf<T>::Type;

template <class T>
STROBE_DEVICE Real<T> to_real(T x) {
  if constexpr (sizeof(T) == 8) {
    return x;
  } else {
    return isa::to_float(x);
  }
}
template <class T>
STROBE_DEVICE T from_real(Real<T> x) {
  if constexpr (sizeof(T) == 8) {
    return x;
  } else {
    return isa::from_float<T>(x);
  }
}

// The approximate ex2 of a reduced argument, so that the error does not grow with |x|:
// exp(x) = 2^n 2^f, |f| <= 1/2. Results below 2^-126 are 0.
STROBE_DEVICE f32 exp_of(f32 x) {
  constexpr f32 kMagic = 12582912.0f;  // 1.5 2^23: adding it rounds to an integer
  if (!(x > -87.4f)) return x != x ? x : 0.0f;
  if (x > 88.8f) return core::infinity();
  const f32 shifted = isa::fma(x, 1.44269504f, kMagic);
  const f32 n = shifted - kMagic;
  const f32 r = isa::fma(n, -0x1.7f7d1cp-20f, isa::fma(n, -0x1.62e4p-1f, x));  // x - n ln 2
  const int e = static_cast<int>(n), half = e / 2;
  const f32 y = isa::ex2(r * 1.44269504f);
  return y * bit_cast<f32>(static_cast<u32>(half + 127) << 23) *
         bit_cast<f32>(static_cast<u32>(e - half + 127) << 23);
}
STROBE_DEVICE double exp_of(double x) { return core::exp64(x); }

STROBE_DEVICE f32 tanh_of(f32 x) {
  if (x > -0.5f && x < 0.5f) return core::tanh_near_0<f32, 4>(x);
  return 1.0f - 2.0f / (exp_of(2.0f * x) + 1.0f);
}
STROBE_DEVICE double tanh_of(double x) { return core::tanh64(x); }

template <class R>
STROBE_DEVICE constexpr R minus_infinity() {
  return -static_cast<R>(core::infinity());
}

// Scale, softcap and the like in the precision of the scores.
template <class R>
struct ScoreRule {
  R scale, softcap, keep_scale;
  const R* alibi;
};
STROBE_DEVICE ScoreRule<f32> score_rule(const kernels::Attention& a) {
  return {a.scale, a.mod.softcap, a.mod.keep_scale, a.mod.alibi};
}

// The scores of one sequence and head.
template <class T>
struct HeadScores {
  using R = Real<T>;
  const kernels::Attention& a;
  const ScoreRule<R>& rule;
  i64 bias_at, mask_at;  // of element (b, h, 0, 0)
  R slope = 0;
  int offset;  // the diagonal of query i is key i + offset
  core::PhiloxBlock stream = {};

  STROBE_DEVICE HeadScores(const kernels::Attention& attention, const ScoreRule<R>& r, int b, int h,
                           int diagonal)
      : a(attention), rule(r), offset(diagonal) {
    const kernels::Modifiers& m = a.mod;
    bias_at = b * m.bias.batch + h * m.bias.head;
    mask_at = b * m.mask.batch + h * m.mask.head;
    // The rows past the last sequence, which has number `batch`, have no scores.
    if (rule.alibi && b < a.batch) slope = isa::ld_global(rule.alibi + b * m.alibi_batch + h);
    if (m.keep_threshold != 0) {
      stream = core::dropout_stream(m.state ? isa::ld_global(m.state) : m.seed,
                                    m.state ? isa::ld_global(m.state + 1) : m.offset,
                                    static_cast<u64>(b) * a.heads + h);
    }
  }

  // Of query i and key j, which the band leaves visible, from q.k. *slope_of_cap receives the
  // derivative of the softcap.
  STROBE_DEVICE R score(R dot, int i, int j, R* slope_of_cap = nullptr) const {
    const kernels::Modifiers& m = a.mod;
    R s = dot * rule.scale;
    if (rule.softcap > 0) {
      const R t = tanh_of(s / rule.softcap);
      if (slope_of_cap) *slope_of_cap = 1 - t * t;
      s = rule.softcap * t;
    }
    if (rule.alibi) {
      const int distance = i + offset - j;
      s -= slope * static_cast<R>(distance < 0 ? -distance : distance);
    }
    if (m.bias.data) {
      const i64 at = bias_at + i * m.bias.row + j;
      s += m.bias.is_f32 ? isa::ld_global(static_cast<const f32*>(m.bias.data) + at)
                         : to_real(isa::ld_global(static_cast<const T*>(m.bias.data) + at));
    }
    if (m.mask.data &&
        isa::ld_global(static_cast<const u8*>(m.mask.data) + mask_at + i * m.mask.row + j) == 0) {
      s = minus_infinity<R>();
    }
    isa::count(core::Op::kOther);
    return s;
  }

  STROBE_DEVICE bool kept(int i, int j) const {
    const core::PhiloxBlock bits =
        core::dropout_bits(stream, static_cast<u32>(i), static_cast<u32>(j / 8));
    // core::dropout_draw() by selection: an index would put the four words into memory.
    const bool low = j % 8 < 4, first = j % 4 < 2;
    const u32 word =
        low ? (first ? bits.word[0] : bits.word[1]) : (first ? bits.word[2] : bits.word[3]);
    return ((word >> (16 * (j % 2))) & 0xFFFFu) >= a.mod.keep_threshold;
  }
  // What P counts: 1 / (1 - p) or 0.
  STROBE_DEVICE R keep_factor(int i, int j) const {
    if (a.mod.keep_threshold == 0) return rule.keep_scale;  // 1 without dropout; p may be tiny
    return kept(i, j) ? rule.keep_scale : R{0};
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_GENERIC_MATH_H_
