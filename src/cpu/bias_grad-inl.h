// dBias: dS summed over whatever the bias broadcasts. A pass of its own, in which a work item owns
// a tile of dBias and recomputes dS for every (sequence, head) that the tile serves: no N x N
// array, no atomics, the same bits every time.
#if defined(STROBE_SRC_CPU_BIAS_GRAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STROBE_SRC_CPU_BIAS_GRAD_INL_H_
#undef STROBE_SRC_CPU_BIAS_GRAD_INL_H_
#else
#define STROBE_SRC_CPU_BIAS_GRAD_INL_H_
#endif

#include "cpu/backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strobe::cpu::HWY_NAMESPACE {

// x.sum += dS^T of rows [row0, row0 + kQ) of one (sequence, head) against `keys` keys from key0 on.
void AddBiasGradient(const Job& job, const BackwardState& state, const Sequence& seq, int64_t h,
                     int64_t row0, int64_t key0, size_t keys, BackwardScratch& x) {
  const auto d = static_cast<size_t>(job.p.head_dim), e = static_cast<size_t>(job.p.head_dim_v);
  const size_t dp = PadToPanel(job.p.head_dim), ep = PadToPanel(job.p.head_dim_v);
  const int64_t g = h / job.ratio;
  const int64_t first = state.first_row(seq.b, g, job.p.kv_heads);
  const int64_t row_end = std::min<int64_t>(row0 + kQueryBlock, seq.len_q);
  const Tag tag;
  for (int64_t i = row0, n = 0; i < row_end; i += kPanel, ++n) {
    Panel& panel = x.panels[n];
    const size_t column = static_cast<size_t>(n) * kPanel;
    const auto count = static_cast<size_t>(std::min<int64_t>(kPanel, row_end - i));
    for (size_t lane = 0; lane < kPanel; ++lane) {
      const int64_t row = i + static_cast<int64_t>(lane);
      x.lse[column + lane] = std::numeric_limits<float>::infinity();
      x.delta[column + lane] = 0;
      if (lane >= count) continue;
      panel.set_lane(job, seq, lane, {row, h});
      x.lse[column + lane] = state.lse[first + row * job.ratio + h % job.ratio];
      x.delta[column + lane] = state.delta[first + row * job.ratio + h % job.ratio];
    }
    panel.finish(count);
    const RowRange rows = RowsOf(panel.any, key0, keys);
    if (rows.empty()) continue;
    LoadBackwardPanel(job, job.q, seq, panel, x.lse + column, d, dp, job.q_scale,
                      x.q_rows + column * dp, x.qt + column * d);
    LoadBackwardPanel(job, job.dout, seq, panel, x.lse + column, e, ep, 1.0f,
                      x.do_rows + column * ep, x.dot + column * e);
    PanelGradient(job, seq, x, static_cast<size_t>(n), x.k, x.v, key0, keys, rows, false);
    for (size_t r = rows.begin; r < rows.end; ++r) {
      for (size_t c = column; c < column + kPanel; c += kLanes) {
        float* sum = x.sum + r * kQ + c;
        hn::Store(hn::Add(hn::Load(tag, sum), hn::Load(tag, x.ds + r * kQ + c)), tag, sum);
      }
    }
  }
}

void BiasGradient(const Job& job, const Tiling& tiling, const BackwardState& state, int64_t batch,
                  int64_t head, int64_t row0, int64_t key0, void* scratch) {
  Arena arena(scratch);
  BackwardScratch x(job.p, tiling, arena);
  const strobe_score_tensor& bias = job.p.bias;
  const auto d = static_cast<size_t>(job.p.head_dim), e = static_cast<size_t>(job.p.head_dim_v);
  const bool one_row =
      bias.seqlen_q == 1;  // summed over queries; right, too, where there is one query
  std::memset(x.sum, 0, static_cast<size_t>(tiling.kv_block) * kQ * sizeof(float));

  const auto range = [](int64_t size, int64_t index, int64_t full) {
    return size == 1 ? core::KeyRange{0, full} : core::KeyRange{index, index + 1};
  };
  const core::KeyRange batches = range(bias.batch, batch, job.p.batch);
  const core::KeyRange heads = range(bias.heads, head, job.p.heads);
  for (int64_t b = batches.begin; b < batches.end; ++b) {
    const Sequence seq = job.sequence(b);
    const int64_t key_end = std::min(key0 + tiling.kv_block, seq.len_k);
    if (key0 >= key_end) continue;
    const auto keys = static_cast<size_t>(key_end - key0);
    for (int64_t h = heads.begin; h < heads.end; ++h) {
      LoadBlock(job.p.dtype, job.k, seq, h / job.ratio, key0, key_end, d, d, x.k);
      LoadBlock(job.p.dtype, job.v, seq, h / job.ratio, key0, key_end, e, e, x.v);
      const int64_t blocks = one_row ? ceil_div(seq.len_q, kQueryBlock) : 1;
      for (int64_t n = 0; n < blocks; ++n) {
        AddBiasGradient(job, state, seq, h, row0 + n * kQueryBlock, key0, keys, x);
      }
    }
  }

  float* out = static_cast<float*>(job.args.dbias) +
               (batch * bias.heads + head) * bias.seqlen_q * bias.seqlen_k + key0;
  const auto keys = static_cast<size_t>(std::min(tiling.kv_block, bias.seqlen_k - key0));
  if (one_row) {
    for (size_t r = 0; r < keys; ++r) {
      float sum = 0;
      for (size_t lane = 0; lane < kQ; ++lane) sum += x.sum[r * kQ + lane];
      out[r] = sum;
    }
    return;
  }
  const int64_t rows = std::min<int64_t>(kQueryBlock, bias.seqlen_q - row0);
  for (int64_t n = 0; n < rows; ++n) {
    float* row = out + (row0 + n) * bias.seqlen_k;
    for (size_t r = 0; r < keys; ++r) row[r] = x.sum[r * kQ + static_cast<size_t>(n)];
  }
}

}  // namespace strobe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
