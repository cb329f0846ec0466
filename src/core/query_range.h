// Which queries see some key of a block: the inverse of BandMask::keys.
#ifndef STROBE_SRC_CORE_QUERY_RANGE_H_
#define STROBE_SRC_CORE_QUERY_RANGE_H_

#include "core/sequence.h"

namespace strobe::core {

// Queries [begin, end).
struct QueryRange {
  int begin, end;
  STROBE_HOST_DEVICE constexpr bool empty() const { return begin >= end; }
};

STROBE_HOST_DEVICE constexpr int to_int(i64 x, int high) {
  return x < 0 ? 0 : x > high ? high : static_cast<int>(x);
}

// Of keys [begin, end) of the sequence. Key j is seen by query i iff
// i + offset - left <= j <= i + offset + right.
STROBE_HOST_DEVICE constexpr QueryRange queries(const Sequence& s, int begin, int end) {
  if (end > s.len_k) end = s.len_k;
  if (begin >= end) return {0, 0};
  const Band32& b = s.band;
  const i64 offset = Band32::clamp_far(b.offset);
  const i64 first = b.right < 0 ? 0 : i64{begin} - offset - Band32::clamp_far(b.right);
  const i64 last = b.left < 0 ? s.len_q - 1 : i64{end} - 1 - offset + Band32::clamp_far(b.left);
  return {to_int(first, s.len_q), to_int(last + 1, s.len_q)};
}

}  // namespace strobe::core

#endif  // STROBE_SRC_CORE_QUERY_RANGE_H_
