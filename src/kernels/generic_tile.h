// Building blocks of the generic kernels: which rows a CTA owns, and float32 products of tiles that
// pass through shared memory in chunks, so that any head dimension, stride and alignment does.
//
// 256 threads are 16 x 16: thread (ty, tx) holds, of a product tile, rows ty + 16 i, and columns
// tx + 16 j (scores) or 64 c + 4 tx + r (outputs). The 16 threads of a row are half a warp.
#ifndef STROBE_SRC_KERNELS_GENERIC_TILE_H_
#define STROBE_SRC_KERNELS_GENERIC_TILE_H_

#include "kernels/generic_math.h"
#include "kernels/generic_params.h"
#include "tile/tile_rows.h"

namespace strobe::STROBE_TARGET {

using kernels::generic_config;
using kernels::GenericConfig;

constexpr int kGenericThreads = 256;
constexpr int kOtherRows = 64;  // rows of the other side per step

// The rows of one side that a CTA owns: [first, first + own_rows) of sequence b.
struct OwnedRows {
  core::Sequence seq;
  int b;       // `batch`: the rows past the last sequence, which has length 0 in `seq`
  i64 begin;   // first row of the sequence in a packed tensor; 0 unless varlen
  int rows;    // that the tensors have for this sequence
  int length;  // of these, in use
  int first;

  STROBE_DEVICE bool valid() const { return first >= 0 && first < rows; }
};

// The owner of tile t of generic_tiles(), on the side of the keys or of the queries.
STROBE_DEVICE OwnedRows owned_rows(const Attention& a, bool keys, u64 t, int own_rows) {
  const kernels::Lengths& n = a.lengths;
  const int* cu = keys ? n.cu_k : n.cu_q;
  OwnedRows o = {};
  if (cu) {
    const i64 total = keys ? n.total_k : n.total_q;
    const auto begin = [&](int b) { return clamp<i64>(isa::ld_global(cu + b), 0, total); };
    const auto tile = [&](int b) { return begin(b) / own_rows + b; };
    int last = a.batch;
    while (o.b < last) {
      const int middle = o.b + (last - o.b + 1) / 2;
      if (tile(middle) <= static_cast<i64>(t)) {
        o.b = middle;
      } else {
        last = middle - 1;
      }
    }
    o.begin = begin(o.b);
    o.first = static_cast<int>((static_cast<i64>(t) - tile(o.b)) * own_rows);
    o.rows = static_cast<int>((o.b == a.batch ? total : begin(o.b + 1)) - o.begin);
  } else {
    o.rows = keys ? n.seqlen_k : n.seqlen_q;
    const auto per_sequence = static_cast<u64>(ceil_div(o.rows, own_rows));
    o.b = static_cast<int>(t / per_sequence);
    o.first = static_cast<int>(t % per_sequence) * own_rows;
  }
  if (o.b < a.batch) o.seq = sequence(a, o.b);
  o.length = keys ? o.seq.len_k : o.seq.len_q;
  return o;
}

// Queries [begin, end) of which some may see a key of [first_key, last_key].
STROBE_DEVICE core::Keys32 queries_of(const core::Sequence& s, int first_key, int last_key) {
  const auto far = [](int x) { return static_cast<i64>(core::Band32::clamp_far(x)); };
  const i64 offset = far(s.band.offset);
  const i64 begin = s.band.right < 0 ? 0 : first_key - offset - far(s.band.right);
  const i64 end = s.band.left < 0 ? s.len_q : last_key - offset + far(s.band.left) + 1;
  return {static_cast<int>(clamp<i64>(begin, 0, s.len_q)),
          static_cast<int>(clamp<i64>(end, 0, s.len_q))};
}

STROBE_DEVICE i64 offset_of(const kernels::Strides& s, int b, i64 row, int h) {
  return b * s.batch + row * s.seq + h * s.head;
}
template <class T>
STROBE_DEVICE T* row_at(const TensorArg& t, int b, i64 row, int h) {
  return static_cast<T*>(t.data) + offset_of(t.stride, b, row, h);
}

// Products of tiles of own_rows x 64 scores.
template <int kOwn, int kMaxDim>
struct GenericTile {
  static constexpr int kRows = kOwn / 16;       // of one thread
  static constexpr int kChunks = kMaxDim / 64;  // of outputs
  static constexpr int kDepth = 32;             // of the head dimension per step of scores
  static constexpr int kPitch = kDepth + 4;     // odd in units of 16 bytes: no bank conflicts
  static constexpr int kWidePitch = 64 + 4;
  static constexpr u32 kStageBytes =
      4 * core::max((kOwn + kOtherRows) * kPitch, kOtherRows* kWidePitch);
  static constexpr u32 kWeightBytes = 4 * kOwn * kWidePitch;
  STROBE_HOST_DEVICE static constexpr int shared_bytes(int weight_tiles) {
    return static_cast<int>(kStageBytes + static_cast<u32>(weight_tiles) * kWeightBytes);
  }
  using Scores = f32[kRows][4];
  using Output = f32[kRows][kChunks][4];

