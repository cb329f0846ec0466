// The family for whatever has no better one: float32 arithmetic for f32, bf16 and f16 whatever
// their shape, float64 for f64, merging, probabilities and keep masks.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/tensors.h"
#include "core/philox.h"
#include "gpu/backend.h"
#include "gpu/params.h"
#include "kernels/generic_params.h"
#include "kernels/oracle_params.h"

namespace strobe::gpu {
namespace {

using kernels::GenericBackwardParams;
using kernels::GenericForwardParams;
using kernels::MergeParams;
using kernels::MergeTableParams;
using kernels::RowParams;

constexpr std::int64_t kMostParts = 2 * MergeTableParams::kCapacity;

bool is_varlen(const strobe_problem& p) { return p.lengths == STROBE_VARLEN; }

api::Status supports(const strobe_problem& p, const api::Options&, const DeviceFacts&) {
  if (p.dtype == STROBE_F8E4M3 || p.dtype == STROBE_F8E5M2) {
    return api::unsupported(
        "dtype", "dtype: generic takes f32, bf16, f16 and f64, not fp8. Convert to one of them.");
  }
  if (p.op == STROBE_MERGE && p.partials > kMostParts) {
    return api::unsupported(
        "partials", fmt::format("partials is {}, but one merge on this device takes up to {}. "
                                "Merge groups of them first, into partial_dtype float32.",
                                p.partials, kMostParts));
  }
  return check_sizes(p);
}

// Of (query, key) pairs without masks.
double cost(const strobe_problem& p, const DeviceFacts& device) {
  constexpr double kLaunch = 4000;
  const double flops_per_ns_and_sm = p.dtype == STROBE_F64 ? 5 : 100;
  const auto dims = static_cast<double>(p.head_dim + p.head_dim_v);
  const double keys =
      is_varlen(p) && p.seqlen_k == 0
          ? static_cast<double>(p.total_k) / static_cast<double>(std::max<std::int64_t>(p.batch, 1))
          : static_cast<double>(p.seqlen_k);
  const double flops =
      2 * dims * static_cast<double>(p.total_q) * keys * static_cast<double>(p.heads);
  return kLaunch + flops / (flops_per_ns_and_sm * device.sms);
}

const char* suffix(strobe_dtype dtype) {
  switch (dtype) {
    case STROBE_BF16:
      return "bf16";
    case STROBE_F16:
      return "f16";
    case STROBE_F64:
      return "f64";
    default:
      return "f32";
  }
}

std::uint32_t grid_of(std::uint64_t ctas) {  // the kernels loop over what is beyond
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(ctas, std::numeric_limits<std::int32_t>::max()));
}

std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

// As these kernels want it: they find sequences by cu_seqlens themselves, none included, and
// keep_scale is a factor even without dropout.
kernels::Attention attention_of(const strobe_problem& p, const strobe_run_args& args) {
  kernels::Attention a = attention(p, args, 1, false);
  if (a.mod.keep_scale == 0) a.mod.keep_scale = 1;
  if (is_varlen(p) && p.batch == 0) {
    a.batch = 0;
    a.lengths = {};
    a.lengths.total_q = p.total_q;
    a.lengths.total_k = p.total_k;
    a.lengths.cu_q = args.cu_seqlens_q;
    a.lengths.cu_k = args.cu_seqlens_k;
    if (p.sinks) a.sinks = static_cast<const float*>(args.sinks);
  }
  return a;
}

// A plan is a list of rows by name, and how one run launches them.
class RowsPlan : public KernelPlan {
 public:
  RowsPlan(const strobe_problem& problem, std::string arithmetic)
      : p_(problem), arithmetic_(std::move(arithmetic)) {}

  api::Status find(const std::vector<std::string>& names, const DeviceFacts& device) {
    for (const std::string& name : names) {
      needs_.emplace_back();
      if (api::Status s = find_need(name, device, &needs_.back()); !s.ok()) return s;
    }
    return {};
  }
  std::vector<Need> needs() const override { return needs_; }

  api::Facts facts() const override {
    std::string rows;
    for (const Need& need : needs_) {
      if (!rows.empty()) rows += ", ";
      rows += need.shape->name;
    }
    return {{"rows", rows}, {"arithmetic", arithmetic_}};
  }

