// The passes of the CPU backend: what each needs of the workspace, and how its work is cut into
// items. Independent of the SIMD target, whose kernels do the items.
#ifndef STROBE_SRC_CPU_DRIVER_H_
#define STROBE_SRC_CPU_DRIVER_H_

#include <cstddef>

#include "cpu/kernels.h"

namespace strobe::cpu {

struct Setup {
  const strobe_problem& p;  // resolved
  const Kernels& kernels;
  Tiling tiling;
  int threads;
};

// Splits of the keys, for few queries and many keys (decode): each split is a work item, and the
// parts are merged by LSE. A function of one sequence's lengths alone, so neither neighbours nor
// threads change a bit.
struct KeySplits {
  std::int64_t count;
  std::int64_t keys;  // per split, a multiple of the key block
};
KeySplits key_splits(const Tiling& tiling, std::int64_t packed_rows, std::int64_t len_k);

std::size_t forward_workspace(const Setup& setup);
void run_forward(const Setup& setup, const Job& job);

std::size_t backward_workspace(const Setup& setup);
void run_backward(const Setup& setup, const Job& job);

std::size_t probs_workspace(const Setup& setup);
void run_probs(const Setup& setup, const Job& job);

void run_merge(const Job& job);      // no workspace
void run_keep_mask(const Job& job);  // no workspace

// Rows of no sequence: o = 0 and lse = -inf where those are given, or a gradient = 0.
void fill_outside_queries(const Job& job, const View& rows, std::int64_t heads, std::int64_t dim,
                          bool also_lse);
void fill_outside_keys(const Job& job, const View& rows, std::int64_t dim);

}  // namespace strobe::cpu

#endif  // STROBE_SRC_CPU_DRIVER_H_