  const u32 tx = isa::thread_id() % 16, ty = isa::thread_id() / 16;

  STROBE_DEVICE int row(int i) const { return static_cast<int>(ty) + 16 * i; }
  STROBE_DEVICE int col(int j) const { return static_cast<int>(tx) + 16 * j; }

  STROBE_DEVICE static void clear(Scores& s) {
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      STROBE_UNROLL
      for (int j = 0; j < 4; ++j) s[i][j] = 0;
    }
  }
  STROBE_DEVICE static void clear(Output& o) {
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      STROBE_UNROLL
      for (int c = 0; c < kChunks; ++c) {
        STROBE_UNROLL
        for (int r = 0; r < 4; ++r) o[i][c][r] = 0;
      }
    }
  }

  // S = own rows times other rows, transposed. own(r), other(r) -> first element of row r, or null
  // where it counts as zeros.
  template <class T, class Own, class Other>
  STROBE_DEVICE void scores(Scores& s, Own own, Other other, int dim) const {
    const u32 own_at = isa::shared_base(), other_at = own_at + 4 * kOwn * kPitch;
    clear(s);
    STROBE_NO_UNROLL
    for (int x0 = 0; x0 < dim; x0 += kDepth) {
      isa::cta_sync();  // the stage is read by nobody
      load<T, kOwn, kDepth, kPitch>(own_at, own, x0, dim);
      load<T, kOtherRows, kDepth, kPitch>(other_at, other, x0, dim);
      isa::cta_sync();
      const int depth = core::min(kDepth, (dim - x0 + 3) / 4 * 4);
      STROBE_NO_UNROLL
      for (int x = 0; x < depth; x += 4) {
        f32x4 a[kRows], b[4];
        STROBE_UNROLL
        for (int i = 0; i < kRows; ++i) {
          a[i] = isa::ld_shared<f32x4>(own_at + 4 * (row(i) * kPitch + x));
        }
        STROBE_UNROLL
        for (int j = 0; j < 4; ++j) {
          b[j] = isa::ld_shared<f32x4>(other_at + 4 * (col(j) * kPitch + x));
        }
        STROBE_UNROLL
        for (int i = 0; i < kRows; ++i) {
          STROBE_UNROLL
          for (int j = 0; j < 4; ++j) {
            STROBE_UNROLL
            for (int y = 0; y < 4; ++y) s[i][j] += a[i][y] * b[j][y];
          }
        }
      }
    }
  }

  // Shared address of an element of weight tile n. Scores become weights there, element by element
  // in rolled loops: their code is long, and registers could not be indexed.
  STROBE_DEVICE static u32 weight_at(int n, int row, int col) {
    return isa::shared_base() + kStageBytes + static_cast<u32>(n) * kWeightBytes +
           4 * static_cast<u32>(row * kWidePitch + col);
  }

  // Puts scores into weight tile n. Its rows are written and read by the same half warp.
  STROBE_DEVICE void keep(int n, const Scores& s) const {
    isa::warp_sync();  // the rows are read by nobody
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      STROBE_UNROLL
      for (int j = 0; j < 4; ++j) isa::st_shared(weight_at(n, row(i), col(j)), s[i][j]);
    }
  }

  // O += weight tile n times the first `count` other rows.
  template <class T, class Other>
  STROBE_DEVICE void add_product(Output& o, int n, Other other, int count, int dim) const {
    const u32 stage = isa::shared_base();
    STROBE_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      if (64 * c >= dim) break;
      isa::cta_sync();  // the stage is read by nobody; the weights are there
      load<T, kOtherRows, 64, kWidePitch>(stage, other, 64 * c, dim);
      isa::cta_sync();
      STROBE_NO_UNROLL
      for (int k = 0; k < count; k += 4) {
        f32x4 p[kRows], v[4];
        STROBE_UNROLL
        for (int i = 0; i < kRows; ++i) p[i] = isa::ld_shared<f32x4>(weight_at(n, row(i), k));
        STROBE_UNROLL
        for (int y = 0; y < 4; ++y) {
          v[y] = isa::ld_shared<f32x4>(stage + 4 * ((k + y) * kWidePitch + 4 * tx));
        }
        STROBE_UNROLL
        for (int y = 0; y < 4; ++y) {
          STROBE_UNROLL
          for (int i = 0; i < kRows; ++i) {
            STROBE_UNROLL
            for (int r = 0; r < 4; ++r) o[i][c][r] += p[i][y] * v[y][r];
          }
        }
      }
    }
  }

  // Rows of O times factor(i), exactly 0 where that is, to to(row), the row's first element, unless
  // it is null.
  template <class T, class To, class Factor>
  STROBE_DEVICE void store(const Output& o, To to, Factor factor, int dim) const {
    STROBE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      T* out = to(row(i));
      if (!out) continue;
      const f32 f = factor(i);
      STROBE_UNROLL
      for (int c = 0; c < kChunks; ++c) {
        STROBE_UNROLL
        for (int r = 0; r < 4; ++r) {
          const int x = 64 * c + 4 * static_cast<int>(tx) + r;
          if (x < dim) isa::st_global(out + x, from_real<T>(f == 0 ? 0.0f : o[i][c][r] * f));
        }
      }
    }
  }

  // Element i of values in registers.
  STROBE_DEVICE static f32 pick(const f32 (&x)[kRows], int i) {
    f32 y = x[0];
    STROBE_UNROLL
    for (int n = 1; n < kRows; ++n) y = n == i ? x[n] : y;
    return y;
  }
  STROBE_DEVICE static void place(f32 (&x)[kRows], int i, f32 y) {
    STROBE_UNROLL
    for (int n = 0; n < kRows; ++n) x[n] = n == i ? y : x[n];
  }

  // Over the 16 threads of each row.
  STROBE_DEVICE static f32 row_max(f32 x) {
    STROBE_UNROLL
    for (u32 lanes = 1; lanes < 16; lanes *= 2) x = isa::max(x, isa::shfl_xor(x, lanes));
    return x;
  }
  STROBE_DEVICE static f32 row_sum(f32 x) {
    STROBE_UNROLL
    for (u32 lanes = 1; lanes < 16; lanes *= 2) x += isa::shfl_xor(x, lanes);
    return x;
  }

 private:
  // Columns [x0, x0 + kCols) of kN rows, as float32, zeros beyond dim.
  template <class T, int kN, int kCols, int kRowPitch, class Rows>
  STROBE_DEVICE static void load(u32 to, Rows rows, int x0, int dim) {
    constexpr int kPerStep = kGenericThreads / kCols, kAtOnce = 4;
    static_assert(kN % (kAtOnce * kPerStep) == 0);
    const int x = static_cast<int>(isa::thread_id() % kCols);
    const int first = static_cast<int>(isa::thread_id() / kCols);
    STROBE_NO_UNROLL
    for (int n = 0; n < kN / kPerStep; n += kAtOnce) {
      f32 value[kAtOnce];
      STROBE_UNROLL
      for (int y = 0; y < kAtOnce; ++y) {
        const T* from = rows(first + (n + y) * kPerStep);
        value[y] = from && x0 + x < dim ? to_real(isa::ld_global(from + x0 + x)) : 0.0f;
      }
      STROBE_UNROLL
      for (int y = 0; y < kAtOnce; ++y) {
        const int r = first + (n + y) * kPerStep;
        isa::st_shared(to + 4 * static_cast<u32>(r * kRowPitch + x), value[y]);
      }
    }
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_GENERIC_TILE_H_
