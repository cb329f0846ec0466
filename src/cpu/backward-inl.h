// Backward: recomputation from Q, K, V, O and LSE (FlashAttention-1, algorithm 4;
// FlashAttention-2's loop order: key blocks outside, query blocks inside), in the transposed layout
// of forward.
//
//   for each chunk of keys c (a work item):                       K, V -> float; dK = dV = 0
//     for each block of queries i that sees some of them:         Q, dO -> float, as rows and as
//     panels
//       for each block of keys j of the chunk, each panel:        S^T = K_j Q^T     P^T = exp(S^T -
//       LSE)
//                                                                 dP^T = V_j dO^T   dS^T = P^T * (Z
//                                                                 dP^T - delta) dQ^T += K_j^T dS^T
//         dV_j += (Z P)^T dO,  dK_j += dS^T Q
//       when chunk c - 1 has added its dQ of block i: add ours; the last chunk writes dQ out
//     write dK, dV
//
// So dQ is summed in the order of the chunks whatever the number of threads: the bits never change.
// Items start in ascending order and wait only for lower ones, hence never deadlock.
#if defined(STROBE_SRC_CPU_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STROBE_SRC_CPU_BACKWARD_INL_H_
#undef STROBE_SRC_CPU_BACKWARD_INL_H_
#else
#define STROBE_SRC_CPU_BACKWARD_INL_H_
#endif

#include <thread>

#include "cpu/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strobe::cpu::HWY_NAMESPACE {

constexpr size_t kPanelsPerBlock = kQueryBlock / kPanel;
constexpr size_t kQ = kQueryBlock;

HWY_INLINE size_t PadToPanel(int64_t dim) {
  return static_cast<size_t>(round_up(dim, static_cast<int64_t>(kPanel)));
}

// One thread's memory. Tiles of scores are [kv_block][kQ]; a panel is kPanel columns of them.
struct BackwardScratch {
  Panel* panels;            // [kPanelsPerBlock]
  float *k, *v;             // [kv_chunk][head_dim], [kv_chunk][head_dim_v]
  float *dk, *dv;           // [kv_chunk][head_dim padded to kPanel], likewise head_dim_v
  float *q_rows, *do_rows;  // [kQ][padded dim]; q times q_scale
  float *qt, *dot;          // [panels][dim][kPanel]
  float* dqt;               // [panels][head_dim][kPanel]
  float *p, *ds;            // P^T (then Z P), dP^T (then dS^T)
  float *cap, *keep;        // softcap's derivative, dropout's factor
  float* sum;               // a tile of dBias
  float *lse, *delta;       // [kQ]
  float* rows;              // [kPanel][max dim]

  BackwardScratch(const strobe_problem& prob, const Tiling& t, Arena& arena) {
    const int64_t d = prob.head_dim, e = prob.head_dim_v;
    const auto dp = static_cast<int64_t>(PadToPanel(d)), ep = static_cast<int64_t>(PadToPanel(e));
    panels = arena.take<Panel>(kPanelsPerBlock);
    k = arena.take<float>(t.kv_chunk * d);
    v = arena.take<float>(t.kv_chunk * e);
    dk = arena.take<float>(t.kv_chunk * dp);
    dv = arena.take<float>(t.kv_chunk * ep);
    q_rows = arena.take<float>(kQueryBlock * dp);
    do_rows = arena.take<float>(kQueryBlock * ep);
    qt = arena.take<float>(kQueryBlock * d);
    dot = arena.take<float>(kQueryBlock * e);
    dqt = arena.take<float>(kQueryBlock * d);
    const int64_t tile = t.kv_block * kQueryBlock;
    p = arena.take<float>(tile);
    ds = arena.take<float>(tile);
    cap = arena.take<float>(prob.softcap > 0 ? tile : 0);
    keep = arena.take<float>(prob.dropout_p > 0 ? tile : 0);
    sum = arena.take<float>(prob.bias.dtype != STROBE_NONE ? tile : 0);
    lse = arena.take<float>(kQueryBlock);
    delta = arena.take<float>(kQueryBlock);
    rows = arena.take<float>(static_cast<int64_t>(kPanel) * std::max(d, e));
  }
};

size_t BackwardScratchBytes(const strobe_problem& p, const Tiling& t) {
  Arena arena;
  BackwardScratch(p, t, arena);
  return arena.bytes();
}

