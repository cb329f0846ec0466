// Parameters of the GPU kernels, filled in by src/gpu and passed by value. Strides are in elements.
#ifndef STROBE_SRC_KERNELS_PARAMS_H_
#define STROBE_SRC_KERNELS_PARAMS_H_

#include "core/sequence.h"
#include "core/types.h"

namespace strobe::kernels {

using core::f32;
using core::i64;
using core::u32;
using core::u64;
using core::u8;

struct Strides {
  i64 batch, seq, head;
};

// A tensor [batch, seq, head, dim] of the problem's dtype; for varlen batch is unused.
struct TensorArg {
  void* data;
  Strides stride;
};

// Where the sequences of the batch lie. Lengths that come from device memory are clamped, so that
// bad ones never reach outside the declared tensors.
struct Lengths {
  int seqlen_q, seqlen_k;  // of every sequence, or their upper bounds
  i64 total_q, total_k;    // varlen: rows of the packed tensors
  const int* cu_q;         // varlen: [batch + 1]
  const int* cu_k;
  const int* used_q;  // [batch] rows in use of each sequence; may be null
  const int* used_k;
};

// Additive bias or boolean mask: element (b, h, i, j); strides 0 where broadcast.
struct ScoreArg {
  const void* data;  // null: absent
  i64 batch, head, row;
  int is_f32;  // else of the problem's dtype; unused for masks
};

// What changes a score beside scale and band; read by rows with Features::kFull alone.
struct Modifiers {
  f32 softcap;       // 0: none
  const f32* alibi;  // slopes; null: none
  i64 alibi_batch;   // heads, or 0 where all sequences share the slopes
  ScoreArg bias, mask;
  u32 keep_threshold;  // dropout: kept iff draw >= this; 0: no dropout
  f32 keep_scale;      // 1 / (1 - p)
  u64 seed, offset;    // of dropout,
  const u64* state;    // or {seed, offset} in device memory
};

// Everything that all attention kernels need to know of the problem.
struct Attention {
  int batch, heads, kv_heads;
  int ratio;         // heads / kv_heads
  int packed_heads;  // heads / pack
  int head_dim, head_dim_v;
  int pack;          // heads of a group that share a tile: heads / kv_heads, or 1
  int vector_loads;  // 1: every row starts at a multiple of 16 bytes and holds whole ones
  Lengths lengths;
  core::Band32 band;  // offset unused where auto_offset
  int auto_offset;    // 1: the last query is aligned with the last key
  f32 scale;
  const f32* sinks;  // [heads]; null: none
  Modifiers mod;
};

struct ForwardParams {
  Attention a;
  TensorArg q, k, v, o;
  f32* lse;  // null: not wanted
  Strides lse_stride;
  u32 m_blocks;     // tiles per sequence and head (packed heads)
  u32 heads_in_l2;  // heads whose K and V share the level-2 cache
};

// Inputs and results of backward; kernels add their workspace.
struct Gradients {
  Attention a;
  TensorArg q, k, v, o, dout, dq, dk, dv;
  const f32* lse;
  Strides lse_stride;
  const f32* dlse;  // null: zero
  Strides dlse_stride;
  f32* dbias;                              // null: not wanted; zeroed before, then added to
  i64 dbias_batch, dbias_head, dbias_row;  // strides, 0 where the bias broadcasts
  f32* dsinks;                             // [heads]; null: not wanted; zeroed before
};

}  // namespace strobe::kernels

#endif  // STROBE_SRC_KERNELS_PARAMS_H_
