// Which rows of the tensors belong to sequence b, and which keys its queries see.
#ifndef STROBE_SRC_CORE_SEQUENCE_H_
#define STROBE_SRC_CORE_SEQUENCE_H_

#include "core/band.h"

namespace strobe::core {

// Rows within one sequence are 32 bit on GPUs: planners refuse sequences of 2^28 rows and more.
using Band32 = BasicBandMask<int>;
using Keys32 = BasicKeyRange<int>;

struct Sequence {
  i64 q_begin, k_begin;  // first rows; 0 unless varlen
  int len_q, len_k;
  int rows_q;  // rows that the tensors have for it: those from len_q on hold no query
  Band32 band;

  // What query i sees; nothing where there is no query i.
  STROBE_HOST_DEVICE constexpr Keys32 keys(int i) const {
    return i < len_q ? band.keys(i, len_k) : Keys32{0, 0};
  }
};

// Keys [begin, end) of a tile: what some row sees, and what every row sees.
struct TileKeys {
  Keys32 any, all;
};

// Of queries first to last: a key range never decreases with its query.
STROBE_HOST_DEVICE constexpr TileKeys tile_keys(const Sequence& s, int first, int last) {
  const Keys32 a = s.band.keys(first, s.len_k), b = s.band.keys(last, s.len_k);
  return {{a.begin, b.end}, {b.begin, a.end}};
}

}  // namespace strobe::core

#endif  // STROBE_SRC_CORE_SEQUENCE_H_
