// Probabilities of chosen query rows, P = exp(S - LSE): the attention weights that the fast paths
// never store.
#if defined(STROBE_SRC_CPU_PROBS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STROBE_SRC_CPU_PROBS_INL_H_
#undef STROBE_SRC_CPU_PROBS_INL_H_
#else
#define STROBE_SRC_CPU_PROBS_INL_H_
#endif

#include "cpu/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strobe::cpu::HWY_NAMESPACE {

void Probs(const Job& job, const Tiling& tiling, const Sequence& seq, int64_t h, int64_t first,
           int64_t count, void* scratch) {
  Arena arena(scratch);
  ForwardScratch x(job.p, tiling, arena);
  const auto d = static_cast<size_t>(job.p.head_dim);
  const auto lanes = static_cast<size_t>(count);
  const int64_t row0 = job.p.lengths == STROBE_VARLEN ? seq.q_begin : 0;
  Panel& panel = x.panels[0];
  HWY_ALIGN float lse[kPanel];
  for (size_t lane = 0; lane < kPanel; ++lane) {
    lse[lane] = std::numeric_limits<float>::infinity();
    if (lane >= lanes) continue;
    const int64_t i = job.args.rows[first + static_cast<int64_t>(lane)] - row0;
    panel.set_lane(job, seq, lane, {i, h});
    if (i >= seq.len_q) panel.keys[lane] = {0, 0};  // a row of padding
    const float row_lse = job.lse_at(seq, i, h);
    if (row_lse != -std::numeric_limits<float>::infinity()) lse[lane] = row_lse;
  }
  panel.finish(lanes);
  LoadPanel(job.p.dtype, job.q, seq, panel, d, job.q_scale, x.rows, x.qt);

  float* out = static_cast<float*>(job.args.probs) +
               ((seq.batch * job.p.heads + h) * job.p.num_rows + first) * job.p.seqlen_k;
  std::fill_n(out, count * job.p.seqlen_k, 0.0f);
  const Tag tag;
  const Exp exp;
  const Vec factor = hn::Set(tag, job.exp_factor());
  for (int64_t key0 = panel.any.begin; key0 < panel.any.end; key0 += tiling.kv_block) {
    const int64_t end = std::min<int64_t>(key0 + tiling.kv_block, panel.any.end);
    const auto keys = static_cast<size_t>(end - key0);
    const ScoreTile s{x.s, kPanel};
    LoadBlock(job.p.dtype, job.k, seq, h / job.ratio, key0, end, d, d, x.k);
    Scores(job, seq, panel, x.k, d, x.qt, key0, keys, {0, keys}, s, nullptr);
    MapRows(s, {0, keys}, [&](size_t, size_t lane, Vec v) {
      return exp.operator()<true>(hn::MulSub(v, factor, hn::Load(tag, lse + lane)));
    });
    for (size_t lane = 0; lane < lanes; ++lane) {
      float* row = out + static_cast<int64_t>(lane) * job.p.seqlen_k + key0;
      for (size_t r = 0; r < keys; ++r) row[r] = s.row(r)[lane];
    }
  }
}

}  // namespace strobe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
