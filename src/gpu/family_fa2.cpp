// FlashAttention-2 on mma.sync: bf16 and f16, head dimensions up to 256, every feature.
#include "gpu/family_fa2.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "core/scheduler.h"
#include "gpu/backend.h"
#include "gpu/params.h"

namespace strobe::gpu {
namespace {

constexpr std::array<std::int64_t, 5> kHeadDims = {64, 96, 128, 192, 256};  // of the rows

}  // namespace

std::int64_t fa2_head_dim(const strobe_problem& p) {
  const std::int64_t dim = std::max(p.head_dim, p.head_dim_v);
  return *std::find_if(kHeadDims.begin(), kHeadDims.end(),
                       [&](std::int64_t row) { return dim <= row; });
}

std::string fa2_row(const char* kernel, const strobe_problem& p, const char* features) {
  return fmt::format("{}_{}_d{}_{}", kernel, p.dtype == STROBE_BF16 ? "bf16" : "f16",
                     fa2_head_dim(p), features);
}

api::Status fa2_features(const strobe_problem& p, const api::Options& options, std::string* full,
                         std::string* scalar) {
  *full = reasons_for_full(p);
  *scalar = reason_for_scalar_loads(p);
  if (!scalar->empty()) {  // plain rows move 16 bytes at a time and nothing else
    *full += full->empty() ? "" : ", ";
    *full += *scalar;
  }
  const auto given = options.overrides.find("row");
  if (given == options.overrides.end()) return {};
  if (given->second != "full") {
    return api::invalid("overrides", fmt::format("overrides: row is \"{}\", but it can only be "
                                                 "full. Leave it out for the default.",
                                                 given->second.substr(0, 80)));
  }
  if (full->empty()) *full = "the overrides say so";
  return {};
}

namespace {

api::Status supports(const strobe_problem& p, const api::Options&, const DeviceFacts&) {
  if (p.op != STROBE_FORWARD && p.op != STROBE_BACKWARD) {
    return api::unsupported("op",
                            "op: fa2 computes STROBE_FORWARD and STROBE_BACKWARD. Leave kernel "
                            "unset for other operations.");
  }
  if (p.op == STROBE_BACKWARD && p.deterministic && p.bias.dtype != STROBE_NONE) {
    return api::unsupported("deterministic",
                            "deterministic is 1 with a bias, whose gradient fa2 sums in any order. "
                            "Leave kernel unset.");
  }
  if (p.dtype != STROBE_BF16 && p.dtype != STROBE_F16) {
    return api::unsupported("dtype",
                            "dtype: fa2 multiplies on tensor cores and takes bf16 and f16. Convert "
                            "the tensors, or leave kernel unset.");
  }
  if (std::max(p.head_dim, p.head_dim_v) > kHeadDims.back()) {
    return api::unsupported(
        p.head_dim > kHeadDims.back() ? "head_dim" : "head_dim_v",
        fmt::format("head_dim is {} and head_dim_v {}, but fa2 takes up to {}. Leave kernel unset.",
                    p.head_dim, p.head_dim_v, kHeadDims.back()));
  }
  return check_sizes(p);
}

// Of (query, key) pairs without masks: the choice among families needs no more.
double cost(const strobe_problem& p, const DeviceFacts& device) {
  constexpr double kLaunch = 4000;
  constexpr double kFlopsPerNanosecondAndSm = 2300;  // about two thirds of what mma.sync reaches
  const double rows = static_cast<double>(p.total_q), dim = static_cast<double>(fa2_head_dim(p));
  const double keys =
      p.lengths == STROBE_VARLEN && p.seqlen_k == 0
          ? static_cast<double>(p.total_k) / static_cast<double>(std::max<std::int64_t>(p.batch, 1))
          : static_cast<double>(p.seqlen_k);
  const double flops =
      (p.op == STROBE_BACKWARD ? 10 : 4) * dim * rows * keys * static_cast<double>(p.heads);
  return kLaunch + flops / (kFlopsPerNanosecondAndSm * device.sms);
}

// ---- Forward

struct Choice {
  Need need;
  Need outside;                // varlen: writes the rows that no sequence holds
  std::string full_because;    // empty: a plain row
  std::string scalar_because;  // empty: 16-byte loads
  int pack = 1;
  std::string pack_because;
  std::uint32_t m_blocks = 0;
  std::uint32_t heads_in_l2 = 1;
};

// Query rows that a typical sequence has.
std::int64_t typical_rows(const strobe_problem& p) {
  if (p.lengths == STROBE_VARLEN && p.seqlen_q == 0) {
    return ceil_div(p.total_q, std::max<std::int64_t>(p.batch, 1));
  }
  return p.seqlen_q;
}

// The heads of a group share K and V, so they may share tiles as well. That pays where the rows of
// one head leave much of its last tile empty, as in decoding: the tiles saved must be an eighth of
// all, for packed rows cost a division each.
api::Status choose_pack(const strobe_problem& p, const api::Options& options, int block_m,
                        Choice* choice) {
  const std::int64_t group = p.heads / p.kv_heads;
  const std::int64_t rows = typical_rows(p);
  const std::int64_t apart = group * ceil_div(rows, block_m);
  const std::int64_t packed = ceil_div(rows * group, block_m);
  const bool fits = group <= std::numeric_limits<int>::max() &&
                    max_seqlen_q(p) * group <= std::numeric_limits<std::int32_t>::max();
  const bool pays = group > 1 && fits && 8 * packed <= 7 * apart;
  choice->pack = pays ? static_cast<int>(group) : 1;
  choice->pack_because = fmt::format("{} tiles for a group of {}, against {} with every head apart",
                                     packed, group, apart);
  const auto given = options.overrides.find("pack");
  if (given == options.overrides.end()) return {};
  if (given->second != "1" && (given->second != fmt::format("{}", group) || !fits)) {
    return api::invalid("overrides",
                        fmt::format("overrides: pack is \"{}\", but it must be 1 or the heads of a "
                                    "group, {}. Leave it out for the default, {}.",
                                    given->second.substr(0, 80), group, choice->pack));
  }
  choice->pack = given->second == "1" ? 1 : static_cast<int>(group);
  choice->pack_because = "as the overrides say";
  return {};
}

// Whether tiles of 64 query rows beat the usual 128: where the band cuts most tiles, or few rows
// fill one. Measured at head_dim 64 (docs/design/fa2.md); larger ones gain nothing.
bool is_short(const strobe_problem& p) {
  if (fa2_head_dim(p) > 64) return false;
  const bool banded = p.window_left >= 0 || p.window_right >= 0;
  const std::int64_t rows = typical_rows(p);
  return banded ? rows <= 1024 : rows * (p.heads / p.kv_heads) <= 64;
}

api::Status choose_row(const strobe_problem& p, const api::Options& options,
                       const DeviceFacts& device, Choice* choice) {
  if (auto s = fa2_features(p, options, &choice->full_because, &choice->scalar_because); !s.ok()) {
    return s;
  }
  const char* kind = !choice->full_because.empty() ? "full" : is_short(p) ? "short" : "plain";
  return find_need(fa2_row("fa2_fwd", p, kind), device, &choice->need);
}

api::Status choose_grid(const strobe_problem& p, const DeviceFacts& device, Choice* choice) {
  const std::int64_t block_m = choice->need.shape->block_m;
  const std::int64_t m_blocks = ceil_div(max_seqlen_q(p) * choice->pack, block_m);
  const std::int64_t head_batches = std::max<std::int64_t>(p.batch, 1) * (p.heads / choice->pack);
  constexpr std::int64_t kMostCtas = std::numeric_limits<std::int32_t>::max();
  if (m_blocks > kMostCtas / head_batches) {
    return api::unsupported(
        "batch", fmt::format("batch x heads is {} with up to {} tiles of {} rows each, but a grid "
                             "has at most {} CTAs. State an upper bound of the lengths (seqlen_q), "
                             "or split the batch.",
                             p.batch * p.heads, m_blocks, block_m, kMostCtas));
  }
  choice->m_blocks = static_cast<std::uint32_t>(m_blocks);
  const auto head_bytes = static_cast<std::uint64_t>(max_seqlen_k(p)) *
                          static_cast<std::uint64_t>(p.head_dim + p.head_dim_v) *
                          strobe_dtype_bytes(p.dtype);
  // Half of the cache: the rest is for Q, O and what was there before. Query heads of a group share
  // their K and V, so as many more fit.
  const auto group = static_cast<std::uint32_t>(p.heads / p.kv_heads / choice->pack);
  const std::uint64_t heads = std::uint64_t{core::heads_per_section(
                                  std::max<std::uint64_t>(head_bytes, 1), device.l2_bytes / 2)} *
                              group;
  choice->heads_in_l2 =
      static_cast<std::uint32_t>(std::min(heads, static_cast<std::uint64_t>(head_batches)));
  return {};
}

constexpr std::uint32_t kOutsideCtas = 32;
kernels::OutsideRowsParams outside_rows(const strobe_problem& p, const strobe_run_args& args) {
  return {.end = args.cu_seqlens_q + p.batch,
          .total = p.total_q,
          .heads = static_cast<int>(p.heads),
          .dim = static_cast<int>(p.head_dim_v),
          .out = tensor_arg(args.o, p.o_strides),
          .lse = static_cast<float*>(args.lse),
          .lse_stride = strides(p.lse_strides)};
}

class ForwardPlan final : public KernelPlan {
 public:
  ForwardPlan(const strobe_problem& problem, Choice choice)
      : p_(problem), choice_(std::move(choice)) {}

