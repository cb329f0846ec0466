// Standard attention, S and P in device memory, one kernel per operation:
// kernels/standard_matmul.h, kernels/standard_rows.h.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "api/tensors.h"
#include "gpu/backend.h"
#include "gpu/params.h"
#include "gpu/study.h"
#include "kernels/standard_config.h"

namespace strobe::gpu {
namespace {

using kernels::MatmulParams;
using kernels::RowsParams;
using kernels::TensorArg;

// Rows of a plan, by their place in needs().
enum Row { kScores, kQueriesDim, kMask, kSoftmax, kDropout, kKeysDim, kGradients };

constexpr std::int64_t kMostCtas = std::numeric_limits<std::int32_t>::max();

std::int64_t columns_of(const strobe_problem& p) { return (p.seqlen_k + 7) / 8 * 8; }

api::Status supports(const strobe_problem& p, const api::Options&, const DeviceFacts&) {
  if (api::Status s = study_supports("standard", p); !s.ok()) return s;
  const std::int64_t heads = std::max<std::int64_t>(1, p.batch * p.heads);
  const std::int64_t tiles = ceil_div(p.seqlen_q, 128) * ceil_div(columns_of(p), 128);
  if (std::max(p.seqlen_q, tiles) > kMostCtas / heads) {
    return api::unsupported(
        "seqlen_q", fmt::format("seqlen_q is {} and seqlen_k {}: the score matrices of {} heads "
                                "have more tiles or rows than a grid has CTAs, {}. Leave kernel "
                                "unset for one that keeps no score matrix.",
                                p.seqlen_q, p.seqlen_k, p.batch * p.heads, kMostCtas));
  }
  return {};
}
double cost(const strobe_problem&, const DeviceFacts&) { return kStandardCost; }

class StandardPlan final : public KernelPlan {
 public:
  explicit StandardPlan(const strobe_problem& problem)
      : p_(problem),
        vector_(reason_for_scalar_loads(problem).empty()),
        columns_(columns_of(problem)),
        elements_(p_.batch * p_.heads * p_.seqlen_q * columns_) {}

  api::Status find(const DeviceFacts& device) {
    const char* dtype = study_dtype(p_);
    const int dim = study_bucket(p_);
    std::vector<std::string> names = {
        fmt::format("standard_qk_{}", dtype), fmt::format("standard_pv_{}_d{}", dtype, dim),
        fmt::format("standard_mask_{}", dtype), fmt::format("standard_softmax_{}", dtype),
        fmt::format("standard_dropout_{}", dtype)};
    if (backward()) {
      names.push_back(fmt::format("standard_ptv_{}_d{}", dtype, dim));
      names.push_back(fmt::format("standard_ds_{}", dtype));
    }
    for (const std::string& name : names) {
      needs_.emplace_back();
      if (api::Status s = find_need(name, device, &needs_.back()); !s.ok()) return s;
    }
    return {};
  }
  std::vector<Need> needs() const override { return needs_; }

  // S (in backward then dP), P (then dS), and P after dropout.
  std::size_t workspace_bytes() const override {
    return scores_bytes() + p_bytes() * (dropout() ? 2 : 1);
  }
  api::Facts facts() const override {
    return {
        {"score matrices", fmt::format("{} x {} x {} x {}, float32, and {} of the dtype", p_.batch,
                                       p_.heads, p_.seqlen_q, columns_, dropout() ? "two" : "one")},
        {"operations", backward() ? "P as in forward, then dV, dP, dS, dQ, dK: a launch each"
                                  : "S, mask, softmax, dropout, O: a launch each"},
        {"loads", vector_ ? "16 bytes, asynchronous" : "element by element"}};
  }

  void build(const strobe_run_args& args, const LoadedKernel* const* loaded,
             Program* program) const override {
    const Launches run{*this, args, loaded, program};
    const TensorArg q = tensor_arg(args.q, p_.q_strides), k = tensor_arg(args.k, p_.k_strides);
    const TensorArg v = tensor_arg(args.v, p_.v_strides);
    const auto scale = static_cast<float>(p_.scale);
    run.product(kScores, q, k, run.scores(), p_.head_dim, scale);
    if (p_.window_left >= 0 || p_.window_right >= 0) run.rows(kMask);
    run.rows(kSoftmax);
    if (dropout()) run.rows(kDropout);
    if (!backward()) {
      run.product(kQueriesDim, run.kept(), v, tensor_arg(args.o, p_.o_strides), p_.head_dim_v, 1);
      return;
    }
    const TensorArg dout = tensor_arg(args.dout, p_.dout_strides);
    run.product(kKeysDim, run.kept(), dout, tensor_arg(args.dv, p_.dv_strides), p_.head_dim_v, 1);
    run.product(kScores, dout, v, run.scores(), p_.head_dim_v, 1);
    run.rows(kGradients);
    run.product(kQueriesDim, run.p(), k, tensor_arg(args.dq, p_.dq_strides), p_.head_dim, scale);
    run.product(kKeysDim, run.p(), q, tensor_arg(args.dk, p_.dk_strides), p_.head_dim, scale);
  }