// delta, lse and turn of one query block; dq = 0 for a block that sees no key (no chunk will write
// it).
void BackwardRows(const Job& job, const Tiling& tiling, const BackwardState& state,
                  const Sequence& seq, int64_t g, int64_t block, void* scratch) {
  Arena arena(scratch);
  BackwardScratch x(job.p, tiling, arena);
  const auto e = static_cast<size_t>(job.p.head_dim_v);
  const int64_t first = state.first_row(seq.b, g, job.p.kv_heads) + block * kQueryBlock;
  const int64_t end = std::min<int64_t>((block + 1) * kQueryBlock, seq.len_q * job.ratio);
  bool any_key = false;
  for (int64_t r = block * kQueryBlock, n = 0; r < end; ++r, ++n) {
    state.lse[first + n] = std::numeric_limits<float>::infinity();
    state.delta[first + n] = 0;
    const PackedRow row = packed_row(r, g, job.ratio);
    any_key = any_key || !seq.band.keys(row.i, seq.len_k).empty();
    const float lse = job.lse_at(seq, row.i, row.h);
    if (lse == -std::numeric_limits<float>::infinity()) continue;
    LoadRow(job.p.dtype, job.o.at(seq.batch, seq.q_begin + row.i, row.h), e, e, 1.0f, x.rows);
    LoadRow(job.p.dtype, job.dout.at(seq.batch, seq.q_begin + row.i, row.h), e, e, 1.0f, x.do_rows);
    const Tag d;
    Vec sum = hn::Zero(d);
    size_t c = 0;
    for (; c + kLanes <= e; c += kLanes) {
      sum = hn::MulAdd(hn::LoadU(d, x.rows + c), hn::LoadU(d, x.do_rows + c), sum);
    }
    float delta = hn::GetLane(hn::SumOfLanes(d, sum));
    for (; c < e; ++c) delta += x.rows[c] * x.do_rows[c];
    if (job.args.dlse) {
      delta -= *reinterpret_cast<const float*>(job.dlse.at(seq.batch, seq.q_begin + row.i, row.h));
    }
    state.lse[first + n] = lse;
    state.delta[first + n] = delta;
  }
  state.turn_of(seq.b, g, block, job.p.kv_heads).store(0, std::memory_order_relaxed);
  if (any_key) return;
  const auto d = static_cast<size_t>(job.p.head_dim);
  std::memset(x.q_rows, 0, d * sizeof(float));
  for (int64_t r = block * kQueryBlock; r < end; ++r) {
    const PackedRow row = packed_row(r, g, job.ratio);
    StoreRow(job.p.dtype, x.q_rows, d, job.dq.at(seq.batch, seq.q_begin + row.i, row.h));
  }
}

// Rows of q or dO of one panel, as rows [kPanel][ld] and as [dim][kPanel]. Lanes that see nothing
// (lse = +inf) are 0: whatever those rows hold must not reach dK and dV.
HWY_NOINLINE void LoadBackwardPanel(const Job& job, const View& view, const Sequence& seq,
                                    const Panel& panel, const float* lse, size_t dim, size_t ld,
                                    float scale, float* rows, float* to) {
  for (size_t lane = 0; lane < kPanel; ++lane) {
    float* row = rows + lane * ld;
    if (lane < panel.count && lse[lane] != std::numeric_limits<float>::infinity()) {
      LoadRow(job.p.dtype, view.at(seq.batch, seq.q_begin + panel.i[lane], panel.h[lane]), dim, ld,
              scale, row);
    } else {
      std::memset(row, 0, ld * sizeof(float));
    }
  }
  Transpose(rows, ld, kPanel, dim, to, kPanel);
}

