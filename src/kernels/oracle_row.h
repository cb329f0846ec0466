// What the row by row kernels share: one warp per row, its lanes side by side over the keys (or
// queries) for the scores, and over the head dimension for the sums.
#ifndef STROBE_SRC_KERNELS_ORACLE_ROW_H_
#define STROBE_SRC_KERNELS_ORACLE_ROW_H_

#include "kernels/generic_math.h"
#include "kernels/oracle_params.h"
#include "tile/tile_rows.h"

namespace strobe::STROBE_TARGET {

using kernels::RowParams;

constexpr int kRowWarps = 4, kRowThreads = kRowWarps * 32;
constexpr int kMaxHeadDim = 512, kPerLane = kMaxHeadDim / 32;

template <class T>
STROBE_DEVICE T* element_at(const TensorArg& t, int b, i64 row, int h) {
  return static_cast<T*>(t.data) + b * t.stride.batch + row * t.stride.seq + h * t.stride.head;
}
STROBE_DEVICE i64 index_of(const kernels::Strides& s, int b, i64 row, int h) {
  return b * s.batch + row * s.seq + h * s.head;
}

// Calls f(item) for the items of this warp; all its lanes take part.
template <class F>
STROBE_DEVICE void for_each_item(u64 items, F f) {
  const u64 stride = static_cast<u64>(isa::grid_size()) * kRowWarps;
  for (u64 n = static_cast<u64>(isa::cta_id()) * kRowWarps + isa::warp_id(); n < items;
       n += stride) {
    f(n);
  }
}

template <class R>
STROBE_DEVICE R shuffle(R x, u32 lanes) {
  if constexpr (sizeof(R) == 4) {
    return isa::shfl_xor(x, lanes);
  } else {
    const u32x2 words = bit_cast<u32x2>(x);
    return bit_cast<R>(u32x2{isa::shfl_xor(words[0], lanes), isa::shfl_xor(words[1], lanes)});
  }
}
template <class R>
STROBE_DEVICE R warp_sum(R x) {
  for (u32 lanes = 1; lanes < kWarpThreads; lanes *= 2) x += shuffle(x, lanes);
  return x;
}
template <class R>
STROBE_DEVICE R warp_max(R x) {
  for (u32 lanes = 1; lanes < kWarpThreads; lanes *= 2) {
    const R y = shuffle(x, lanes);
    x = y > x ? y : x;
  }
  return x;
}

template <class T>
STROBE_DEVICE Real<T> dot(const T* x, const T* y, int dim) {
  Real<T> sum = 0;
  for (int n = 0; n < dim; ++n) {
    sum += to_real(isa::ld_global(x + n)) * to_real(isa::ld_global(y + n));
  }
  return sum;
}

// The definition of the band, element by element, which shares nothing with core/band.h.
STROBE_DEVICE bool in_band(const core::Sequence& s, i64 i, i64 j) {
  const i64 after_diagonal = j - (i + s.band.offset);
  return (s.band.left < 0 || after_diagonal >= -static_cast<i64>(s.band.left)) &&
         (s.band.right < 0 || after_diagonal <= s.band.right);
}

template <class T>
STROBE_DEVICE ScoreRule<Real<T>> row_rule(const RowParams& p) {
  using R = Real<T>;
  return {static_cast<R>(p.scale), static_cast<R>(p.softcap), static_cast<R>(p.keep_scale),
          static_cast<const R*>(p.alibi)};
}

// Which sequence holds row t of a packed tensor, or batch where none does.
STROBE_DEVICE int sequence_holding(const Attention& a, const int* cu, i64 t) {
  int first = 0, last = a.batch;  // the last one that begins at or before t
  while (first < last) {
    const int middle = first + (last - first + 1) / 2;
    if (isa::ld_global(cu + middle) <= t) {
      first = middle;
    } else {
      last = middle - 1;
    }
  }
  return first;
}

// One row of a tensor of queries or keys: item n of heads x batch x rows, varlen heads x total.
struct RowItem {
  core::Sequence seq;
  int b, h;
  i64 row;     // of the tensor
  int index;   // in its sequence
  bool holds;  // not padding

  STROBE_DEVICE RowItem(const Attention& a, bool keys, u64 item) {
    const kernels::Lengths& n = a.lengths;
    const int* cu = keys ? n.cu_k : n.cu_q;
    const u64 rows = cu ? static_cast<u64>(keys ? n.total_k : n.total_q)
                        : static_cast<u64>(keys ? n.seqlen_k : n.seqlen_q);
    const u64 per_head = cu ? rows : rows * static_cast<u64>(a.batch);
    h = static_cast<int>(item / per_head);
    row = static_cast<i64>(item % per_head);
    if (cu) {
      b = sequence_holding(a, cu, row);
    } else {
      b = static_cast<int>(row / static_cast<i64>(rows));
      row %= static_cast<i64>(rows);
    }
    holds = b < a.batch;
    seq = holds ? sequence(a, b) : core::Sequence{};
    const i64 in_sequence = row - (keys ? seq.k_begin : seq.q_begin);
    holds = holds && in_sequence >= 0 && in_sequence < (keys ? seq.len_k : seq.len_q);
    index = static_cast<int>(in_sequence);
  }
};

// 32 values of this warp, for all its lanes, twice.
template <class R>
struct WarpValues {
  static constexpr int kBytes = 2 * 32 * static_cast<int>(sizeof(R));
  u32 base = isa::shared_base() + isa::warp_id() * kBytes;

  // Of this lane. Others read them after share().
  STROBE_DEVICE void put(int which, R x) const {
    isa::st_shared(at(which, static_cast<int>(isa::lane_id())), x);
  }
  STROBE_DEVICE R get(int which, int n) const { return isa::ld_shared<R>(at(which, n)); }
  STROBE_DEVICE void share() const { isa::warp_sync(); }

 private:
  STROBE_DEVICE u32 at(int which, int n) const {
    return base + static_cast<u32>((which * 32 + n) * static_cast<int>(sizeof(R)));
  }
};

// A row of up to 512 sums, one lane's every 32nd.
template <class T>
struct LaneSums {
  using R = Real<T>;
  R x[kPerLane] = {};

  STROBE_DEVICE void scale(R f) {
    STROBE_UNROLL
    for (int c = 0; c < kPerLane; ++c) x[c] *= f;
  }
  STROBE_DEVICE void add(R weight, const T* row, int dim) {
    const int lane = static_cast<int>(isa::lane_id());
    STROBE_UNROLL
    for (int c = 0; c < kPerLane; ++c) {
      if (32 * c + lane < dim) x[c] += weight * to_real(isa::ld_global(row + 32 * c + lane));
    }
  }
  // Times f; exactly 0 where f is.
  STROBE_DEVICE void store(T* row, R f, int dim) const {
    const int lane = static_cast<int>(isa::lane_id());
    STROBE_UNROLL
    for (int c = 0; c < kPerLane; ++c) {
      if (32 * c + lane < dim) {
        isa::st_global(row + 32 * c + lane, from_real<T>(f == 0 ? R{0} : x[c] * f));
      }
    }
  }
};

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_ORACLE_ROW_H_