 protected:
  template <class Params>
  void launch(Program* program, const LoadedKernel* const* loaded, std::size_t n,
              std::uint64_t ctas, const Params& params) const {
    program->launch(*loaded[n], *needs_[n].shape, grid_of(ctas), params);
  }

  const strobe_problem p_;

 private:
  std::string arithmetic_;
  std::vector<Need> needs_;
};

// ---- Float32 arithmetic

kernels::GenericConfig config_of(const strobe_problem& p) {
  const bool small = p.dtype == STROBE_F32 && std::max(p.head_dim, p.head_dim_v) <= 128;
  return kernels::generic_config(core::Dtype::kF32, small ? 128 : 512);
}

std::string row_name(const char* kernel, const strobe_problem& p) {
  return fmt::format("generic_{}_{}_d{}", kernel, suffix(p.dtype), config_of(p).max_dim);
}

std::uint64_t query_tiles(const strobe_problem& p, int own_rows) {
  return kernels::generic_tiles(is_varlen(p), p.batch, p.seqlen_q, p.total_q, own_rows) *
         static_cast<std::uint64_t>(p.heads);
}
std::uint64_t key_tiles(const strobe_problem& p, int own_rows) {
  return kernels::generic_tiles(is_varlen(p), p.batch, p.seqlen_k, p.total_k, own_rows) *
         static_cast<std::uint64_t>(p.kv_heads);
}

class GenericForward final : public RowsPlan {
 public:
  using RowsPlan::RowsPlan;

  void build(const strobe_run_args& args, const LoadedKernel* const* loaded,
             Program* program) const override {
    GenericForwardParams params = {};
    kernels::ForwardParams& f = params.f;
    f.a = attention_of(p_, args);
    f.q = tensor_arg(args.q, p_.q_strides);
    f.k = tensor_arg(args.k, p_.k_strides);
    f.v = tensor_arg(args.v, p_.v_strides);
    f.o = tensor_arg(args.o, p_.o_strides);
    f.lse = static_cast<float*>(args.lse);
    f.lse_stride = strides(p_.lse_strides);
    params.tiles = query_tiles(p_, config_of(p_).own_rows);
    launch(program, loaded, 0, params.tiles, params);
  }
};

class GenericBackward final : public RowsPlan {
 public:
  using RowsPlan::RowsPlan;
  enum Row { kDelta, kDq, kDkv, kDsink, kDbias };

  static std::vector<std::string> rows(const strobe_problem& p) {
    const char* dtype = suffix(p.dtype);
    return {fmt::format("generic_delta_{}", dtype), row_name("dq", p), row_name("dkv", p),
            "generic_dsink", fmt::format("generic_dbias_{}", dtype)};
  }

  std::size_t workspace_bytes() const override { return row_bytes() * (p_.sinks ? 2 : 1); }

  void build(const strobe_run_args& args, const LoadedKernel* const* loaded,
             Program* program) const override {
    constexpr int kDeltaRows = 64;
    GenericBackwardParams params = parameters(args);
    const int own_rows = config_of(p_).own_rows;
    params.tiles = query_tiles(p_, kDeltaRows);
    launch(program, loaded, kDelta, params.tiles, params);
    params.tiles = query_tiles(p_, own_rows);
    launch(program, loaded, kDq, params.tiles, params);
    params.tiles = key_tiles(p_, own_rows);
    launch(program, loaded, kDkv, params.tiles, params);
    if (args.dsinks) launch(program, loaded, kDsink, static_cast<std::uint64_t>(p_.heads), params);
    if (!args.dbias) return;
    const strobe_score_tensor& b = p_.bias;
    params.tiles =
        static_cast<std::uint64_t>(b.batch * b.heads * ceil_div(b.seqlen_q, kernels::kDbiasRows) *
                                   ceil_div(b.seqlen_k, kernels::kDbiasKeys));
    launch(program, loaded, kDbias, params.tiles, params);
  }

 private:
  std::size_t row_bytes() const {
    return aligned(static_cast<std::size_t>(p_.heads * p_.total_q) * sizeof(float));
  }