// P^T = exp(factor * S^T - LSE), dS^T = P^T (Z dP^T - delta), and P^T *= Z. Where P is 0, dS is: dP
// may be NaN there.
template <bool kDropout, bool kSoftcap>
HWY_NOINLINE void GradientStep(float* HWY_RESTRICT p, float* HWY_RESTRICT ds,
                               const float* HWY_RESTRICT keep, const float* HWY_RESTRICT cap,
                               size_t ld, size_t rows, const float* HWY_RESTRICT lse,
                               const float* HWY_RESTRICT delta, float factor) {
  const Tag d;
  const Exp exp;
  const Vec f = hn::Set(d, factor);
  for (size_t lane = 0; lane < kPanel; lane += kLanes) {
    const Vec l = hn::Load(d, lse + lane), dl = hn::Load(d, delta + lane);
    for (size_t r = 0; r < rows; ++r) {
      const size_t at = r * ld + lane;
      const Vec prob = exp.operator()<true>(hn::MulSub(hn::Load(d, p + at), f, l));
      Vec dp = hn::Load(d, ds + at);
      Vec dropped = prob;
      if constexpr (kDropout) {
        const Vec z = hn::Load(d, keep + at);
        dp = hn::Mul(dp, z);
        dropped = hn::Mul(prob, z);
      }
      Vec grad = hn::Mul(prob, hn::Sub(dp, dl));
      if constexpr (kSoftcap) grad = hn::Mul(grad, hn::Load(d, cap + at));
      grad = hn::IfThenZeroElse(hn::Eq(prob, hn::Zero(d)), grad);
      hn::Store(dropped, d, p + at);
      hn::Store(grad, d, ds + at);
    }
  }
}

HWY_INLINE void ZeroRows(const ScoreTile& tile, RowRange rows) {
  for (size_t r = rows.begin; r < rows.end; ++r)
    std::memset(tile.row(r), 0, kPanel * sizeof(float));
}

// P^T and dS^T of panel n against rows `rows` of a block of keys: k and v point at the block.
void PanelGradient(const Job& job, const Sequence& seq, BackwardScratch& x, size_t n,
                   const float* k, const float* v, int64_t key0, size_t keys, RowRange rows,
                   bool through_softcap) {
  const auto d = static_cast<size_t>(job.p.head_dim), e = static_cast<size_t>(job.p.head_dim_v);
  const Panel& panel = x.panels[n];
  const size_t column = n * kPanel, count = rows.end - rows.begin;
  const ScoreTile s{x.p + column, kQ}, dp{x.ds + column, kQ}, cap{x.cap + column, kQ},
      keep{x.keep + column, kQ};
  const bool softcap = job.p.softcap > 0 && through_softcap;
  Scores(job, seq, panel, k, d, x.qt + n * d * kPanel, key0, keys, rows, s,
         softcap ? &cap : nullptr);
  GemmPanel<Order::kRowMajor, Update::kSet, Strides{kPanel}>(
      count, v + rows.begin * e, e, x.dot + n * e * kPanel, kPanel, e, dp.row(rows.begin), kQ);
  if (job.has_dropout()) Dropout(job, panel, key0, rows, keep, true);
  const auto step = job.has_dropout()
                        ? (softcap ? GradientStep<true, true> : GradientStep<true, false>)
                        : (softcap ? GradientStep<false, true> : GradientStep<false, false>);
  step(s.row(rows.begin), dp.row(rows.begin), keep.row(rows.begin), cap.row(rows.begin), kQ, count,
       x.lse + column, x.delta + column, job.exp_factor());
}

