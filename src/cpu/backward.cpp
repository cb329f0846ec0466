#include <cmath>

#include "cpu/driver.h"
#include "cpu/items.h"
#include "cpu/parallel.h"

namespace strobe::cpu {
namespace {

struct BackwardWorkspace {
  std::int64_t* first_item;   // [batch + 1]
  std::int64_t* first_block;  // [batch + 1], query blocks of all heads
  std::int64_t* row_begin;    // [batch + 1], as in the state
  std::int64_t* block_begin;
  BackwardState state;
  char* scratch;  // [threads][scratch_bytes]
  std::size_t scratch_bytes;

  BackwardWorkspace(const Setup& s, Arena& arena) {
    first_item = arena.take<std::int64_t>(s.p.batch + 1);
    first_block = arena.take<std::int64_t>(s.p.batch + 1);
    row_begin = arena.take<std::int64_t>(s.p.batch + 1);
    block_begin = arena.take<std::int64_t>(s.p.batch + 1);
    const std::int64_t rows = total_rows(s);
    // With one key chunk dQ is finished at once.
    const bool one_chunk = s.p.seqlen_k > 0 && s.p.seqlen_k <= s.tiling.kv_chunk;
    state.row_begin = row_begin;
    state.block_begin = block_begin;
    state.delta = arena.take<float>(rows);
    state.lse = arena.take<float>(rows);
    state.dq = arena.take<float>(one_chunk ? 0 : rows * s.p.head_dim);
    state.turn = arena.take<std::atomic<std::int64_t>>(max_blocks(s));
    scratch_bytes = s.kernels.backward_scratch(s.p, s.tiling);
    scratch = arena.take<char>(static_cast<std::int64_t>(scratch_bytes) * s.threads);
  }

  static std::int64_t total_rows(const Setup& s) {
    return s.p.heads * (s.p.lengths == STROBE_VARLEN ? s.p.total_q : s.p.batch * s.p.seqlen_q);
  }

  // Of all heads; each sequence may end in a partial block.
  static std::int64_t max_blocks(const Setup& s) {
    return total_rows(s) / kQueryBlock + s.p.batch * s.p.kv_heads;
  }
};

// dsinks[h] = -sum over queries of exp(sink - LSE) * delta, in double: it is one number for all of
// them.
void sink_gradient(const Job& job, const BackwardState& state, std::int64_t h) {
  const std::int64_t g = h / job.ratio;
  const double sink = job.sink(h);
  double sum = 0;
  for (std::int64_t b = 0; b < job.p.batch; ++b) {
    const Sequence seq = job.sequence(b);
    const std::int64_t first = state.first_row(b, g, job.p.kv_heads);
    for (std::int64_t i = 0; i < seq.len_q; ++i) {
      const std::int64_t r = first + i * job.ratio + h % job.ratio;
      if (state.lse[r] == std::numeric_limits<float>::infinity()) continue;
      sum -= std::exp(sink - state.lse[r]) * state.delta[r];
    }
  }
  static_cast<float*>(job.args.dsinks)[h] = static_cast<float>(sum);
}

void bias_gradient(const Setup& setup, const Job& job, const BackwardWorkspace& w) {
  const strobe_score_tensor& bias = job.p.bias;
  const std::int64_t row_blocks = ceil_div(bias.seqlen_q, kQueryBlock);
  const std::int64_t key_blocks = ceil_div(bias.seqlen_k, setup.tiling.kv_block);
  parallel_for(job.executor, job.threads, bias.batch * bias.heads * row_blocks * key_blocks,
               [&](std::int64_t index, std::int32_t worker) {
                 const std::int64_t key_block = index % key_blocks;
                 const std::int64_t row_block = index / key_blocks % row_blocks;
                 const std::int64_t map = index / key_blocks / row_blocks;
                 setup.kernels.bias_grad(job, setup.tiling, w.state, map / bias.heads,
                                         map % bias.heads, row_block * kQueryBlock,
                                         key_block * setup.tiling.kv_block,
                                         w.scratch + worker * w.scratch_bytes);
               });
}

}  // namespace

std::size_t backward_workspace(const Setup& setup) {
  Arena arena;
  BackwardWorkspace(setup, arena);
  return arena.bytes();
}

void run_backward(const Setup& setup, const Job& job) {
  Arena arena(job.args.workspace);
  const BackwardWorkspace w(setup, arena);
  const std::int64_t kv_heads = job.p.kv_heads;
  fill_outside_queries(job, job.dq, job.p.heads, job.p.head_dim, false);
  fill_outside_keys(job, job.dk, job.p.head_dim);
  fill_outside_keys(job, job.dv, job.p.head_dim_v);

  w.first_item[0] = w.first_block[0] = w.row_begin[0] = w.block_begin[0] = 0;
  for (std::int64_t b = 0; b < job.p.batch; ++b) {
    const Sequence seq = job.sequence(b);
    const std::int64_t blocks = ceil_div(seq.len_q * job.ratio, kQueryBlock);
    w.first_item[b + 1] = w.first_item[b] + ceil_div(seq.len_k, setup.tiling.kv_chunk) * kv_heads;
    w.first_block[b + 1] = w.first_block[b] + blocks * kv_heads;
    w.row_begin[b + 1] = w.row_begin[b] + seq.len_q * job.ratio;
    w.block_begin[b + 1] = w.block_begin[b] + blocks;
  }
  parallel_for(job.executor, job.threads, w.first_block[job.p.batch],
               [&](std::int64_t index, std::int32_t worker) {
                 const Item at = find_item(w.first_block, job.p.batch, index);
                 setup.kernels.backward_rows(job, setup.tiling, w.state, job.sequence(at.b),
                                             at.index % kv_heads, at.index / kv_heads,
                                             w.scratch + worker * w.scratch_bytes);
               });
  // Ascending chunks, heads side by side: with a causal mask the first chunk is the longest, and
  // the chunks of one head, which add to the same dQ in turn, are far apart.
  parallel_for(
      job.executor, job.threads, w.first_item[job.p.batch],
      [&](std::int64_t index, std::int32_t worker) {
        const Item at = find_item(w.first_item, job.p.batch, index);
        const BackwardItem item{job.sequence(at.b), at.index % kv_heads, at.index / kv_heads};
        setup.kernels.backward(job, setup.tiling, w.state, item,
                               w.scratch + worker * w.scratch_bytes);
      });
  if (job.args.dbias) bias_gradient(setup, job, w);
  if (job.args.dsinks) {
    parallel_for(job.executor, job.threads, job.p.heads,
                 [&](std::int64_t h, std::int32_t) { sink_gradient(job, w.state, h); });
  }
}

}  // namespace strobe::cpu
