// FlashAttention-2, backward: what is launched, and where the workspace keeps what.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/scheduler.h"
#include "gpu/family_fa2.h"
#include "gpu/params.h"
#include "kernels/fa2_bwd_params.h"

namespace strobe::gpu {
namespace {

enum : std::size_t { kDelta, kMain, kDq };  // order of needs()

struct Choice {
  std::vector<Need> needs;
  bool sinks = false, outside = false;  // their rows follow, in this order
  std::string full_because, scalar_because;
  std::int64_t row_dim = 0;
  std::int64_t rows = 0;  // padded rows of one head
  std::uint32_t m_blocks = 0, n_blocks = 0, heads_in_l2 = 1;

  std::int64_t block_m() const { return needs[kMain].shape->block_m; }
};

// Bytes of the workspace's parts, each a multiple of 256.
struct Layout {
  std::size_t stats, dq, turn;

  Layout(const strobe_problem& p, const Choice& c) {
    const auto rows = static_cast<std::size_t>(p.heads * c.rows);
    stats = round_up(rows * sizeof(float));
    dq = round_up(rows * static_cast<std::size_t>(c.row_dim) * sizeof(float));
    turn = p.deterministic
               ? round_up(rows / static_cast<std::size_t>(c.block_m()) * sizeof(std::uint32_t))
               : 0;
  }
  std::size_t bytes() const { return 2 * stats + dq + turn; }
  static std::size_t round_up(std::size_t bytes) { return (bytes + 255) / 256 * 256; }
};

class BackwardPlan final : public KernelPlan {
 public:
  BackwardPlan(const strobe_problem& problem, Choice choice)
      : p_(problem), c_(std::move(choice)), layout_(p_, c_) {}

  std::size_t workspace_bytes() const override { return layout_.bytes(); }
  std::vector<Need> needs() const override { return c_.needs; }

  api::Facts facts() const override {
    const RowShape& shape = *c_.needs[kMain].shape;
    return {
        {"row", fmt::format("{}: {}", shape.name,
                            c_.full_because.empty() ? std::string("no modifier of the scores")
                                                    : "full, for " + c_.full_because)},
        {"tile",
         fmt::format("{} keys x {} query rows a step, {} threads, {} bytes of shared memory",
                     shape.block_n, shape.block_m, shape.threads, shape.shared_bytes)},
        {"grid", fmt::format("{} CTAs: {} tiles of {} x {}, longest first, {} heads at a time",
                             main_grid(), c_.n_blocks, p_.batch, p_.kv_heads, c_.heads_in_l2)},
        {"dQ", p_.deterministic
                   ? std::string("float32 accumulator, added to in the order of the keys")
                   : std::string("float32 accumulator, added to by atomics")},
        {"loads", c_.scalar_because.empty() ? std::string("16 bytes, asynchronous")
                                            : "element by element: " + c_.scalar_because},
    };
  }

  void build(const strobe_run_args& args, const LoadedKernel* const* loaded,
             Program* program) const override {
    auto* at = static_cast<std::byte*>(args.workspace);
    kernels::Fa2BwdParams params = {};
    params.g = gradients(p_, args, attention(p_, args, 1, c_.scalar_because.empty()));
    params.padded = {static_cast<int>(c_.block_m()),
                     p_.lengths == STROBE_VARLEN ? 0 : c_.m_blocks * c_.block_m(), c_.rows};
    params.lse2 = reinterpret_cast<float*>(at);
    params.delta = reinterpret_cast<float*>(at + layout_.stats);
    params.dq = reinterpret_cast<float*>(at + 2 * layout_.stats);
    params.row_dim = static_cast<int>(c_.row_dim);
    if (layout_.turn > 0) {
      params.turn = reinterpret_cast<kernels::u32*>(at + 2 * layout_.stats + layout_.dq);
    }
    params.n_blocks = c_.n_blocks;
    params.m_blocks = c_.m_blocks;
    params.heads_in_l2 = c_.heads_in_l2;

    if (params.g.dbias) program->zero(params.g.dbias, dbias_bytes());
    const auto launch = [&](std::size_t need, std::uint32_t grid) -> Launch& {
      return program->launch(*loaded[need], *c_.needs[need].shape, grid, params);
    };
    launch(kDelta, rows_grid());
    launch(kMain, main_grid()).together = params.turn != nullptr;
    launch(kDq, rows_grid());
    std::size_t next = kDq + 1;
    if (c_.sinks) {
      if (params.g.dsinks) launch(next, static_cast<std::uint32_t>(p_.heads));
      ++next;
    }
    if (c_.outside) build_outside(args, *loaded[next], *c_.needs[next].shape, program);
  }

 private:
  std::uint32_t main_grid() const {
    return static_cast<std::uint32_t>(c_.n_blocks * p_.batch * p_.kv_heads);
  }
  std::uint32_t rows_grid() const {
    return static_cast<std::uint32_t>(c_.m_blocks * p_.batch * p_.heads);
  }
  std::size_t dbias_bytes() const {
    return static_cast<std::size_t>(p_.bias.batch * p_.bias.heads * p_.bias.seqlen_q *
                                    p_.bias.seqlen_k) *
           sizeof(float);
  }