// One query block against one block of keys at row `at` of the chunk.
void BlockGradient(const Job& job, const Sequence& seq, BackwardScratch& x, size_t panels,
                   int64_t key0, size_t keys, size_t at, bool k_finite) {
  const auto d = static_cast<size_t>(job.p.head_dim), e = static_cast<size_t>(job.p.head_dim_v);
  const size_t dp = PadToPanel(job.p.head_dim), ep = PadToPanel(job.p.head_dim_v);
  const float* k = x.k + at * d;
  const float* v = x.v + at * e;
  RowRange all{keys, 0}, active{panels, 0};  // rows and panels with a visible pair
  for (size_t n = 0; n < panels; ++n) {
    const RowRange rows = RowsOf(x.panels[n].any, key0, keys);
    if (rows.empty()) continue;
    all = {std::min(all.begin, rows.begin), std::max(all.end, rows.end)};
    active = {std::min(active.begin, n), n + 1};
  }
  if (all.empty()) return;
  for (size_t n = active.begin; n < active.end; ++n) {
    RowRange rows = RowsOf(x.panels[n].any, key0, keys);
    if (rows.empty()) rows = {all.begin, all.begin};
    const ScoreTile p{x.p + n * kPanel, kQ}, ds{x.ds + n * kPanel, kQ};
    if (!rows.empty()) {
      PanelGradient(job, seq, x, n, k, v, key0, keys, rows, true);
      float* dqt = x.dqt + n * d * kPanel;
      if (k_finite) {
        GemmPanel<Order::kStepMajor, Update::kAdd, Strides{kQ, kPanel}>(
            d, k + rows.begin * d, d, ds.row(rows.begin), kQ, rows.end - rows.begin, dqt, kPanel);
      } else {
        GemmSkippingZeroRows(d, k, d, ds, rows, dqt);
      }
    }
    for (const ScoreTile& tile :
         {p, ds}) {  // the products below read all rows of all active panels
      ZeroRows(tile, {all.begin, rows.begin});
      ZeroRows(tile, {rows.end, all.end});
    }
  }
  const size_t column = active.begin * kPanel, steps = (active.end - active.begin) * kPanel;
  const size_t count = all.end - all.begin;
  for (size_t c = 0; c < ep; c += kPanel) {
    GemmPanel<Order::kRowMajor, Update::kAdd>(count, x.p + all.begin * kQ + column, kQ,
                                              x.do_rows + column * ep + c, ep, steps,
                                              x.dv + (at + all.begin) * ep + c, ep);
  }
  for (size_t c = 0; c < dp; c += kPanel) {
    GemmPanel<Order::kRowMajor, Update::kAdd>(count, x.ds + all.begin * kQ + column, kQ,
                                              x.q_rows + column * dp + c, dp, steps,
                                              x.dk + (at + all.begin) * dp + c, dp);
  }
}

// Adds the chunk's dQ of a query block in its turn; the last chunk that sees the block writes it
// out. Takes q_rows as a buffer.
void AddQueryGradient(const Job& job, const BackwardState& state, const BackwardItem& item,
                      BackwardScratch& x, size_t panels, int64_t block, int64_t first_chunk,
                      int64_t last_chunk) {
  const auto d = static_cast<size_t>(job.p.head_dim);
  float* HWY_RESTRICT rows = x.q_rows;
  size_t floats = 0;
  for (size_t n = 0; n < panels; ++n) {
    const size_t count = x.panels[n].count;
    Transpose(x.dqt + n * d * kPanel, kPanel, d, count, rows + floats, d);
    floats += count * d;
  }
  std::atomic<int64_t>& turn = state.turn_of(item.seq.b, item.g, block, job.p.kv_heads);
  const int64_t mine = item.chunk - first_chunk;
  for (int spins = 0; turn.load(std::memory_order_acquire) != mine; ++spins) {
    if (spins > 256) std::this_thread::yield();
  }
  const int64_t first = state.first_row(item.seq.b, item.g, job.p.kv_heads) + block * kQueryBlock;
  float* HWY_RESTRICT total = state.dq + first * job.p.head_dim;
  if (mine > 0) {
    for (size_t c = 0; c < floats; ++c) rows[c] += total[c];
  }
  if (item.chunk != last_chunk) {
    std::memcpy(total, rows, floats * sizeof(float));
  } else {
    const float scale = job.q_scale * job.score_scale;
    for (size_t c = 0; c < floats; ++c) rows[c] *= scale;
    for (size_t n = 0; n < panels; ++n) {
      const Panel& panel = x.panels[n];
      for (size_t lane = 0; lane < panel.count; ++lane, rows += d) {
        StoreRow(job.p.dtype, rows, d,
                 job.dq.at(item.seq.batch, item.seq.q_begin + panel.i[lane], panel.h[lane]));
      }
    }
  }
  turn.store(mine + 1, std::memory_order_release);
}

// Sets up the panels of a query block; returns how many there are, and the union of their keys.
HWY_NOINLINE size_t SetUpQueryBlock(const Job& job, const Sequence& seq, int64_t g, int64_t block,
                                    Panel* panels, core::KeyRange* any) {
  const int64_t begin = block * kQueryBlock;
  const int64_t end = std::min<int64_t>(begin + kQueryBlock, seq.len_q * job.ratio);
  *any = {std::numeric_limits<int64_t>::max(), 0};
  size_t n = 0;
  for (int64_t r = begin; r < end; r += kPanel, ++n) {
    const auto count = static_cast<size_t>(std::min<int64_t>(kPanel, end - r));
    for (size_t lane = 0; lane < count; ++lane) {
      panels[n].set_lane(job, seq, lane, packed_row(r + static_cast<int64_t>(lane), g, job.ratio));
    }
    panels[n].finish(count);
    *any = {std::min(any->begin, panels[n].any.begin), std::max(any->end, panels[n].any.end)};
  }
  return n;
}

