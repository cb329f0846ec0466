// Forward: FlashAttention-2's algorithm (outer loop over query tiles, inner over key blocks,
// un-normalised O, one LSE), in the transposed layout of a SIMD machine.
//
//   for each block j of keys:            K_j, V_j -> float scratch, shared by all panels of the
//   tile
//     for each panel of queries:         S^T = K_j Q^T        [keys][panel], stays in L1
//                                        m' = max(m, rows of S^T)          lane-wise, no horizontal
//                                        operation P^T = exp(S^T - m'), l = l * exp(m - m') + sum
//                                        O^T = O^T * exp(m - m') + V_j^T P^T
//   O = O^T / l, LSE = m + log(l)
//
// Blocks lie at fixed multiples of kv_block from the start of the sequence, so a row's bits depend
// neither on the tile nor on the panel it is in. Block and panel pairs without a visible pair are
// skipped, and of the others only the rows of S^T that some lane sees are computed: causal cost is
// proportional to visible pairs.
#if defined(STROBE_SRC_CPU_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STROBE_SRC_CPU_FORWARD_INL_H_
#undef STROBE_SRC_CPU_FORWARD_INL_H_
#else
#define STROBE_SRC_CPU_FORWARD_INL_H_
#endif

#include <bit>
#include <cmath>

#include "cpu/kernels.h"
#include "cpu/scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strobe::cpu::HWY_NAMESPACE {

// One thread's memory. m, l and alpha: [panels][kPanel].
struct ForwardScratch {
  Panel* panels;
  float* qt;  // [panels][head_dim][kPanel], times q_scale
  float* ot;  // [panels][head_dim_v][kPanel]
  float* m;
  float* l;
  float* k;     // [kv_block][head_dim]
  float* v;     // [kv_block][head_dim_v]
  float* s;     // [kv_block][kPanel]
  float* rows;  // [kPanel][max(head_dim, head_dim_v)]: before and after transposition

  ForwardScratch(const strobe_problem& p, const Tiling& t, Arena& arena) {
    const int64_t panels_count = t.q_tile / static_cast<int64_t>(kPanel);
    const auto lanes = static_cast<int64_t>(kPanel);
    panels = arena.take<Panel>(panels_count);
    qt = arena.take<float>(panels_count * p.head_dim * lanes);
    ot = arena.take<float>(panels_count * p.head_dim_v * lanes);
    m = arena.take<float>(panels_count * lanes);
    l = arena.take<float>(panels_count * lanes);
    k = arena.take<float>(t.kv_block * p.head_dim);
    v = arena.take<float>(t.kv_block * p.head_dim_v);
    s = arena.take<float>(t.kv_block * lanes);
    rows = arena.take<float>(lanes * std::max(p.head_dim, p.head_dim_v));
  }
};

size_t ForwardScratchBytes(const strobe_problem& p, const Tiling& t) {
  Arena arena;
  ForwardScratch(p, t, arena);
  return arena.bytes();
}

// Keys [begin, end) of one head as float rows.
HWY_NOINLINE void LoadBlock(strobe_dtype dtype, const View& view, const Sequence& seq, int64_t head,
                            int64_t begin, int64_t end, size_t dim, size_t ld, float* to) {
  for (int64_t j = begin; j < end; ++j, to += ld) {
    LoadRow(dtype, view.at(seq.batch, seq.k_begin + j, head), dim, ld, 1.0f, to);
  }
}

// The queries of a panel, times scale, as [dim][kPanel]; lanes without a query are 0.
HWY_NOINLINE void LoadPanel(strobe_dtype dtype, const View& view, const Sequence& seq,
                            const Panel& panel, size_t dim, float scale, float* rows, float* to) {
  for (size_t lane = 0; lane < kPanel; ++lane) {
    float* row = rows + lane * dim;
    if (lane < panel.count) {
      LoadRow(dtype, view.at(seq.batch, seq.q_begin + panel.i[lane], panel.h[lane]), dim, dim,
              scale, row);
    } else {
      std::memset(row, 0, dim * sizeof(float));
    }
  }
  Transpose(rows, dim, kPanel, dim, to, kPanel);
}

// The largest score of each lane over the rows and m: m1 for the panel's second vector. Four rows
// at a time, so that the latency of max is hidden.
HWY_INLINE void BlockMax(const float* HWY_RESTRICT s, size_t ld, size_t rows, Vec& m0, Vec& m1) {
  const Tag d;
  Vec a[4] = {m0, m0, m0, m0}, b[4] = {m1, m1, m1, m1};
  size_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    for (size_t u = 0; u < 4; ++u) {
      a[u] = hn::Max(a[u], hn::Load(d, s + (r + u) * ld));
      b[u] = hn::Max(b[u], hn::Load(d, s + (r + u) * ld + kLanes));
    }
  }
  for (; r < rows; ++r) {
    a[0] = hn::Max(a[0], hn::Load(d, s + r * ld));
    b[0] = hn::Max(b[0], hn::Load(d, s + r * ld + kLanes));
  }
  m0 = hn::Max(hn::Max(a[0], a[1]), hn::Max(a[2], a[3]));
  m1 = hn::Max(hn::Max(b[0], b[1]), hn::Max(b[2], b[3]));
}

