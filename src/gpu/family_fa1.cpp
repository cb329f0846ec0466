// FlashAttention-1 as its paper has it: kernels/fa1_fwd.h, kernels/fa1_bwd.h.
#include <fmt/format.h>

#include <string>

#include "gpu/backend.h"
#include "gpu/params.h"
#include "gpu/study.h"
#include "kernels/fa1_config.h"

namespace strobe::gpu {
namespace {

using kernels::Fa1BwdParams;
using kernels::Fa1FwdParams;

api::Status supports(const strobe_problem& p, const api::Options&, const DeviceFacts&) {
  return study_supports("fa1", p);
}
double cost(const strobe_problem&, const DeviceFacts&) { return kFa1Cost; }

class Fa1Plan final : public KernelPlan {
 public:
  Fa1Plan(const strobe_problem& problem, const Need& need)
      : p_(problem), need_(need), vector_(reason_for_scalar_loads(problem).empty()) {}

  std::vector<Need> needs() const override { return {need_}; }
  std::size_t workspace_bytes() const override {
    return running_bytes() + (backward() ? 0 : 2 * row_bytes());
  }
  api::Facts facts() const override {
    const RowShape& shape = *need_.shape;
    return {{"row", shape.name},
            {"tile", fmt::format("{} query rows x {} keys, {} threads, {} bytes of shared memory",
                                 shape.block_m, shape.block_n, shape.threads, shape.shared_bytes)},
            {"grid", fmt::format("{} CTAs: each a whole head", grid())},
            {"in device memory between steps", backward() ? "dQ, float32" : "O, l and m, float32"}};
  }

  void build(const strobe_run_args& args, const LoadedKernel* const* loaded,
             Program* program) const override {
    if (backward()) {
      program->launch(*loaded[0], *need_.shape, grid(), backward_params(args));
    } else {
      program->launch(*loaded[0], *need_.shape, grid(), forward_params(args));
    }
  }

 private:
  bool backward() const { return p_.op == STROBE_BACKWARD; }
  std::int64_t rows() const { return p_.batch * p_.heads * p_.seqlen_q; }
  int running_dim() const {
    return static_cast<int>(((backward() ? p_.head_dim : p_.head_dim_v) + 7) / 8 * 8);
  }
  std::size_t running_bytes() const { return aligned_256(rows() * running_dim() * 4); }
  std::size_t row_bytes() const { return aligned_256(rows() * 4); }
  std::uint32_t grid() const {
    return static_cast<std::uint32_t>(p_.batch * (backward() ? p_.kv_heads : p_.heads));
  }
  kernels::Fa1Workspace running() const {
    return {{p_.heads * p_.seqlen_q, 1, p_.seqlen_q}, running_dim()};
  }

  Fa1FwdParams forward_params(const strobe_run_args& args) const {
    Fa1FwdParams f = {};
    f.a = attention(p_, args, 1, vector_);
    f.q = tensor_arg(args.q, p_.q_strides);
    f.k = tensor_arg(args.k, p_.k_strides);
    f.v = tensor_arg(args.v, p_.v_strides);
    f.o = tensor_arg(args.o, p_.o_strides);
    f.lse = static_cast<float*>(args.lse);
    f.lse_stride = strides(p_.lse_strides);
    f.run = running();
    auto* workspace = static_cast<std::byte*>(args.workspace);
    f.run_o = reinterpret_cast<float*>(workspace);
    f.run_l = reinterpret_cast<float*>(workspace + running_bytes());
    f.run_m = reinterpret_cast<float*>(workspace + running_bytes() + row_bytes());
    return f;
  }

  Fa1BwdParams backward_params(const strobe_run_args& args) const {
    Fa1BwdParams b = {};
    b.g = gradients(p_, args, attention(p_, args, 1, vector_));
    b.run = running();
    b.run_dq = static_cast<float*>(args.workspace);
    return b;
  }

  const strobe_problem p_;
  const Need need_;
  const bool vector_;
};

api::Status plan(const strobe_problem& p, const api::Options&, const DeviceFacts& device,
                 std::unique_ptr<KernelPlan>* planned) {
  Need need;
  const std::string row = fmt::format("fa1_{}_{}_d{}", p.op == STROBE_FORWARD ? "fwd" : "bwd",
                                      study_dtype(p), study_bucket(p));
  if (api::Status s = find_need(row, device, &need); !s.ok()) return s;
  *planned = std::make_unique<Fa1Plan>(p, need);
  return {};
}

constexpr Family kFa1 = {"fa1", "FlashAttention-1 as published, for study: chosen by name alone",
                         {},    supports,
                         cost,  plan};

}  // namespace

const api::Backend kFa1OnCuda = BackendOf<kFa1, STROBE_DEVICE_CUDA>::kRow;
const api::Backend kFa1OnEmulator = BackendOf<kFa1, STROBE_DEVICE_EMULATOR>::kRow;

}  // namespace strobe::gpu
