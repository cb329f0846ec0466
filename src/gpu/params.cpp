#include "gpu/params.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "api/tensors.h"
#include "core/philox.h"

namespace strobe::gpu {
namespace {

// Rows of a sequence, and distances, that 32-bit arithmetic of a few terms holds.
constexpr std::int64_t kFar = core::Band32::kFar;

int narrow(std::int64_t x) { return static_cast<int>(std::clamp<std::int64_t>(x, -kFar, kFar)); }

kernels::ScoreArg score_arg(const void* data, const strobe_score_tensor& t) {
  if (t.dtype == STROBE_NONE) return {};
  return {.data = data,
          .batch = t.batch == 1 ? 0 : t.stride_batch,
          .head = t.heads == 1 ? 0 : t.stride_head,
          .row = t.seqlen_q == 1 ? 0 : t.stride_q,
          .is_f32 = t.dtype == STROBE_F32};
}

kernels::Modifiers modifiers(const strobe_problem& p, const strobe_run_args& args) {
  kernels::Modifiers m = {};
  m.softcap = static_cast<float>(p.softcap);
  if (p.alibi != STROBE_ALIBI_NONE) {
    m.alibi = static_cast<const float*>(args.alibi_slopes);
    m.alibi_batch = p.alibi == STROBE_ALIBI_PER_BATCH_HEAD ? p.heads : 0;
  }
  m.bias = score_arg(args.bias, p.bias);
  m.mask = score_arg(args.mask, p.mask);
  if (api::uses_dropout(p)) {
    m.keep_threshold = core::dropout_threshold(p.dropout_p);
    m.keep_scale = static_cast<float>(1.0 / (1.0 - p.dropout_p));
    m.seed = args.dropout_seed;
    m.offset = args.dropout_offset;
    m.state = reinterpret_cast<const kernels::u64*>(args.dropout_state);
  }
  return m;
}

kernels::Lengths lengths(const strobe_problem& p, const strobe_run_args& args) {
  kernels::Lengths n = {};
  n.seqlen_q = narrow(max_seqlen_q(p));
  n.seqlen_k = narrow(max_seqlen_k(p));
  n.total_q = p.total_q;
  n.total_k = p.total_k;
  if (p.lengths == STROBE_VARLEN) {
    n.cu_q = args.cu_seqlens_q;
    n.cu_k = args.cu_seqlens_k;
  }
  if (p.lengths != STROBE_DENSE) {
    n.used_q = args.seqlens_q;
    n.used_k = args.seqlens_k;
  }
  return n;
}

}  // namespace

std::int64_t max_seqlen_q(const strobe_problem& p) {
  return p.lengths == STROBE_VARLEN && p.seqlen_q == 0 ? p.total_q : p.seqlen_q;
}
std::int64_t max_seqlen_k(const strobe_problem& p) {
  return p.lengths == STROBE_VARLEN && p.seqlen_k == 0 ? p.total_k : p.seqlen_k;
}

api::Status check_sizes(const strobe_problem& p) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const struct {
    const char* name;
    std::int64_t value, limit;
  } sizes[] = {{"seqlen_q", max_seqlen_q(p), kFar},
               {"seqlen_k", max_seqlen_k(p), kFar},
               {"heads", p.heads, kMost},
               {"batch", p.batch, kMost / p.heads}};
  for (const auto& size : sizes) {
    if (size.value <= size.limit) continue;
    return api::unsupported(
        size.name, fmt::format("{} is {}, but the GPU kernels count up to {}{}. Split the problem, "
                               "or plan for the CPU.",
                               size.name, size.value, size.limit,
                               std::string_view(size.name) == "batch" ? " with these heads" : ""));
  }
  return {};
}

std::string reasons_for_full(const strobe_problem& p) {
  std::string reasons;
  const auto add = [&](bool holds, const char* reason) {
    if (holds) reasons += reasons.empty() ? reason : fmt::format(", {}", reason);
  };
  // Plain rows fold the scale into the exponential, after the maximum: it must be positive, and its
  // product with a score must neither vanish nor overflow.
  add(!(p.scale >= 0x1p-60 && p.scale <= 0x1p60), "scale is not positive or is extreme");
  add(p.softcap != 0, "softcap");
  add(p.alibi != STROBE_ALIBI_NONE, "ALiBi");
  add(p.bias.dtype != STROBE_NONE, "bias");
  add(p.mask.dtype != STROBE_NONE, "mask");
  add(api::uses_dropout(p), "dropout");
  return reasons;
}

