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
template <int kRows>
struct OnlineSoftmax {
  static constexpr f32 kLazy = 8.0f;

  f32 m[kRows];  // in units of S
  f32 l[kRows];  // of this lane's columns only, until finish()
  f32 scale_log2;

  STROBE_DEVICE explicit OnlineSoftmax(f32 scale) : scale_log2(scale * kLog2e) {
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      m[i] = -core::infinity();
      l[i] = 0;
    }
  }

  // S becomes P = exp(scale (S - m)); l follows; O is rescaled where m moves.
  template <int kM, int kN, int kD>
  STROBE_DEVICE void step(Accumulator<kM, kN>& s, Accumulator<kM, kD>& o, Here here = {}) {
    f32 top[kRows];
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) top[i] = m[i];
    s.for_each([&](f32 x, int i, int) { top[i] = isa::max(top[i], x); });
    isa::count(core::Op::kMax, kRows * kN / 4);

    // Of this lane's columns: the vote decides, so the quad need not agree yet.
    bool grown = false;
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i)
      grown |= !((top[i] - m[i]) * scale_log2 <= kLazy) && top[i] != m[i];
    if (isa::vote_any(grown, here)) move(top, o, here);

    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) top[i] = reference(i) * scale_log2;
    s.for_each([&](f32& x, int i, int) {
      x = isa::ex2(isa::fma(x, scale_log2, -top[i]));
      l[i] += x;
    });
    isa::count(core::Op::kScale, kRows * kN / 4);
    isa::count(core::Op::kSum, kRows * kN / 4);
  }

  // What P is relative to: m, or 0 while the row has seen nothing but -inf.
  STROBE_DEVICE f32 reference(int i) const { return m[i] == -core::infinity() ? 0.0f : m[i]; }

  // The sums of whole rows.
  STROBE_DEVICE void finish(Here here = {}) {
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      l[i] += isa::shfl_xor(l[i], 1, here);
      l[i] += isa::shfl_xor(l[i], 2, here);
    }
  }

  // One more logit, in natural units, that has no value vector. After finish().
  STROBE_DEVICE void add_sink(int i, f32 sink) {
    if (m[i] == -core::infinity()) {
      m[i] = sink / (scale_log2 * kLn2);
      l[i] = sink == -core::infinity() ? 0.0f : 1.0f;
    } else {
      l[i] += isa::ex2(isa::fma(sink, kLog2e, -m[i] * scale_log2));
    }
  }

  // log(sum of exp(scale S)); -inf for a row that saw no key.
  STROBE_DEVICE f32 lse(int i) const {
    return l[i] == 0.0f ? -core::infinity()
                        : isa::fma(isa::lg2(l[i]), kLn2, m[i] * scale_log2 * kLn2);
  }
  STROBE_DEVICE f32 inverse(int i) const { return l[i] == 0.0f ? 0.0f : isa::rcp(l[i]); }

 private:
  // The new maxima, agreed upon by each quad; O and l follow. Rare.
  template <int kM, int kD>
  STROBE_DEVICE void move(f32 (&top)[kRows], Accumulator<kM, kD>& o, Here here) {
    f32 rescale[kRows];
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      top[i] = isa::max(top[i], isa::shfl_xor(top[i], 1, here));
      top[i] = isa::max(top[i], isa::shfl_xor(top[i], 2, here));
      // A first finite maximum: nothing has been summed yet.
      rescale[i] = m[i] == -core::infinity() ? 0.0f : isa::ex2((m[i] - top[i]) * scale_log2);
      m[i] = top[i];
      l[i] *= rescale[i];
    }
    o.for_each([&](f32& x, int i, int) { x *= rescale[i]; });
    isa::count(core::Op::kRescale, kRows * (kD / 4 + 1));
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_TILE_ONLINE_SOFTMAX_H_
