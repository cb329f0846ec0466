// Scores of one panel of queries against a run of keys: S^T = K Q^T, then softcap, ALiBi, bias and
// masks in the order of docs/numerics.md. Used by forward, backward, bias gradient and
// probabilities alike.
#if defined(STROBE_SRC_CPU_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STROBE_SRC_CPU_SCORES_INL_H_
#undef STROBE_SRC_CPU_SCORES_INL_H_
#else
#define STROBE_SRC_CPU_SCORES_INL_H_
#endif

#include <limits>

#include "cpu/gemm-inl.h"
#include "cpu/job.h"
#include "cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strobe::cpu::HWY_NAMESPACE {

// The queries in the lanes of one panel. Lanes from `count` on are empty: their q is 0, they see no
// key and nothing of them is stored.
struct Panel {
  size_t count;
  int64_t i[kPanel];              // query row within the sequence
  int64_t h[kPanel];              // query head
  core::KeyRange keys[kPanel];    // visible by position
  core::KeyRange any;             // union of the keys of all lanes
  core::KeyRange all;             // their intersection: needs no mask
  HWY_ALIGN float slope[kPanel];  // ALiBi
  core::PhiloxBlock stream[kPanel];

  void set_lane(const Job& job, const Sequence& s, size_t lane, PackedRow row) {
    i[lane] = row.i;
    h[lane] = row.h;
    keys[lane] = s.band.keys(row.i, s.len_k);
    slope[lane] = job.slope(s.b, row.h);
    if (job.has_dropout()) stream[lane] = job.dropout_stream(s.b, row.h);
  }

  // To be called once all lanes are set.
  void finish(size_t lanes) {
    count = lanes;
    any = {std::numeric_limits<int64_t>::max(), 0};
    // An empty lane is a query that sees nothing.
    all = {0, lanes < kPanel ? 0 : std::numeric_limits<int64_t>::max()};
    for (size_t lane = 0; lane < lanes; ++lane) {
      if (keys[lane].empty()) {
        all = {0, 0};
        continue;
      }
      any = {std::min(any.begin, keys[lane].begin), std::max(any.end, keys[lane].end)};
      all = {std::max(all.begin, keys[lane].begin), std::min(all.end, keys[lane].end)};
    }
    for (size_t lane = lanes; lane < kPanel; ++lane) {
      keys[lane] = {0, 0};
      slope[lane] = 0;
    }
  }
};

// Rows [begin, end) of a block of keys.
struct RowRange {
  size_t begin, end;
  bool empty() const { return begin >= end; }
};

// The part of `range` that lies in the block of `n` keys from key0 on.
HWY_INLINE RowRange RowsOf(const core::KeyRange& range, int64_t key0, size_t n) {
  const auto clip = [&](int64_t key) {
    return static_cast<size_t>(std::clamp<int64_t>(key - key0, 0, static_cast<int64_t>(n)));
  };
  return {clip(range.begin), clip(range.end)};
}

// A tile of S^T or P^T: row = key, kPanel columns from `data` on, row stride `ld` floats.
struct ScoreTile {
  float* data;
  size_t ld;
  float* row(size_t r) const { return data + r * ld; }
};

// f(row, vectors of the row) -> the new vectors, over rows [begin, end).
template <class F>
HWY_INLINE void MapRows(const ScoreTile& s, RowRange rows, const F& f) {
  const Tag d;
  float* row = s.row(rows.begin);
  const size_t ld =
      s.ld;  // a local: the stores below could change s.ld, for all the compiler knows
  for (size_t r = rows.begin; r < rows.end; ++r, row += ld) {
    hn::Store(f(r, 0, hn::Load(d, row)), d, row);
    hn::Store(f(r, kLanes, hn::Load(d, row + kLanes)), d, row + kLanes);
  }
}