std::string reason_for_scalar_loads(const strobe_problem& p) {
  constexpr int kBytes = 16;
  const auto per_chunk = kBytes / static_cast<std::int64_t>(strobe_dtype_bytes(p.dtype));
  if (p.alignment_bytes < kBytes) return fmt::format("alignment_bytes is {}", p.alignment_bytes);
  if (p.head_dim % per_chunk != 0) return fmt::format("head_dim is {}", p.head_dim);
  if (p.head_dim_v % per_chunk != 0) return fmt::format("head_dim_v is {}", p.head_dim_v);
  for (const api::StrideField& field : api::stride_fields()) {
    const std::string_view name = field.name;
    if (field.inner == api::StrideField::kNone) continue;
    const bool gradient = name.starts_with('d');
    if (gradient && p.op != STROBE_BACKWARD) continue;
    const api::Tensor t = api::tensor_of(p, field);
    for (int d = 0; d < 3; ++d) {
      if (t.sizes[d] > 1 && t.strides[d] % per_chunk != 0) {
        return fmt::format("{} has a stride of {}", name, t.strides[d]);
      }
    }
  }
  return {};
}

kernels::Strides strides(const strobe_strides& s) { return {s.batch, s.seq, s.head}; }

kernels::Attention attention(const strobe_problem& p, const strobe_run_args& args, int pack,
                             bool vector_loads) {
  kernels::Attention a = {};
  a.batch = static_cast<int>(p.batch);
  a.heads = static_cast<int>(p.heads);
  a.kv_heads = static_cast<int>(p.kv_heads);
  a.ratio = a.heads / a.kv_heads;
  a.packed_heads = a.heads / pack;
  a.head_dim = static_cast<int>(p.head_dim);
  a.head_dim_v = static_cast<int>(p.head_dim_v);
  a.pack = pack;
  a.vector_loads = vector_loads;
  a.lengths = lengths(p, args);
  a.band = {narrow(p.window_left), narrow(p.window_right), 0};
  a.auto_offset = p.query_offset == STROBE_AUTO;
  if (!a.auto_offset) a.band.offset = narrow(p.query_offset);
  a.scale = static_cast<float>(p.scale);
  if (p.sinks) a.sinks = static_cast<const float*>(args.sinks);
  a.mod = modifiers(p, args);
  return a;
}

kernels::Gradients gradients(const strobe_problem& p, const strobe_run_args& args,
                             const kernels::Attention& attention) {
  kernels::Gradients g = {};
  g.a = attention;
  g.q = tensor_arg(args.q, p.q_strides);
  g.k = tensor_arg(args.k, p.k_strides);
  g.v = tensor_arg(args.v, p.v_strides);
  g.o = tensor_arg(args.o, p.o_strides);
  g.dout = tensor_arg(args.dout, p.dout_strides);
  g.dq = tensor_arg(args.dq, p.dq_strides);
  g.dk = tensor_arg(args.dk, p.dk_strides);
  g.dv = tensor_arg(args.dv, p.dv_strides);
  g.lse = static_cast<const float*>(args.lse);
  g.lse_stride = strides(p.lse_strides);
  g.dlse = static_cast<const float*>(args.dlse);
  g.dlse_stride = strides(p.dlse_strides);
  g.dbias = static_cast<float*>(args.dbias);
  if (g.dbias) {
    const strobe_score_tensor& t = p.bias;
    g.dbias_row = t.seqlen_q == 1 ? 0 : t.seqlen_k;
    g.dbias_head = t.heads == 1 ? 0 : t.seqlen_q * t.seqlen_k;
    g.dbias_batch = t.batch == 1 ? 0 : t.heads * t.seqlen_q * t.seqlen_k;
  }
  g.dsinks = static_cast<float*>(args.dsinks);
  return g;
}

}  // namespace strobe::gpu
