// Parameters of standard attention's kernels: one kernel per operation, S and P in device memory.
//
// S (in backward dP) and P are matrices [batch, heads, seqlen_q, columns], columns = seqlen_k
// rounded up to 8. P is of the problem's dtype, as in the papers. S is float32: rounded to 16 bits
// it would cost more accuracy than docs/numerics.md allows (at |S| = 100 the spacing of bfloat16 is
// 0.5, a factor 1.3 of P). The papers' and PyTorch's 16-bit S is a config of its own, for counting.
#ifndef STROBE_SRC_KERNELS_STANDARD_CONFIG_H_
#define STROBE_SRC_KERNELS_STANDARD_CONFIG_H_

#include "kernels/params.h"

namespace strobe::kernels {

// Which operation's layout: how X and Y lie relative to Z = X Y. Sums are over `inner`.
enum class Product {
  kQueriesKeys,  // S = Q K^T, dP = dO V^T     Z queries x keys,  inner: dim    X, Y: rows
  kQueriesDim,   // O = P V,   dQ = dS K       Z queries x dim,   inner: keys   Y: columns
  kKeysDim,      // dV = P^T dO, dK = dS^T Q   Z keys x dim, inner: queries     X, Y: columns
};

struct MatmulConfig {
  core::Dtype dtype;  // of X and Y
  core::Dtype out;    // of Z
  Product product;
  int head_dim;  // of the row: head dims up to it
  int block_m, block_n, block_k;
};

STROBE_HOST_DEVICE constexpr MatmulConfig standard_matmul_config(core::Dtype dtype, core::Dtype out,
                                                                 Product product, int head_dim) {
  return {dtype, out, product, head_dim, 128, product == Product::kQueriesKeys ? 128 : head_dim,
          64};
}

struct MatmulParams {
  Attention a;
  TensorArg x, y, z;                 // a matrix's `seq` stride is that of its rows
  int x_vector, y_vector, z_vector;  // 1: rows start at, and hold whole, 16 bytes
  int dim;                           // head_dim or head_dim_v, whichever takes part
  int columns;                       // of S and P
  f32 scale;                         // of Z
  u32 blocks_m, blocks_n;            // tiles of Z, per head
};

// Columns of a row that stay in shared memory: as many as leave room for four CTAs.
constexpr int kStandardCachedColumns = 6144;

enum class RowOperation { kMask, kSoftmax, kDropout, kScoreGradients };

struct RowsConfig {
  core::Dtype dtype;   // of P and dS
  core::Dtype scores;  // of S and dP
  RowOperation operation;
};

struct RowsParams {
  Attention a;
  void* scores;   // S or dP
  void* p;        // P; dS takes its place
  void* dropped;  // P times the dropout factors
  f32* lse;       // null: not wanted
  Strides lse_stride;
  TensorArg o, dout;  // of backward, as is dlse
  const f32* dlse;    // null: zero
  Strides dlse_stride;
  int columns;
  int cached;  // columns that softmax keeps in shared memory between passes; a multiple of 8
};

}  // namespace strobe::kernels

#endif  // STROBE_SRC_KERNELS_STANDARD_CONFIG_H_