 private:
  // The operations of one run.
  struct Launches {
    const StandardPlan& plan;
    const strobe_run_args& args;
    const LoadedKernel* const* loaded;
    Program* program;

    std::byte* workspace() const { return static_cast<std::byte*>(args.workspace); }
    TensorArg scores() const { return plan.matrix(workspace()); }
    TensorArg p() const { return plan.matrix(workspace() + plan.scores_bytes()); }
    TensorArg dropped() const {
      return plan.matrix(workspace() + plan.scores_bytes() + plan.p_bytes());
    }
    TensorArg kept() const { return plan.dropout() ? dropped() : p(); }

    void product(Row row, const TensorArg& x, const TensorArg& y, const TensorArg& z,
                 std::int64_t dim, float scale) const {
      const strobe_problem& problem = plan.p_;
      const RowShape& shape = *plan.needs_[row].shape;
      MatmulParams m = {};
      m.a = attention(problem, args, 1, plan.vector_);
      m.x = x;
      m.y = y;
      m.z = z;
      m.x_vector = row != kScores || plan.vector_;  // P and dS are ours, and aligned
      m.y_vector = plan.vector_;
      m.z_vector = row == kScores || plan.vector_;
      m.dim = static_cast<int>(dim);
      m.columns = static_cast<int>(plan.columns_);
      m.scale = scale;
      const std::int64_t rows = row == kKeysDim ? problem.seqlen_k : problem.seqlen_q;
      const std::int64_t cols = row == kScores ? plan.columns_ : dim;
      m.blocks_m = static_cast<std::uint32_t>(ceil_div(rows, shape.block_m));
      m.blocks_n = static_cast<std::uint32_t>(ceil_div(cols, shape.block_n));
      const std::int64_t heads = row == kKeysDim ? problem.kv_heads : problem.heads;
      const auto grid = static_cast<std::uint32_t>(problem.batch * heads * m.blocks_m * m.blocks_n);
      program->launch(*loaded[row], shape, grid, m);
    }

    void rows(Row row) const {
      const strobe_problem& problem = plan.p_;
      const RowShape& shape = *plan.needs_[row].shape;
      RowsParams r = {};
      r.a = attention(problem, args, 1, plan.vector_);
      r.scores = scores().data;
      r.p = p().data;
      r.dropped = plan.dropout() ? dropped().data : nullptr;
      if (!plan.backward()) r.lse = static_cast<float*>(args.lse);
      r.lse_stride = strides(problem.lse_strides);
      if (plan.backward()) {
        r.o = tensor_arg(args.o, problem.o_strides);
        r.dout = tensor_arg(args.dout, problem.dout_strides);
      }
      r.dlse = static_cast<const float*>(args.dlse);
      r.dlse_stride = strides(problem.dlse_strides);
      r.columns = static_cast<int>(plan.columns_);
      r.cached = std::min(r.columns, kernels::kStandardCachedColumns);
      const auto grid =
          static_cast<std::uint32_t>(problem.batch * problem.heads * problem.seqlen_q);
      Launch& launch = program->launch(*loaded[row], shape, grid, r);
      // A short row leaves shared memory, and so SMs, to other CTAs.
      constexpr int kReductions = 32;
      const auto cache = shape.shared_bytes - kReductions;
      launch.shared_bytes =
          kReductions + cache / kernels::kStandardCachedColumns * static_cast<unsigned>(r.cached);
    }
  };

  TensorArg matrix(std::byte* data) const {
    const std::int64_t head = p_.seqlen_q * columns_;
    return {data, {p_.heads * head, columns_, head}};
  }
  bool backward() const { return p_.op == STROBE_BACKWARD; }
  bool dropout() const { return api::uses_dropout(p_); }
  std::size_t scores_bytes() const { return aligned_256(elements_ * 4); }
  std::size_t p_bytes() const { return aligned_256(elements_ * 2); }

  const strobe_problem p_;
  const bool vector_;
  const std::int64_t columns_;   // of a score matrix
  const std::int64_t elements_;  // of all of them
  std::vector<Need> needs_;
};

api::Status plan(const strobe_problem& p, const api::Options&, const DeviceFacts& device,
                 std::unique_ptr<KernelPlan>* planned) {
  auto made = std::make_unique<StandardPlan>(p);
  if (api::Status s = made->find(device); !s.ok()) return s;
  *planned = std::move(made);
  return {};
}

constexpr Family kStandard = {
    "standard", "materialises S and P, for study: chosen by name alone", {}, supports, cost, plan};

}  // namespace

const api::Backend kStandardOnCuda = BackendOf<kStandard, STROBE_DEVICE_CUDA>::kRow;
const api::Backend kStandardOnEmulator = BackendOf<kStandard, STROBE_DEVICE_EMULATOR>::kRow;

}  // namespace strobe::gpu
