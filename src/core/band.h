// BandMask: which keys a query sees by position. Causal, windows, query offsets and sequence ends
// are all this one run-time rule; no kernel has a template parameter for any of them.
#ifndef STROBE_SRC_CORE_BAND_H_
#define STROBE_SRC_CORE_BAND_H_

#include "core/portable.h"

namespace strobe::core {

// Keys [begin, end); empty when begin >= end.
template <class Int>
struct BasicKeyRange {
  Int begin;
  Int end;

  STROBE_HOST_DEVICE constexpr bool empty() const { return begin >= end; }
};

// On the CPU positions are 64 bit; GPU kernels count the rows of one sequence in 32.
template <class Int>
struct BasicBandMask {
  // Positions and distances beyond this are clamped to it, so that sums of three cannot overflow.
  static constexpr Int kFar = Int{1} << (8 * sizeof(Int) - 4);

  Int left;    // keys visible before the diagonal; -1 = all
  Int right;   // keys visible after it; -1 = all
  Int offset;  // the diagonal of query i is key i + offset

  STROBE_HOST_DEVICE static constexpr Int clamp_far(Int x) {
    return x > kFar ? kFar : (x < -kFar ? -kFar : x);
  }

  // Keys that query i sees of a sequence of len_k keys: one contiguous range, never decreasing in
  // i.
  STROBE_HOST_DEVICE constexpr BasicKeyRange<Int> keys(Int i, Int len_k) const {
    const Int diagonal = i + clamp_far(offset);
    Int begin = left < 0 ? 0 : diagonal - clamp_far(left);
    Int end = right < 0 ? len_k : diagonal + clamp_far(right) + 1;
    if (begin < 0) begin = 0;
    if (begin > len_k) begin = len_k;
    if (end > len_k) end = len_k;
    if (end < begin) end = begin;
    return {begin, end};
  }
};

using KeyRange = BasicKeyRange<i64>;
using BandMask = BasicBandMask<i64>;

}  // namespace strobe::core

#endif  // STROBE_SRC_CORE_BAND_H_