  GenericBackwardParams parameters(const strobe_run_args& args) const {
    GenericBackwardParams params = {};
    params.g = gradients(p_, args, attention_of(p_, args));
    params.delta = static_cast<float*>(args.workspace);
    if (args.dsinks) {
      params.sink_term = reinterpret_cast<float*>(static_cast<char*>(args.workspace) + row_bytes());
    }
    params.delta_head = p_.total_q;
    params.bias_batch = p_.bias.batch;
    params.bias_heads = p_.bias.heads;
    params.bias_rows = static_cast<int>(p_.bias.seqlen_q);
    params.bias_keys = static_cast<int>(p_.bias.seqlen_k);
    return params;
  }
};

// ---- Row by row: float64, probabilities, keep mask

RowParams row_params(const strobe_problem& p, const strobe_run_args& args) {
  RowParams r = {};
  r.a = attention_of(p, args);
  r.scale = p.scale;
  r.softcap = p.softcap;
  r.keep_scale = api::uses_dropout(p) ? 1 / (1 - p.dropout_p) : 1;
  r.sinks = p.sinks ? args.sinks : nullptr;
  r.alibi = p.alibi != STROBE_ALIBI_NONE ? args.alibi_slopes : nullptr;
  r.q = tensor_arg(args.q, p.q_strides);
  r.k = tensor_arg(args.k, p.k_strides);
  r.v = tensor_arg(args.v, p.v_strides);
  r.o = tensor_arg(args.o, p.o_strides);
  r.dout = tensor_arg(args.dout, p.dout_strides);
  r.dq = tensor_arg(args.dq, p.dq_strides);
  r.dk = tensor_arg(args.dk, p.dk_strides);
  r.dv = tensor_arg(args.dv, p.dv_strides);
  r.lse = args.lse;
  r.lse_stride = strides(p.lse_strides);
  r.dlse = args.dlse;
  r.dlse_stride = strides(p.dlse_strides);
  r.dbias = args.dbias;
  r.bias_batch = p.bias.batch;
  r.bias_heads = p.bias.heads;
  r.bias_rows = static_cast<int>(p.bias.seqlen_q);
  r.bias_keys = static_cast<int>(p.bias.seqlen_k);
  r.dsinks = args.dsinks;
  r.rows = reinterpret_cast<const kernels::i64*>(args.rows);
  r.num_rows = p.num_rows;
  r.out_keys = static_cast<int>(p.seqlen_k);
  r.probs = args.probs;
  r.keep_mask = args.keep_mask;
  return r;
}

class RowByRow final : public RowsPlan {
 public:
  using RowsPlan::RowsPlan;

  static std::vector<std::string> rows(const strobe_problem& p) {
    switch (p.op) {
      case STROBE_FORWARD:
        return {"oracle_fwd_f64"};
      case STROBE_BACKWARD:
        return {"oracle_dq_f64", "oracle_dkv_f64", "oracle_dsink_f64", "oracle_dbias_f64"};
      case STROBE_PROBS:
        return {fmt::format("probs_{}", suffix(p.dtype))};
      default:
        return {"keep_mask"};
    }
  }

  void build(const strobe_run_args& args, const LoadedKernel* const* loaded,
             Program* program) const override {
    const RowParams params = row_params(p_, args);
    const auto heads = p_.heads;
    if (p_.op == STROBE_FORWARD) {
      add(program, loaded, 0, heads * p_.total_q, params);
    } else if (p_.op == STROBE_BACKWARD) {
      add(program, loaded, 0, heads * p_.total_q, params);
      add(program, loaded, 1, p_.kv_heads * p_.total_k, params);
      if (args.dsinks) add(program, loaded, 2, heads, params);
      const strobe_score_tensor& b = p_.bias;
      if (args.dbias) {
        const auto key_items = ceil_div(b.seqlen_k, kWarpItems);
        add(program, loaded, 3, b.batch * b.heads * b.seqlen_q * key_items, params);
      }
    } else {
      add(program, loaded, 0, (is_varlen(p_) ? 1 : p_.batch) * heads * p_.num_rows,
          p_.op == STROBE_KEEP_MASK ? with_dropout(params, args) : params);
    }
  }

 private:
  static constexpr std::int64_t kWarpItems = 32;
  static constexpr std::uint64_t kWarps = 4;  // of a CTA, each an item

  void add(Program* program, const LoadedKernel* const* loaded, std::size_t n, std::int64_t items,
           RowParams params) const {
    params.items = static_cast<std::uint64_t>(items);
    launch(program, loaded, n, (params.items + kWarps - 1) / kWarps, params);
  }