  std::vector<Need> needs() const override {
    if (choice_.outside.row == nullptr) return {choice_.need};
    return {choice_.need, choice_.outside};
  }

  api::Facts facts() const override {
    const RowShape& shape = *choice_.need.shape;
    api::Facts facts;
    facts.emplace_back(
        "row", fmt::format("{}: {}", shape.name,
                           choice_.full_because.empty() ? std::string("no modifier of the scores")
                                                        : "full, for " + choice_.full_because));
    facts.emplace_back(
        "tile", fmt::format("{} query rows x {} keys, {} threads, {} bytes of shared "
                            "memory",
                            shape.block_m, shape.block_n, shape.threads, shape.shared_bytes));
    facts.emplace_back("grid", fmt::format("{} CTAs: {} tiles of {} x {}, longest first, {} heads "
                                           "at a time",
                                           grid(), choice_.m_blocks, p_.batch,
                                           p_.heads / choice_.pack, choice_.heads_in_l2));
    facts.emplace_back("heads in a tile",
                       fmt::format("{}: {}", choice_.pack, choice_.pack_because));
    facts.emplace_back("loads", choice_.scalar_because.empty()
                                    ? std::string("16 bytes, asynchronous")
                                    : "element by element: " + choice_.scalar_because);
    return facts;
  }