void Backward(const Job& job, const Tiling& tiling, const BackwardState& state,
              const BackwardItem& item, void* scratch) {
  Arena arena(scratch);
  BackwardScratch x(job.p, tiling, arena);
  const Sequence& seq = item.seq;
  const auto d = static_cast<size_t>(job.p.head_dim), e = static_cast<size_t>(job.p.head_dim_v);
  const size_t dp = PadToPanel(job.p.head_dim), ep = PadToPanel(job.p.head_dim_v);
  const int64_t key_begin = item.chunk * tiling.kv_chunk;
  const int64_t key_end = std::min(key_begin + tiling.kv_chunk, seq.len_k);
  const auto keys = static_cast<size_t>(key_end - key_begin);
  LoadBlock(job.p.dtype, job.k, seq, item.g, key_begin, key_end, d, d, x.k);
  LoadBlock(job.p.dtype, job.v, seq, item.g, key_begin, key_end, e, e, x.v);
  const bool k_finite = !(job.has_mask() || job.has_bias()) || AllFinite(x.k, keys * d);
  std::memset(x.dk, 0, keys * dp * sizeof(float));
  std::memset(x.dv, 0, keys * ep * sizeof(float));

  const int64_t blocks = ceil_div(seq.len_q * job.ratio, kQueryBlock);
  for (int64_t block = 0; block < blocks; ++block) {
    core::KeyRange any;
    const size_t panels = SetUpQueryBlock(job, seq, item.g, block, x.panels, &any);
    if (any.empty()) continue;
    const int64_t first_chunk = any.begin / tiling.kv_chunk,
                  last_chunk = (any.end - 1) / tiling.kv_chunk;
    if (item.chunk < first_chunk || item.chunk > last_chunk) continue;

    const int64_t first = state.first_row(seq.b, item.g, job.p.kv_heads) + block * kQueryBlock;
    const auto rows = static_cast<size_t>(
        std::min<int64_t>(kQueryBlock, seq.len_q * job.ratio - block * kQueryBlock));
    std::fill_n(x.lse, kQ, std::numeric_limits<float>::infinity());
    std::fill_n(x.delta, kQ, 0.0f);
    std::copy_n(state.lse + first, rows, x.lse);
    std::copy_n(state.delta + first, rows, x.delta);
    for (size_t n = 0; n < panels; ++n) {
      const float* lse = x.lse + n * kPanel;
      LoadBackwardPanel(job, job.q, seq, x.panels[n], lse, d, dp, job.q_scale,
                        x.q_rows + n * kPanel * dp, x.qt + n * d * kPanel);
      LoadBackwardPanel(job, job.dout, seq, x.panels[n], lse, e, ep, 1.0f,
                        x.do_rows + n * kPanel * ep, x.dot + n * e * kPanel);
    }
    std::memset(x.dqt, 0, panels * d * kPanel * sizeof(float));
    for (int64_t key0 = key_begin; key0 < key_end; key0 += tiling.kv_block) {
      BlockGradient(job, seq, x, panels, key0,
                    static_cast<size_t>(std::min(tiling.kv_block, key_end - key0)),
                    static_cast<size_t>(key0 - key_begin), k_finite);
    }
    AddQueryGradient(job, state, item, x, panels, block, first_chunk, last_chunk);
  }
  HWY_ALIGN float scale[kPanel];
  std::fill_n(scale, kPanel, job.score_scale);  // Q carries the rest
  ScaleLanes(x.dk, keys * dp, scale);
  for (size_t r = 0; r < keys; ++r) {
    const int64_t j = seq.k_begin + key_begin + static_cast<int64_t>(r);
    StoreRow(job.p.dtype, x.dk + r * dp, d, job.dk.at(seq.batch, j, item.g));
    StoreRow(job.p.dtype, x.dv + r * ep, e, job.dv.at(seq.batch, j, item.g));
  }
}

}  // namespace strobe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