// s = cap * tanh(scale * s / cap); where `slope` is given, it receives the derivative 1 - tanh^2.
HWY_NOINLINE void ApplySoftcap(const ScoreTile& s, RowRange rows, float scale, float cap,
                               const ScoreTile* slope) {
  const Tag d;
  const Vec c = hn::Set(d, cap), inverse = hn::Set(d, scale / cap), one = hn::Set(d, 1.0f);
  MapRows(s, rows, [&](size_t r, size_t lane, Vec x) {
    const Vec t = Tanh(hn::Mul(x, inverse));
    if (slope) {
      hn::Store(hn::Mul(hn::Sub(one, t), hn::Add(one, t)), d, slope->row(r) + lane);
    }
    return hn::Mul(c, t);
  });
}

// s = scale * s - slope * |i + offset - j|.
HWY_NOINLINE void ApplyAlibi(const ScoreTile& s, RowRange rows, float scale, const Panel& panel,
                             int64_t offset, int64_t key0) {
  const Tag d;
  const Vec factor = hn::Set(d, scale);
  HWY_ALIGN float distance[kPanel];  // of key0
  for (size_t lane = 0; lane < kPanel; ++lane) {
    distance[lane] = lane < panel.count ? static_cast<float>(panel.i[lane] + offset - key0) : 0.0f;
  }
  MapRows(s, rows, [&](size_t r, size_t lane, Vec x) {
    const Vec j = hn::Set(d, static_cast<float>(r));
    const Vec away = hn::Abs(hn::Sub(hn::Load(d, distance + lane), j));
    return hn::NegMulAdd(hn::Load(d, panel.slope + lane), away, hn::Mul(x, factor));
  });
}

// s += bias. The bias lies key by key along each lane's row.
HWY_NOINLINE void ApplyBias(const Job& job, const Sequence& seq, const ScoreTile& s, RowRange rows,
                            const Panel& panel, int64_t key0) {
  const strobe_dtype dtype = job.p.bias.dtype;
  const size_t element_bytes = dtype == STROBE_F32 ? 4 : 2;
  constexpr size_t kChunk = 64;
  HWY_ALIGN float row[kChunk];
  for (size_t lane = 0; lane < panel.count; ++lane) {
    const char* from = job.bias.at(seq.b, panel.h[lane], panel.i[lane]);
    for (size_t r = rows.begin; r < rows.end; r += kChunk) {
      const size_t n = std::min(kChunk, rows.end - r);
      LoadRow(dtype, from + (key0 + static_cast<int64_t>(r)) * static_cast<int64_t>(element_bytes),
              n, n, 1.0f, row);
      for (size_t x = 0; x < n; ++x) s.row(r + x)[lane] += row[x];
    }
  }
}

// s = -inf where the boolean mask is false.
HWY_NOINLINE void ApplyMask(const Job& job, const Sequence& seq, const ScoreTile& s, RowRange rows,
                            const Panel& panel, int64_t key0) {
  for (size_t lane = 0; lane < panel.count; ++lane) {
    const char* visible = job.mask.at(seq.b, panel.h[lane], panel.i[lane]) + key0;
    for (size_t r = rows.begin; r < rows.end; ++r) {
      if (!visible[r]) s.row(r)[lane] = -std::numeric_limits<float>::infinity();
    }
  }
}

// s = -inf where the key is not in the lane's range.
HWY_NOINLINE void ApplyBand(const ScoreTile& s, RowRange rows, const Panel& panel, int64_t key0,
                            size_t n) {
  const Tag d;
  HWY_ALIGN float begin[kPanel], end[kPanel];  // as rows of the block
  for (size_t lane = 0; lane < kPanel; ++lane) {
    const RowRange lane_rows = RowsOf(panel.keys[lane], key0, n);
    begin[lane] = static_cast<float>(lane_rows.begin);
    end[lane] = static_cast<float>(lane_rows.end);
  }
  const Vec minus_inf = hn::Set(d, -std::numeric_limits<float>::infinity());
  MapRows(s, rows, [&](size_t r, size_t lane, Vec x) {
    const Vec j = hn::Set(d, static_cast<float>(r));
    const Mask visible =
        hn::And(hn::Ge(j, hn::Load(d, begin + lane)), hn::Lt(j, hn::Load(d, end + lane)));
    return hn::IfThenElse(visible, x, minus_inf);
  });
}

