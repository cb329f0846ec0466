#include "cpu/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>

#include "cpu/driver.h"
#include "cpu/parallel.h"

namespace strobe::cpu {
namespace {

std::string target_name(const Kernels& kernels) {
  std::string name = kernels.name;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return name;
}

int thread_count(const api::Options& options) {
  if (options.executor) return options.executor->threads;
  return options.threads > 0 ? options.threads : default_threads();
}

class CpuPlan final : public api::PlannedKernel {
 public:
  CpuPlan(const strobe_problem& problem, const api::Options& options, const Kernels& kernels,
          const Tiling& tiling)
      : problem_(problem),
        executor_(options.executor),
        setup_{problem_, kernels, tiling, thread_count(options)} {}

  std::size_t workspace_bytes() const override {
    switch (problem_.op) {
      case STROBE_FORWARD:
        return forward_workspace(setup_);
      case STROBE_BACKWARD:
        return backward_workspace(setup_);
      case STROBE_PROBS:
        return probs_workspace(setup_);
      default:
        return 0;
    }
  }

  int threads() const override { return setup_.threads; }

  api::Facts facts() const override {
    const Tiling& t = setup_.tiling;
    api::Facts facts = {
        {"target", target_name(setup_.kernels)},
        {"threads", fmt::format("{} ({})", setup_.threads,
                                executor_ ? "the caller's executor" : parallel_name())}};
    if (problem_.op == STROBE_MERGE || problem_.op == STROBE_KEEP_MASK) return facts;
    facts.emplace_back("register tile",
                       fmt::format("{} x {} floats", setup_.kernels.rows, t.panel));
    facts.emplace_back("key block",
                       fmt::format("{} keys, converted to float32 once per tile", t.kv_block));
    const std::int64_t ratio = problem_.heads / problem_.kv_heads;
    if (problem_.op == STROBE_FORWARD) {
      facts.emplace_back("query tile", fmt::format("{} rows ({} heads of a group x {} queries)",
                                                   t.q_tile, ratio, ceil_div(t.q_tile, ratio)));
      const KeySplits splits = key_splits(t, problem_.seqlen_q * ratio, problem_.seqlen_k);
      facts.emplace_back("key splits", fmt::format("{}{}", splits.count,
                                                   splits.count > 1 ? ", merged by LSE" : ""));
    }
    if (problem_.op == STROBE_BACKWARD) {
      facts.emplace_back("key chunk", fmt::format("{} keys per work item", t.kv_chunk));
      facts.emplace_back("query block", fmt::format("{} rows", kQueryBlock));
    }
    return facts;
  }

  api::Status run(const strobe_run_args& args, void*) const override {
    const Job job(problem_, args, executor_, setup_.threads);
    switch (problem_.op) {
      case STROBE_FORWARD:
        run_forward(setup_, job);
        break;
      case STROBE_BACKWARD:
        run_backward(setup_, job);
        break;
      case STROBE_MERGE:
        run_merge(job);
        break;
      case STROBE_PROBS:
        run_probs(setup_, job);
        break;
      default:
        run_keep_mask(job);
    }
    return {};
  }