// One block's softmax of one panel: S^T [rows][ld] becomes P^T, m and l are updated, alpha =
// exp(m_old - m_new).
HWY_NOINLINE void SoftmaxStep(float* HWY_RESTRICT s, size_t ld, size_t rows, float* HWY_RESTRICT m,
                              float* HWY_RESTRICT l, float* HWY_RESTRICT alpha, float factor) {
  const Tag d;
  const Exp exp(factor);
  const Vec minus_inf = hn::Set(d, -std::numeric_limits<float>::infinity());
  const Vec old0 = hn::Load(d, m), old1 = hn::Load(d, m + kLanes);
  Vec m0 = old0, m1 = old1;
  BlockMax(s, ld, rows, m0, m1);
  hn::Store(m0, d, m);
  hn::Store(m1, d, m + kLanes);
  // A lane that has seen nothing but -inf subtracts 0, so that exp(-inf - 0) = 0.
  m0 = hn::IfThenZeroElse(hn::Eq(m0, minus_inf), m0);
  m1 = hn::IfThenZeroElse(hn::Eq(m1, minus_inf), m1);
  const Vec a0 = exp(hn::Sub(old0, m0)), a1 = exp(hn::Sub(old1, m1));
  hn::Store(a0, d, alpha);
  hn::Store(a1, d, alpha + kLanes);
  Vec sum0 = hn::Mul(hn::Load(d, l), a0), sum1 = hn::Mul(hn::Load(d, l + kLanes), a1);
  for (size_t r = 0; r < rows; ++r, s += ld) {
    const Vec p0 = exp(hn::Sub(hn::Load(d, s), m0));
    const Vec p1 = exp(hn::Sub(hn::Load(d, s + kLanes), m1));
    hn::Store(p0, d, s);
    hn::Store(p1, d, s + kLanes);
    sum0 = hn::Add(sum0, p0);
    sum1 = hn::Add(sum1, p1);
  }
  hn::Store(sum0, d, l);
  hn::Store(sum1, d, l + kLanes);
}

HWY_INLINE bool AllFinite(const float* x, size_t n) {
  constexpr uint32_t kExponent = 0x7F800000u;
  uint32_t largest = 0;
  for (size_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & kExponent);
  }
  return largest < kExponent;
}

HWY_INLINE bool AllZero(const float* row) {
  for (size_t lane = 0; lane < kPanel; ++lane) {
    if (row[lane] != 0) return false;  // NaN counts as something
  }
  return true;
}

// C += A^T W over rows, where A [rows][lda] may hold NaN or inf in rows whose weights W are all 0:
// those rows are left out, since 0 * NaN would not be 0. (Keys that a boolean mask or a -inf bias
// hides from every query may hold anything.)
HWY_NOINLINE void GemmSkippingZeroRows(size_t m, const float* a, size_t lda, const ScoreTile& w,
                                       RowRange rows, float* c) {
  for (size_t r = rows.begin; r < rows.end; ++r) {
    if (AllZero(w.row(r))) continue;
    GemmPanel<Order::kStepMajor, Update::kAdd>(m, a + r * lda, lda, w.row(r), w.ld, 1, c, kPanel);
  }
}

void InitTile(const Job& job, const ForwardItem& item, ForwardScratch& x, size_t panels) {
  const size_t d = static_cast<size_t>(job.p.head_dim), dv = static_cast<size_t>(job.p.head_dim_v);
  for (size_t n = 0; n < panels; ++n) {
    Panel& panel = x.panels[n];
    const int64_t first = item.row_begin + static_cast<int64_t>(n * kPanel);
    const auto count = static_cast<size_t>(std::min<int64_t>(kPanel, item.row_end - first));
    for (size_t lane = 0; lane < kPanel; ++lane) {
      float sink = -std::numeric_limits<float>::infinity();
      if (lane < count) {
        const PackedRow row = packed_row(first + static_cast<int64_t>(lane), item.g, job.ratio);
        panel.set_lane(job, item.seq, lane, row);
        if (job.p.sinks && item.first_split) sink = job.sink(row.h);
        // A split sees its share of the keys.
        panel.keys[lane].begin = std::max(panel.keys[lane].begin, item.keys.begin);
        panel.keys[lane].end = std::min(panel.keys[lane].end, item.keys.end);
      }
      // A sink is a logit seen before the first block, with value 0.
      x.m[n * kPanel + lane] = sink;
      x.l[n * kPanel + lane] = sink == -std::numeric_limits<float>::infinity() ? 0.0f : 1.0f;
    }
    panel.finish(count);
    LoadPanel(job.p.dtype, job.q, item.seq, panel, d, job.q_scale, x.rows, x.qt + n * d * kPanel);
    std::memset(x.ot + n * dv * kPanel, 0, dv * kPanel * sizeof(float));
  }
}