  // Varlen: rows that no sequence holds have zero gradients.
  void build_outside(const strobe_run_args& args, const LoadedKernel& kernel, const RowShape& shape,
                     Program* program) const {
    constexpr std::uint32_t kCtas = 32;
    const auto zero = [&](const int* cu, std::int64_t total, std::int64_t heads, std::int64_t dim,
                          void* data, const strobe_strides& s) {
      program->launch(kernel, shape, kCtas,
                      kernels::OutsideRowsParams{.end = cu + p_.batch,
                                                 .total = total,
                                                 .heads = static_cast<int>(heads),
                                                 .dim = static_cast<int>(dim),
                                                 .out = tensor_arg(data, s),
                                                 .lse = nullptr,
                                                 .lse_stride = {}});
    };
    zero(args.cu_seqlens_q, p_.total_q, p_.heads, p_.head_dim, args.dq, p_.dq_strides);
    zero(args.cu_seqlens_k, p_.total_k, p_.kv_heads, p_.head_dim, args.dk, p_.dk_strides);
    zero(args.cu_seqlens_k, p_.total_k, p_.kv_heads, p_.head_dim_v, args.dv, p_.dv_strides);
  }

  strobe_problem p_;
  Choice c_;
  Layout layout_;
};

api::Status choose_rows(const strobe_problem& p, const api::Options& options,
                        const DeviceFacts& device, Choice* c) {
  if (auto s = fa2_features(p, options, &c->full_because, &c->scalar_because); !s.ok()) return s;
  const char* dtype = p.dtype == STROBE_BF16 ? "bf16" : "f16";
  c->row_dim = fa2_head_dim(p);
  std::vector<std::string> names = {
      fmt::format("fa2_bwd_delta_{}", dtype),
      fa2_row("fa2_bwd", p, c->full_because.empty() ? "plain" : "full"),
      fmt::format("fa2_bwd_dq_{}_d{}", dtype, c->row_dim)};
  c->sinks = p.sinks != 0;
  c->outside = p.lengths == STROBE_VARLEN;
  if (c->sinks) names.emplace_back("fa2_bwd_sinks");
  if (c->outside) names.emplace_back("outside_rows_16bit");
  for (const std::string& name : names) {
    Need need;
    if (api::Status s = find_need(name, device, &need); !s.ok()) return s;
    c->needs.push_back(need);
  }
  return {};
}

api::Status choose_grids(const strobe_problem& p, const DeviceFacts& device, Choice* c) {
  const std::int64_t m = c->block_m(), n = c->needs[kMain].shape->block_n;
  const std::int64_t m_blocks = ceil_div(max_seqlen_q(p), m);
  const std::int64_t n_blocks = ceil_div(max_seqlen_k(p), n);
  const std::int64_t sequences = std::max<std::int64_t>(p.batch, 1);
  constexpr std::int64_t kMostCtas = std::numeric_limits<std::int32_t>::max();
  if (std::max(m_blocks, n_blocks) > kMostCtas / (sequences * p.heads)) {
    return api::unsupported(
        "batch", fmt::format("batch x heads is {} with up to {} tiles each, but a grid has at most "
                             "{} CTAs. State upper bounds of the lengths (seqlen_q, seqlen_k), or "
                             "split the batch.",
                             p.batch * p.heads, std::max(m_blocks, n_blocks), kMostCtas));
  }
  c->m_blocks = static_cast<std::uint32_t>(m_blocks);
  c->n_blocks = static_cast<std::uint32_t>(n_blocks);
  c->rows = p.lengths == STROBE_VARLEN ? (p.total_q / m + p.batch) * m : p.batch * m_blocks * m;
  // Q, dO and dQ's accumulator of a head are walked over by all of its key tiles.
  const auto head_bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(
      max_seqlen_q(p) * c->row_dim * (2 * 2 + 4) * (p.heads / p.kv_heads), 1));
  const std::uint64_t heads = core::heads_per_section(head_bytes, device.l2_bytes / 2);
  c->heads_in_l2 = static_cast<std::uint32_t>(
      std::min(heads, static_cast<std::uint64_t>(sequences * p.kv_heads)));
  return {};
}

}  // namespace

api::Status plan_fa2_backward(const strobe_problem& p, const api::Options& options,
                              const DeviceFacts& device, std::unique_ptr<KernelPlan>* planned) {
  Choice choice;
  if (api::Status s = choose_rows(p, options, device, &choice); !s.ok()) return s;
  if (api::Status s = choose_grids(p, device, &choice); !s.ok()) return s;
  *planned = std::make_unique<BackwardPlan>(p, std::move(choice));
  return {};
}

}  // namespace strobe::gpu
