// Definitions of strobe.hpp: conversions to the C structs and calls of the C ABI. Nothing to use
// directly.
#ifndef STROBE_DETAIL_STROBE_IMPL_HPP_
#define STROBE_DETAIL_STROBE_IMPL_HPP_

#include <strobe/strobe.hpp>

namespace strobe {
namespace detail {

inline strobe_strides to_c(const Strides& s) { return {s.batch, s.seq, s.head}; }

inline strobe_score_tensor to_c(const ScoreTensor& t) {
  return {static_cast<strobe_dtype>(t.dtype),
          0,
          t.batch,
          t.heads,
          t.seqlen_q,
          t.seqlen_k,
          t.stride_batch,
          t.stride_head,
          t.stride_q};
}

// Text of a C function that fills a buffer and returns the size it needs.
template <class Fill>
std::string text_of(Fill fill) {
  std::string text(fill(nullptr, std::size_t{0}), '\0');
  fill(text.data(), text.size());
  if (!text.empty()) text.pop_back();  // the final 0
  return text;
}

}  // namespace detail

inline strobe_problem Problem::to_c() const {
  strobe_problem c;
  strobe_problem_init(&c);
  c.op = static_cast<strobe_op>(op);
  c.dtype = static_cast<strobe_dtype>(dtype);
  c.layout = static_cast<strobe_layout>(layout);
  c.batch = batch;
  c.heads = heads;
  c.kv_heads = kv_heads.value_or(STROBE_AUTO);
  c.seqlen_q = seqlen_q;
  c.seqlen_k = seqlen_k;
  c.head_dim = head_dim;
  c.head_dim_v = head_dim_v.value_or(STROBE_AUTO);
  c.lengths = static_cast<strobe_lengths>(lengths);
  c.deterministic = deterministic;
  c.total_q = total_q;
  c.total_k = total_k;
  c.scale = scale.value_or(STROBE_SCALE_AUTO);
  c.softcap = softcap;
  c.window_left = mask.left;
  c.window_right = mask.right;
  c.query_offset = mask.offset.value_or(STROBE_AUTO);
  c.alibi = static_cast<strobe_alibi>(alibi);
  c.sinks = sinks;
  c.bias = detail::to_c(bias);
  c.mask = detail::to_c(bool_mask);
  c.dropout_p = dropout_p;
  c.q_strides = detail::to_c(q_strides);
  c.k_strides = detail::to_c(k_strides);
  c.v_strides = detail::to_c(v_strides);
  c.o_strides = detail::to_c(o_strides);
  c.lse_strides = detail::to_c(lse_strides);
  c.dout_strides = detail::to_c(dout_strides);
  c.dlse_strides = detail::to_c(dlse_strides);
  c.dq_strides = detail::to_c(dq_strides);
  c.dk_strides = detail::to_c(dk_strides);
  c.dv_strides = detail::to_c(dv_strides);
  c.alignment_bytes = alignment_bytes;
  c.partials = partials;
  c.partial_dtype = static_cast<strobe_dtype>(partial_dtype);
  c.num_rows = num_rows;
  return c;
}

inline Status Problem::check() const {
  const strobe_problem c = to_c();
  strobe_status status;
  strobe_problem_check(&c, &status);
  return Status(status);
}

inline strobe_run_args RunArgs::to_c() const {
  strobe_run_args c;
  strobe_run_args_init(&c);
  c.q = q;
  c.k = k;
  c.v = v;
  c.o = o;
  c.lse = lse;
  c.dout = dout;
  c.dlse = dlse;
  c.dq = dq;
  c.dk = dk;
  c.dv = dv;
  c.dbias = dbias;
  c.dsinks = dsinks;
  c.bias = bias;
  c.mask = mask;
  c.alibi_slopes = alibi_slopes;
  c.sinks = sinks;
  c.cu_seqlens_q = cu_seqlens_q;
  c.cu_seqlens_k = cu_seqlens_k;
  c.seqlens_q = seqlens_q;
  c.seqlens_k = seqlens_k;
  c.dropout_seed = dropout_seed;
  c.dropout_offset = dropout_offset;
  c.dropout_state = dropout_state;
  c.partial_o = partial_o;
  c.partial_lse = partial_lse;
  c.rows = rows;
  c.probs = probs;
  c.keep_mask = keep_mask;
  c.workspace = workspace.data;
  c.workspace_bytes = workspace.bytes;
  return c;
}

inline Result<Plan> make_plan(const Problem& problem, const PlanOptions& options) {
  const strobe_problem c = problem.to_c();
  strobe_plan_options c_options;
  strobe_plan_options_init(&c_options);
  c_options.device = options.device.kind;
  c_options.device_index = options.device.index;
  c_options.threads = options.threads;
  c_options.kernel = options.kernel.empty() ? nullptr : options.kernel.c_str();
  c_options.overrides = options.overrides.empty() ? nullptr : options.overrides.c_str();
  c_options.executor = options.executor;
  strobe_plan* plan = nullptr;
  strobe_status status;
  if (strobe_plan_create(&c, &c_options, &plan, &status) != STROBE_OK) return Status(status);
  return Plan(plan);
}

inline strobe_plan_facts Plan::facts() const {
  strobe_plan_facts facts{};
  facts.struct_size = sizeof(facts);
  strobe_plan_get_facts(plan_.get(), &facts, nullptr);
  return facts;
}

inline std::string Plan::explain(strobe_format format) const {
  return detail::text_of([&](char* buffer, std::size_t capacity) {
    return strobe_plan_explain(plan_.get(), format, buffer, capacity);
  });
}

inline Status Plan::run(const RunArgs& args, void* stream) const {
  const strobe_run_args c = args.to_c();
  strobe_status status;
  strobe_plan_run(plan_.get(), &c, stream, &status);
  return Status(status);
}

inline std::string library_info(strobe_format format) {
  return detail::text_of([&](char* buffer, std::size_t capacity) {
    return strobe_library_info(format, buffer, capacity);
  });
}

}  // namespace strobe

#endif  // STROBE_DETAIL_STROBE_IMPL_HPP_