// One panel against one block of keys.
HWY_INLINE void ForwardStep(const Job& job, const ForwardItem& item, ForwardScratch& x, size_t n,
                            int64_t key0, size_t keys, bool v_finite) {
  const size_t d = static_cast<size_t>(job.p.head_dim), dv = static_cast<size_t>(job.p.head_dim_v);
  const Panel& panel = x.panels[n];
  const RowRange rows = RowsOf(panel.any, key0, keys);
  if (rows.empty()) return;
  const ScoreTile s{x.s, kPanel};
  HWY_ALIGN float alpha[kPanel];
  float* ot = x.ot + n * dv * kPanel;
  Scores(job, item.seq, panel, x.k, d, x.qt + n * d * kPanel, key0, keys, rows, s, nullptr);
  SoftmaxStep(s.row(rows.begin), s.ld, rows.end - rows.begin, x.m + n * kPanel, x.l + n * kPanel,
              alpha, job.exp_factor());
  if (job.has_dropout()) Dropout(job, panel, key0, rows, s, false);
  if (v_finite) {
    GemmPanel<Order::kStepMajor, Update::kRescale, Strides{kPanel, kPanel}>(
        dv, x.v + rows.begin * dv, dv, s.row(rows.begin), s.ld, rows.end - rows.begin, ot, kPanel,
        alpha);
  } else {
    ScaleLanes(ot, dv * kPanel, alpha);
    GemmSkippingZeroRows(dv, x.v, dv, s, rows, ot);
  }
}

// O = O^T / l and LSE = m + log(l) of one panel.
void StorePanel(const Job& job, const ForwardItem& item, ForwardScratch& x, size_t n) {
  const size_t dv = static_cast<size_t>(job.p.head_dim_v);
  const Panel& panel = x.panels[n];
  const float* m = x.m + n * kPanel;
  const float* l = x.l + n * kPanel;
  HWY_ALIGN float inverse[kPanel];
  for (size_t lane = 0; lane < kPanel; ++lane) inverse[lane] = l[lane] == 0 ? 0.0f : 1.0f / l[lane];
  float* ot = x.ot + n * dv * kPanel;
  ScaleLanes(ot, dv * kPanel, inverse);
  Transpose(ot, kPanel, dv, panel.count, x.rows, dv);
  for (size_t lane = 0; lane < panel.count; ++lane) {
    const float lse = l[lane] == 0 ? -std::numeric_limits<float>::infinity()
                                   : job.exp_factor() * m[lane] + std::log(l[lane]);
    const float* row = x.rows + lane * dv;
    if (item.partial_o) {
      const size_t r = n * kPanel + lane;
      std::memcpy(item.partial_o + r * dv, row, dv * sizeof(float));
      item.partial_lse[r] = lse;
    } else {
      const int64_t i = panel.i[lane], h = panel.h[lane];
      StoreRow(job.p.dtype, row, dv, job.o.at(item.seq.batch, item.seq.q_begin + i, h));
      if (job.args.lse) job.lse_at(item.seq, i, h) = lse;
    }
  }
}

void Forward(const Job& job, const Tiling& tiling, const ForwardItem& item, void* scratch) {
  Arena arena(scratch);
  ForwardScratch x(job.p, tiling, arena);
  const size_t d = static_cast<size_t>(job.p.head_dim), dv = static_cast<size_t>(job.p.head_dim_v);
  const auto panels =
      static_cast<size_t>(ceil_div(item.row_end - item.row_begin, static_cast<int64_t>(kPanel)));
  InitTile(job, item, x, panels);

  core::KeyRange any{std::numeric_limits<int64_t>::max(), 0};
  for (size_t n = 0; n < panels; ++n) {
    any = {std::min(any.begin, x.panels[n].any.begin), std::max(any.end, x.panels[n].any.end)};
  }
  const int64_t block = tiling.kv_block;
  const bool v_may_be_hidden = job.has_mask() || job.has_bias();
  for (int64_t key0 = any.empty() ? any.end : any.begin / block * block; key0 < any.end;
       key0 += block) {
    // Keys outside any.begin..any.end may not be touched: they may be padding.
    const int64_t begin = std::max(key0, any.begin), end = std::min(key0 + block, any.end);
    const auto skip = static_cast<size_t>(begin - key0);
    LoadBlock(job.p.dtype, job.k, item.seq, item.g, begin, end, d, d, x.k + skip * d);
    LoadBlock(job.p.dtype, job.v, item.seq, item.g, begin, end, dv, dv, x.v + skip * dv);
    const bool v_finite =
        !v_may_be_hidden || AllFinite(x.v + skip * dv, static_cast<size_t>(end - begin) * dv);
    for (size_t n = 0; n < panels; ++n) {
      ForwardStep(job, item, x, n, key0, static_cast<size_t>(end - key0), v_finite);
    }
  }
  for (size_t n = 0; n < panels; ++n) StorePanel(job, item, x, n);
}

}  // namespace strobe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