 private:
  strobe_problem problem_;
  std::optional<strobe_executor> executor_;
  Setup setup_;  // refers to problem_
};

constexpr api::OverrideKey kOverrideKeys[] = {
    {"target", "a SIMD target of this CPU, e.g. avx3 | avx2 | sse4 | neon | scalar"},
    {"q_tile", "query rows of a work item in forward: a multiple of 64, up to 1024"},
    {"kv_block", "keys converted and multiplied at once: a multiple of 12, up to 192"},
    {"kv_chunk", "keys of a work item in backward: a multiple of kv_block, up to 1536"},
};

// Packed query rows of a forward work item: as many as share a block of K and V well, but few
// enough that every thread gets several items. No bit of a result depends on it.
std::int64_t query_tile(const strobe_problem& p, std::int64_t largest, int threads) {
  const std::int64_t rows = p.lengths == STROBE_VARLEN ? p.total_q : p.batch * p.seqlen_q;
  const std::int64_t packed_rows = rows * p.heads;
  std::int64_t tile = largest;
  while (tile > kQueryBlock && packed_rows / tile < std::int64_t{4} * threads) tile /= 2;
  return tile;
}

// The default tiles, chosen by measurement (docs/design/cpu.md). What a thread works on at once
// fits a level-2 cache of 512 KiB to 1 MiB. kv_block and kv_chunk, on which bits depend, follow
// from the head dimensions alone.
Tiling default_tiling(const strobe_problem& p, const Kernels& kernels, int threads) {
  const std::int64_t dim = std::max(p.head_dim, p.head_dim_v);
  const std::int64_t kv_block = dim > 256 ? 48 : 96;
  return {.panel = kernels.panel,
          .q_tile = query_tile(p, dim > 128 ? 128 : 256, threads),
          .kv_block = kv_block,
          .kv_chunk = dim > 128 ? kv_block : (dim > 64 ? 192 : 384)};
}

// Reads one size of the overrides, if it is there.
api::Status read_size(const api::Options& options, const char* key, std::int64_t multiple,
                      std::int64_t limit, std::int64_t* size) {
  const auto found = options.overrides.find(key);
  if (found == options.overrides.end()) return {};
  const std::string& text = found->second;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < multiple ||
      value > limit || value % multiple != 0) {
    return api::invalid(
        "overrides",
        fmt::format("overrides: {} is \"{}\"; it must be a multiple of {} up to {}. Leave it out "
                    "for the default, {}.",
                    key, text, multiple, limit, *size));
  }
  *size = value;
  return {};
}

api::Status find_kernels(const api::Options& options, const Kernels** kernels) {
  *kernels = available_kernels().front();
  const auto found = options.overrides.find("target");
  if (found == options.overrides.end()) return {};
  std::string names;
  for (const Kernels* candidate : available_kernels()) {
    const std::string name = target_name(*candidate);
    if (name == found->second) {
      *kernels = candidate;
      return {};
    }
    names += (names.empty() ? "" : ", ") + name;
  }
  return api::invalid(
      "overrides", fmt::format("overrides: target is \"{}\"; this CPU and build have: {}. Pass one "
                               "of these, or leave target out for the first.",
                               found->second, names));
}

api::Status supports(const strobe_problem& problem, const api::Options&) {
  const strobe_dtype dtype = problem.dtype;
  if (dtype == STROBE_F32 || dtype == STROBE_BF16 || dtype == STROBE_F16) return {};
  return api::unsupported(
      "dtype", fmt::format("dtype: {}; the SIMD kernels compute in float32 and take f32, bf16 and "
                           "f16. {}",
                           dtype == STROBE_F64 ? "f64" : "fp8",
                           dtype == STROBE_F64 ? "Use kernel \"reference\", or leave kernel unset."
                                               : "Convert the tensors to bf16."));
}

double cost(const strobe_problem& p, const api::Options& options) {
  const bool varlen = p.lengths == STROBE_VARLEN;
  const double rows = varlen ? static_cast<double>(p.total_q)
                             : static_cast<double>(p.batch) * static_cast<double>(p.seqlen_q);
  const double keys = static_cast<double>(varlen && p.seqlen_k == 0 ? p.total_k : p.seqlen_k);
  const double flops = 2.0 * static_cast<double>(p.heads) * rows * keys *
                       static_cast<double>(p.head_dim + p.head_dim_v);
  constexpr double kFlopsPerNanosecond = 50;  // one AVX2 core
  constexpr double kLaunch = 2000;
  return kLaunch + flops / (kFlopsPerNanosecond * thread_count(options));
}

api::Status plan(const strobe_problem& problem, const api::Options& options,
                 std::unique_ptr<api::PlannedKernel>* planned) {
  const Kernels* kernels = nullptr;
  api::Status status = find_kernels(options, &kernels);
  if (!status.ok()) return status;
  Tiling tiling = default_tiling(problem, *kernels, thread_count(options));
  status = read_size(options, "q_tile", kQueryBlock, 1024, &tiling.q_tile);
  if (!status.ok()) return status;
  status = read_size(options, "kv_block", 12, 192, &tiling.kv_block);
  if (!status.ok()) return status;
  tiling.kv_chunk = round_up(tiling.kv_chunk, tiling.kv_block);
  status = read_size(options, "kv_chunk", tiling.kv_block, 1536, &tiling.kv_chunk);
  if (!status.ok()) return status;
  *planned = std::make_unique<CpuPlan>(problem, options, *kernels, tiling);
  return {};
}

}  // namespace

std::vector<std::string> targets() {
  std::vector<std::string> names;
  for (const Kernels* kernels : available_kernels()) names.push_back(target_name(*kernels));
  return names;
}

const api::Backend kBackend = {"cpu",         STROBE_DEVICE_CPU,
                               kOverrideKeys, "SIMD kernels for the host, computing in float32",
                               supports,      cost,
                               plan};

}  // namespace strobe::cpu
