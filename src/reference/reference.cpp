#include "reference/reference.h"

#include <algorithm>
#include <new>
#include <stdexcept>

#include "reference/passes.h"

namespace strobe::reference {
namespace {

bool is_fp8(strobe_dtype dtype) { return dtype == STROBE_F8E4M3 || dtype == STROBE_F8E5M2; }

api::Status supports(const strobe_problem& problem, const api::Options&) {
  const char* argument = is_fp8(problem.dtype)           ? "dtype"
                         : is_fp8(problem.bias.dtype)    ? "bias.dtype"
                         : is_fp8(problem.partial_dtype) ? "partial_dtype"
                                                         : nullptr;
  if (argument == nullptr) return {};
  return api::unsupported(
      argument, "the reference takes f32, bf16, f16 and f64, not fp8. Convert to one of them.");
}

// So dear that it is chosen only where nothing else takes the problem, or by name.
double cost(const strobe_problem& p, const api::Options&) {
  const bool varlen = p.lengths == STROBE_VARLEN;
  const double rows = varlen ? static_cast<double>(p.total_q)
                             : static_cast<double>(p.batch) * static_cast<double>(p.seqlen_q);
  const double keys = static_cast<double>(varlen ? p.total_k : p.seqlen_k);
  const double flops = 2.0 * rows * keys * static_cast<double>(p.heads) *
                       static_cast<double>(p.head_dim + p.head_dim_v);
  return 1e9 + 50 * flops;
}

class ReferenceKernel final : public api::PlannedKernel {
 public:
  explicit ReferenceKernel(const strobe_problem& problem) : problem_(problem) {}

  std::size_t workspace_bytes() const override { return 0; }
  int threads() const override { return 1; }
  api::Facts facts() const override {
    return {{"arithmetic", "float64, every (query, key) pair, one thread"},
            {"memory", "allocates one head's K and V in float64 at each run"}};
  }

  api::Status run(const strobe_run_args& args, void*) const override {
    try {
      dispatch(args);
      return {};
    } catch (const std::bad_alloc&) {
      return out_of_memory();
    } catch (const std::length_error&) {  // a vector longer than the address space
      return out_of_memory();
    }
  }

 private:
  static api::Status out_of_memory() {
    return {STROBE_OUT_OF_MEMORY, "",
            "the reference could not allocate its float64 copy of one head's K and V. Use kernel "
            "\"cpu\"."};
  }

  void dispatch(const strobe_run_args& args) const {
    switch (problem_.op) {
      case STROBE_FORWARD:
        return forward(problem_, args);
      case STROBE_BACKWARD:
        return backward(problem_, args);
      case STROBE_MERGE:
        return merge(problem_, args);
      case STROBE_PROBS:
        return probs(problem_, args);
      case STROBE_KEEP_MASK:
        return keep_mask(problem_, args);
    }
  }

  const strobe_problem problem_;
};

api::Status plan(const strobe_problem& problem, const api::Options&,
                 std::unique_ptr<api::PlannedKernel>* planned) {
  *planned = std::make_unique<ReferenceKernel>(problem);
  return {};
}

}  // namespace

const api::Backend kBackend = {
    "reference", STROBE_DEVICE_CPU,
    {},          "float64 in plain loops: the oracle of every other backend",
    supports,    cost,
    plan};

}  // namespace strobe::reference
