// Which query and head a row of a query tile is. With pack > 1 the heads of a GQA group lie side by
// side: row r is query r / pack of the group's head r % pack, and all rows share K and V.
#ifndef STROBE_SRC_TILE_TILE_ROWS_H_
#define STROBE_SRC_TILE_TILE_ROWS_H_

#include "core/sequence.h"
#include "isa/isa.h"
#include "kernels/params.h"

namespace strobe::STROBE_TARGET {

using kernels::Attention;
using kernels::TensorArg;

template <class Int>
STROBE_DEVICE Int clamp(Int x, Int low, Int high) {
  return x < low ? low : x > high ? high : x;
}

// Sequence b as the tensors and the lengths in device memory have it.
STROBE_DEVICE core::Sequence sequence(const Attention& a, int b, Here here = {}) {
  const kernels::Lengths& n = a.lengths;
  core::Sequence s = {0, 0, n.seqlen_q, n.seqlen_k, n.seqlen_q, a.band};
  if (n.cu_q) {
    s.q_begin = clamp<i64>(isa::ld_global(n.cu_q + b, here), 0, n.total_q);
    s.k_begin = clamp<i64>(isa::ld_global(n.cu_k + b, here), 0, n.total_k);
    const i64 q_end = clamp<i64>(isa::ld_global(n.cu_q + b + 1, here), s.q_begin, n.total_q);
    const i64 k_end = clamp<i64>(isa::ld_global(n.cu_k + b + 1, here), s.k_begin, n.total_k);
    // Bias and mask have no rows and columns beyond the stated bounds.
    s.rows_q = s.len_q = static_cast<int>(clamp<i64>(q_end - s.q_begin, 0, n.seqlen_q));
    s.len_k = static_cast<int>(clamp<i64>(k_end - s.k_begin, 0, n.seqlen_k));
  }
  if (n.used_q) s.len_q = clamp(isa::ld_global(n.used_q + b, here), 0, s.len_q);
  if (n.used_k) s.len_k = clamp(isa::ld_global(n.used_k + b, here), 0, s.len_k);
  if (a.auto_offset) s.band.offset = s.len_k - s.len_q;
  return s;
}

// One tile of query rows: sequence, heads and rows.
struct QueryTile {
  core::Sequence seq;
  int b;
  int head;  // first query head
  int kv_head;
  int pack;
  int first_row;  // packed row of the tile's row 0; planners keep packed rows below 2^31

  STROBE_DEVICE QueryTile(const Attention& a, u32 block, u32 head_batch, int rows, Here here = {}) {
    b = static_cast<int>(head_batch / static_cast<u32>(a.packed_heads));
    const int packed_head = static_cast<int>(head_batch) - b * a.packed_heads;
    pack = a.pack;
    head = packed_head * a.pack;
    kv_head = a.pack == a.ratio ? packed_head : head / a.ratio;
    seq = sequence(a, b, here);
    first_row = static_cast<int>(block) * rows;
  }

  // Query and head of a row of the tile.
  STROBE_DEVICE int query(int row) const {
    return pack == 1 ? first_row + row : (first_row + row) / pack;
  }
  STROBE_DEVICE int head_of(int row) const {
    return pack == 1 ? head : head + (first_row + row) % pack;
  }
  STROBE_DEVICE int last_query(int rows) const { return core::min(query(rows - 1), seq.len_q - 1); }

  // Element 0 of query i of head h in a tensor [batch, seq, head, dim].
  STROBE_DEVICE i64 offset(const kernels::Strides& s, int i, int h) const {
    return b * s.batch + (seq.q_begin + i) * s.seq + h * s.head;
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_TILE_TILE_ROWS_H_
