// The online softmax (FlashAttention-1, algorithm 1; FlashAttention-2, section 3.1): running row
// maxima m and sums l, with an un-normalised O that is rescaled when a maximum grows.
//
// Rescaling is lazy (FlashAttention-4, section on conditional rescaling): as long as no row of the
// warp has grown by more than kLazy = 8 in units of log2, the old maximum stays, P is at most 2^8,
// and O is left alone. The result is the same up to rounding, because l and O are relative to the
// same m, whatever it is.
#ifndef STROBE_SRC_TILE_ONLINE_SOFTMAX_H_
#define STROBE_SRC_TILE_ONLINE_SOFTMAX_H_

#include "isa/isa.h"
#include "tile/fragment.h"

namespace strobe::STROBE_TARGET {

constexpr f32 kLog2e = 1.44269504088896341f, kLn2 = 0.693147180559945309f;

// kRows: rows of one lane, each shared with the other three lanes of its quad.
//
// kUnits: of m. kLog2 saves an operation for each score; kNatural, for scores whose scale is 1,
// takes all that float32 holds, such as those of a bias of the lowest number, which times log2(e)
// is -inf.
enum class Units { kLog2, kNatural };

template <int kRows, Units kUnits = Units::kLog2>
struct OnlineSoftmax {
  static constexpr bool kNatural = kUnits == Units::kNatural;
  static constexpr f32 kLazy = kNatural ? 8.0f * kLn2 : 8.0f;

  f32 m[kRows];  // scaled, in kUnits, after finish() natural; -inf while a row has seen nothing
                 // else
  f32 l[kRows];  // of this lane's columns only, until finish()
  f32 scale_log2;

  STROBE_DEVICE explicit OnlineSoftmax(f32 scale) : scale_log2(scale * kLog2e) {
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      m[i] = -core::infinity();
      l[i] = 0;
    }
  }

  // Takes the maxima of S into account. True, for all lanes of the warp, when some m moved: then l
  // has been rescaled, and O must be, by rescale(), before anything relative to the new m joins it.
  template <int kM, int kN>
  STROBE_DEVICE bool update_max(Accumulator<kM, kN>& s, Here here = {}) {
    f32 top[kRows];
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) top[i] = -core::infinity();
    s.for_each([&](f32 x, int i, int) { top[i] = isa::max(top[i], x); });
    isa::count(core::Op::kMax, kRows * kN / 4);

    // Of this lane's columns: the vote decides, so the quad need not agree yet.
    bool grown = false;
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) grown |= in_units(top[i]) > m[i] + kLazy;
    if (!isa::vote_any(grown, here)) return false;
    move(top, here);
    return true;
  }

  // O *= exp(m_old - m_new), after update_max() returned true.
  template <int kM, int kD>
  STROBE_DEVICE void rescale(Accumulator<kM, kD>& o) const {
    o.for_each([&](f32& x, int i, int) { x *= factor[i]; });
    isa::count(core::Op::kRescale, kRows * kD / 4);
  }

  // S becomes P = exp(scale (S - m)), and l follows, for the `part`-th of `parts` equal shares of
  // this lane's elements.
  template <int kParts, int kM, int kN>
  STROBE_DEVICE void exponentiate(Accumulator<kM, kN>& s, int part) {
    f32 reference[kRows];
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) reference[i] = m[i] == -core::infinity() ? 0.0f : m[i];
    constexpr int kPairs = kM / 16 * kN / 8 * 2;  // elements side by side in a row
    STROBE_UNROLL
    for (int e = part * kPairs / kParts; e < (part + 1) * kPairs / kParts; ++e) {
      const int tile = e / 2, half = e % 2;
      const int mt = tile % (kM / 16), i = 2 * mt + half;
      auto& x = s.x[mt][tile / (kM / 16)];
      STROBE_UNROLL
      for (int r = 2 * half; r < 2 * half + 2; ++r) {
        x[r] = isa::ex2(kNatural ? (x[r] - reference[i]) * kLog2e
                                 : isa::fma(x[r], scale_log2, -reference[i]));
        l[i] += x[r];
      }
      isa::count(core::Op::kScale, 2);
      isa::count(core::Op::kSum, 2);
    }
  }

  // The sums of whole rows.
  STROBE_DEVICE void finish(Here here = {}) {
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      l[i] += isa::shfl_xor(l[i], 1, here);
      l[i] += isa::shfl_xor(l[i], 2, here);
      if constexpr (!kNatural) m[i] *= kLn2;
      factor[i] = 1.0f;
    }
  }

  // One more logit, in natural units, that has no value vector. After finish(). l becomes relative
  // to the larger of m and the sink, so that neither overflows.
  STROBE_DEVICE void add_sink(int i, f32 sink) {
    if (sink <= m[i]) {
      if (sink != -core::infinity()) l[i] += isa::ex2((sink - m[i]) * kLog2e);
    } else {
      factor[i] = m[i] == -core::infinity() ? 0.0f : isa::ex2((m[i] - sink) * kLog2e);
      l[i] = isa::fma(l[i], factor[i], 1.0f);
      m[i] = sink;
    }
  }

  // log(sum of exp(scale S)); -inf for a row that saw no key. After finish(), as inverse().
  STROBE_DEVICE f32 lse(int i) const {
    return l[i] == 0.0f ? -core::infinity() : isa::fma(isa::lg2(l[i]), kLn2, m[i]);
  }
  // What O is to be multiplied by.
  STROBE_DEVICE f32 inverse(int i) const {
    return l[i] == 0.0f ? 0.0f : factor[i] * isa::rcp(l[i]);
  }

 private:
  f32 factor[kRows];  // of O: that of the last move; after finish(), that of the sink

  STROBE_DEVICE f32 in_units(f32 s) const { return kNatural ? s : s * scale_log2; }

  // The new maxima, agreed upon by each quad. Rare.
  STROBE_DEVICE void move(f32 (&top)[kRows], Here here) {
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      top[i] = isa::max(top[i], isa::shfl_xor(top[i], 1, here));
      top[i] = isa::max(top[i], isa::shfl_xor(top[i], 2, here));
      const f32 old = m[i];
      m[i] = isa::max(old, in_units(top[i]));
      // From a first finite maximum on: nothing has been summed yet.
      factor[i] =
          old == -core::infinity() ? 0.0f : isa::ex2(kNatural ? (old - m[i]) * kLog2e : old - m[i]);
      l[i] *= factor[i];
    }
    isa::count(core::Op::kRescale, kRows);
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_TILE_ONLINE_SOFTMAX_H_