HWY_NOINLINE void ApplyScale(const ScoreTile& s, RowRange rows, float scale) {
  const Vec factor = hn::Set(Tag(), scale);
  MapRows(s, rows, [&](size_t, size_t, Vec x) { return hn::Mul(x, factor); });
}

// S^T rows [rows.begin, rows.end) of the block of n keys from key0 on. k: the block, [n][ldk]; qt:
// the panel's queries times q_scale, [head_dim][kPanel]. Job::plain_scores() says whether the
// result is scaled. softcap_slope as in ApplySoftcap, or null.
HWY_NOINLINE void Scores(const Job& job, const Sequence& seq, const Panel& panel, const float* k,
                         size_t ldk, const float* qt, int64_t key0, size_t n, RowRange rows,
                         const ScoreTile& s, const ScoreTile* softcap_slope) {
  const auto d = static_cast<size_t>(job.p.head_dim);
  const size_t count = rows.end - rows.begin;
  k += rows.begin * ldk;
  float* st = s.row(rows.begin);
  if (s.ld == kPanel) {
    GemmPanel<Order::kRowMajor, Update::kSet, Strides{kPanel, kPanel}>(count, k, ldk, qt, kPanel, d,
                                                                       st, s.ld);
  } else {
    GemmPanel<Order::kRowMajor, Update::kSet, Strides{kPanel}>(count, k, ldk, qt, kPanel, d, st,
                                                               s.ld);
  }
  // The first step that touches the scores scales them.
  const bool softcap = job.p.softcap > 0, alibi = job.p.alibi != STROBE_ALIBI_NONE;
  if (softcap) ApplySoftcap(s, rows, job.score_scale, job.softcap, softcap_slope);
  if (alibi) ApplyAlibi(s, rows, softcap ? 1.0f : job.score_scale, panel, seq.band.offset, key0);
  if (!job.plain_scores() && !softcap && !alibi) ApplyScale(s, rows, job.score_scale);
  if (job.has_bias()) ApplyBias(job, seq, s, rows, panel, key0);
  if (job.has_mask()) ApplyMask(job, seq, s, rows, panel, key0);
  // Only the rows that some lane must not see need the band's mask; inner blocks have none.
  const RowRange clear = RowsOf(panel.all, key0, n);
  const size_t clear_begin = std::clamp(clear.begin, rows.begin, rows.end);
  const size_t clear_end = std::clamp(clear.end, clear_begin, rows.end);
  if (clear_begin > rows.begin) ApplyBand(s, {rows.begin, clear_begin}, panel, key0, n);
  if (clear_end < rows.end) ApplyBand(s, {clear_end, rows.end}, panel, key0, n);
}

// Multiplies the rows of P^T by the dropout factor, 0 where dropped and 1 / (1 - p) where kept; or,
// with store_factor, replaces them by it.
HWY_NOINLINE void Dropout(const Job& job, const Panel& panel, int64_t key0, RowRange rows,
                          const ScoreTile& p, bool store_factor) {
  HWY_ALIGN core::u32 bits[4][kPanel];
  core::u32 group = ~core::u32{0};
  for (size_t r = rows.begin; r < rows.end; ++r) {
    const int64_t key = key0 + static_cast<int64_t>(r);
    const auto key_group = static_cast<core::u32>(key / 8);
    if (key_group != group || r == rows.begin) {
      group = key_group;
      for (size_t lane = 0; lane < panel.count; ++lane) {
        const core::PhiloxBlock block =
            core::dropout_bits(panel.stream[lane], static_cast<core::u32>(panel.i[lane]), group);
        for (int w = 0; w < 4; ++w) bits[w][lane] = block.word[w];
      }
    }
    const auto element = static_cast<core::u32>(key % 8);
    float* row = p.row(r);
    for (size_t lane = 0; lane < panel.count; ++lane) {
      const core::u32 draw = (bits[element / 2][lane] >> (16 * (element % 2))) & 0xFFFFu;
      const float factor = draw >= job.keep_threshold ? job.keep_scale : 0.0f;
      row[lane] = store_factor ? factor : row[lane] * factor;
    }
    for (size_t lane = panel.count; lane < kPanel; ++lane) row[lane] = 0;
  }
}

}  // namespace strobe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