  void build(const strobe_run_args& args, const LoadedKernel* const* loaded,
             Program* program) const override {
    kernels::ForwardParams params = {};
    params.a = attention(p_, args, choice_.pack, choice_.scalar_because.empty());
    params.q = tensor_arg(args.q, p_.q_strides);
    params.k = tensor_arg(args.k, p_.k_strides);
    params.v = tensor_arg(args.v, p_.v_strides);
    params.o = tensor_arg(args.o, p_.o_strides);
    params.lse = static_cast<float*>(args.lse);
    params.lse_stride = strides(p_.lse_strides);
    params.m_blocks = choice_.m_blocks;
    params.heads_in_l2 = choice_.heads_in_l2;
    program->launch(*loaded[0], *choice_.need.shape, grid(), params);
    if (choice_.outside.row == nullptr) return;
    program->launch(*loaded[1], *choice_.outside.shape, kOutsideCtas, outside_rows(p_, args));
  }

 private:
  std::uint32_t grid() const {
    return static_cast<std::uint32_t>(choice_.m_blocks * p_.batch * (p_.heads / choice_.pack));
  }

  strobe_problem p_;
  Choice choice_;
};

api::Status plan(const strobe_problem& p, const api::Options& options, const DeviceFacts& device,
                 std::unique_ptr<KernelPlan>* planned) {
  if (p.op == STROBE_BACKWARD) return plan_fa2_backward(p, options, device, planned);
  Choice choice;
  if (api::Status s = choose_row(p, options, device, &choice); !s.ok()) return s;
  if (api::Status s = choose_pack(p, options, choice.need.shape->block_m, &choice); !s.ok()) {
    return s;
  }
  if (api::Status s = choose_grid(p, device, &choice); !s.ok()) return s;
  if (p.lengths == STROBE_VARLEN && p.total_q > 0) {
    const api::Status s = find_need("outside_rows_16bit", device, &choice.outside);
    if (!s.ok()) return s;
  }
  *planned = std::make_unique<ForwardPlan>(p, std::move(choice));
  return {};
}

constexpr api::OverrideKey kKeys[] = {
    {"pack", "heads of a group in one tile of queries: 1 or heads / kv_heads"},
    {"row", "full: take the row with every feature, even if a plain one does"},
};
constexpr Family kFa2 = {"fa2", "FlashAttention-2: mma.sync kernels for Ampere and newer GPUs",
                         kKeys, supports,
                         cost,  plan};

}  // namespace

const api::Backend kFa2OnCuda = BackendOf<kFa2, STROBE_DEVICE_CUDA>::kRow;
const api::Backend kFa2OnEmulator = BackendOf<kFa2, STROBE_DEVICE_EMULATOR>::kRow;

}  // namespace strobe::gpu
