// Which rows of the tensors belong to sequence b, and which keys its queries see.
#ifndef STROBE_SRC_CORE_SEQUENCE_H_
#define STROBE_SRC_CORE_SEQUENCE_H_

#include "core/band.h"

namespace strobe::core {

struct Sequence {
  i64 q_begin, k_begin;  // first rows; 0 unless varlen
  i64 len_q, len_k;
  i64 rows_q;  // rows that the tensors have for it: those from len_q on hold no query
  BandMask band;
};

// Keys [begin, end) of a tile: what some row sees, and what every row sees.
struct TileKeys {
  KeyRange any, all;
};

// Of queries first to last, both seen by some key range that never decreases.
STROBE_HOST_DEVICE constexpr TileKeys tile_keys(const Sequence& s, i64 first, i64 last) {
  const KeyRange a = s.band.keys(first, s.len_k), b = s.band.keys(last, s.len_k);
  return {{a.begin, b.end}, {b.begin, a.end}};
}

}  // namespace strobe::core

#endif  // STROBE_SRC_CORE_SEQUENCE_H_
