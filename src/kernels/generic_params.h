// Parameters of the generic kernels.
#ifndef STROBE_SRC_KERNELS_GENERIC_PARAMS_H_
#define STROBE_SRC_KERNELS_GENERIC_PARAMS_H_

#include "kernels/params.h"

namespace strobe::kernels {

// A generic row serves element type `dtype` and head dimensions up to max_dim. Its CTA owns a tile
// of own_rows rows (of queries, or of keys) and walks over the other side in tiles of 64.
struct GenericConfig {
  core::Dtype dtype;
  int max_dim;   // 128 or 512
  int own_rows;  // 64 or 32: fewer where a row's accumulator is long
};
STROBE_HOST_DEVICE constexpr GenericConfig generic_config(core::Dtype dtype, int max_dim) {
  return {dtype, max_dim, max_dim <= 128 ? 64 : 32};
}

// Elements of dBias that a CTA owns.
constexpr int kDbiasRows = 64, kDbiasKeys = 64;

struct GenericForwardParams {
  ForwardParams f;
  u64 tiles;  // generic_tiles() of the queries, times heads
};

struct GenericBackwardParams {
  Gradients g;
  u64 tiles;       // of the pass: see each
  f32* delta;      // workspace [heads, rows of q]: D_i
  f32* sink_term;  // workspace, likewise: -exp(sink - LSE_i) D_i; null: no dSink
  i64 delta_head;  // rows of q
  // dBias: sizes [batch|1, heads|1, seqlen_q|1, seqlen_k].
  i64 bias_batch, bias_heads;
  int bias_rows, bias_keys;
};

// Tiles of `own_rows` rows that cover the queries (or keys) of all sequences of one head. Varlen
// sequences begin wherever they do, each with tiles of its own: sequence b's first is number
// cu[b] / own_rows + b, which leaves it enough before the next one's. The rows past the last
// sequence count as one more sequence.
STROBE_HOST_DEVICE constexpr u64 generic_tiles(bool varlen, i64 batch, i64 seqlen, i64 total,
                                               int own_rows) {
  return static_cast<u64>(varlen ? total / own_rows + batch + 1
                                 : batch * core::ceil_div<i64>(seqlen, own_rows));
}

}  // namespace strobe::kernels

#endif  // STROBE_SRC_KERNELS_GENERIC_PARAMS_H_
