#include "cpu/job.h"

#include <cmath>

namespace strobe::cpu {

Job::Job(const strobe_problem& problem, const strobe_run_args& run_args,
         const std::optional<strobe_executor>& user_executor, int thread_count)
    : p(problem),
      args(run_args),
      executor(user_executor),
      threads(thread_count),
      ratio(problem.heads / problem.kv_heads),
      element_bytes(strobe_dtype_bytes(problem.dtype)),
      q_scale(problem.scale == 0 ? 0.0f : (problem.scale < 0 ? -1.0f : 1.0f)),
      score_scale(problem.scale == 0 ? 1.0f : static_cast<float>(std::abs(problem.scale))),
      softcap(static_cast<float>(problem.softcap)),
      keep_threshold(core::dropout_threshold(problem.dropout_p)),
      keep_scale(static_cast<float>(1.0 / (1.0 - problem.dropout_p))),
      q(run_args.q, problem.q_strides, element_bytes),
      k(run_args.k, problem.k_strides, element_bytes),
      v(run_args.v, problem.v_strides, element_bytes),
      o(run_args.o, problem.o_strides, element_bytes),
      lse(run_args.lse, problem.lse_strides, sizeof(float)),
      dout(run_args.dout, problem.dout_strides, element_bytes),
      dlse(run_args.dlse, problem.dlse_strides, sizeof(float)),
      dq(run_args.dq, problem.dq_strides, element_bytes),
      dk(run_args.dk, problem.dk_strides, element_bytes),
      dv(run_args.dv, problem.dv_strides, element_bytes),
      bias(run_args.bias, problem.bias, strobe_dtype_bytes(problem.bias.dtype)),
      mask(run_args.mask, problem.mask, 1) {}

Sequence Job::sequence(std::int64_t b) const {
  Sequence s{b, b, 0, 0, p.seqlen_q, p.seqlen_k, {}};
  if (p.lengths == STROBE_VARLEN) {
    s.batch = 0;
    s.q_begin = args.cu_seqlens_q[b];
    s.k_begin = args.cu_seqlens_k[b];
    s.len_q = args.cu_seqlens_q[b + 1] - s.q_begin;
    s.len_k = args.cu_seqlens_k[b + 1] - s.k_begin;
  }
  if (p.lengths != STROBE_DENSE) {
    if (args.seqlens_q) s.len_q = args.seqlens_q[b];
    if (args.seqlens_k) s.len_k = args.seqlens_k[b];
  }
  const std::int64_t offset = p.query_offset == STROBE_AUTO ? s.len_k - s.len_q : p.query_offset;
  s.band = {p.window_left, p.window_right, offset};
  return s;
}

}  // namespace strobe::cpu
