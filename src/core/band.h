// BandMask: which keys a query sees by position. Causal, windows, query offsets and sequence ends
// are all this one run-time rule; no kernel has a template parameter for any of them.
#ifndef STROBE_SRC_CORE_BAND_H_
#define STROBE_SRC_CORE_BAND_H_

#include "core/portable.h"

namespace strobe::core {

// Keys [begin, end); empty when begin >= end.
struct KeyRange {
  i64 begin;
  i64 end;

  STROBE_HOST_DEVICE constexpr bool empty() const { return begin >= end; }
};

// Positions and distances beyond this are clamped to it, so that sums of three cannot overflow.
constexpr i64 kFar = i64{1} << 60;

STROBE_HOST_DEVICE constexpr i64 clamp_far(i64 x) {
  return x > kFar ? kFar : (x < -kFar ? -kFar : x);
}

struct BandMask {
  i64 left;    // keys visible before the diagonal; -1 = all
  i64 right;   // keys visible after it; -1 = all
  i64 offset;  // the diagonal of query i is key i + offset

  // Keys that query i sees of a sequence of len_k keys: one contiguous range, never decreasing in
  // i.
  STROBE_HOST_DEVICE constexpr KeyRange keys(i64 i, i64 len_k) const {
    const i64 diagonal = i + clamp_far(offset);
    i64 begin = left < 0 ? 0 : diagonal - clamp_far(left);
    i64 end = right < 0 ? len_k : diagonal + clamp_far(right) + 1;
    if (begin < 0) begin = 0;
    if (begin > len_k) begin = len_k;
    if (end > len_k) end = len_k;
    if (end < begin) end = begin;
    return {begin, end};
  }
};

}  // namespace strobe::core

#endif  // STROBE_SRC_CORE_BAND_H_