  // The mask is asked for whatever forward would do.
  RowParams with_dropout(RowParams params, const strobe_run_args& args) const {
    kernels::Modifiers& m = params.a.mod;
    m.keep_threshold = core::dropout_threshold(p_.dropout_p);
    m.seed = args.dropout_seed;
    m.offset = args.dropout_offset;
    m.state = reinterpret_cast<const kernels::u64*>(args.dropout_state);
    return params;
  }
};

// ---- Merge

class MergePlan final : public RowsPlan {
 public:
  using RowsPlan::RowsPlan;

  static std::vector<std::string> rows(const strobe_problem& p) {
    return {"merge_table", fmt::format("merge_{}", suffix(p.dtype))};
  }

  std::size_t workspace_bytes() const override { return 2 * table_bytes(); }

  void build(const strobe_run_args& args, const LoadedKernel* const* loaded,
             Program* program) const override {
    if (args.partial_o == nullptr || args.partial_lse == nullptr) return;  // no elements
    auto* const o = static_cast<const void**>(args.workspace);
    auto* const lse =
        reinterpret_cast<const void**>(static_cast<char*>(args.workspace) + table_bytes());
    add_table(program, loaded, o, args.partial_o);
    add_table(program, loaded, lse, args.partial_lse);
    MergeParams params = {};
    params.partial_o = o;
    params.partial_lse = lse;
    params.parts = p_.partials;
    params.partial_is_real = p_.partial_dtype != p_.dtype;
    params.o = tensor_arg(args.o, p_.o_strides);
    params.lse = args.lse;
    params.lse_stride = strides(p_.lse_strides);
    params.batch = is_varlen(p_) ? 1 : p_.batch;
    params.rows = is_varlen(p_) ? p_.total_q : p_.seqlen_q;
    params.heads = static_cast<int>(p_.heads);
    params.head_dim_v = static_cast<int>(p_.head_dim_v);
    const auto items = static_cast<std::uint64_t>(params.batch * params.rows * p_.heads);
    launch(program, loaded, 1, (items + 3) / 4, params);
  }

 private:
  std::size_t table_bytes() const {
    return aligned(static_cast<std::size_t>(p_.partials) * sizeof(void*));
  }
  void add_table(Program* program, const LoadedKernel* const* loaded, const void** to,
                 const void* const* pointers) const {
    for (int first = 0; first < p_.partials; first += MergeTableParams::kCapacity) {
      MergeTableParams params = {};
      params.to = to + first;
      params.count = std::min(p_.partials - first, MergeTableParams::kCapacity);
      std::copy_n(pointers + first, params.count, params.pointers);
      launch(program, loaded, 0, 1, params);
    }
  }
};

// ---- The family

template <class Plan>
api::Status make(const strobe_problem& p, const DeviceFacts& device, const char* arithmetic,
                 const std::vector<std::string>& rows, std::unique_ptr<KernelPlan>* planned) {
  auto plan = std::make_unique<Plan>(p, arithmetic);
  if (api::Status s = plan->find(rows, device); !s.ok()) return s;
  *planned = std::move(plan);
  return {};
}

api::Status plan(const strobe_problem& p, const api::Options&, const DeviceFacts& device,
                 std::unique_ptr<KernelPlan>* planned) {
  const bool f64 = p.dtype == STROBE_F64;
  const char* arithmetic = f64 ? "float64, one warp per row" : "float32, one warp per row";
  if (p.op == STROBE_MERGE) {
    return make<MergePlan>(p, device, arithmetic, MergePlan::rows(p), planned);
  }
  if (f64 || p.op == STROBE_PROBS || p.op == STROBE_KEEP_MASK) {
    return make<RowByRow>(p, device, arithmetic, RowByRow::rows(p), planned);
  }
  if (p.op == STROBE_BACKWARD) {
    return make<GenericBackward>(p, device, "float32, every sum in a fixed order",
                                 GenericBackward::rows(p), planned);
  }
  return make<GenericForward>(p, device, "float32", {row_name("fwd", p)}, planned);
}

constexpr Family kGeneric = {
    "generic", "float32 and float64 arithmetic: any head dimension, every operation",
    {},        supports,
    cost,      plan};

}  // namespace

const api::Backend kGenericOnCuda = BackendOf<kGeneric, STROBE_DEVICE_CUDA>::kRow;
const api::Backend kGenericOnEmulator = BackendOf<kGeneric, STROBE_DEVICE_EMULATOR>::kRow;

}  // namespace strobe::gpu
