// Estimates behind a plan, from its resolved problem alone.
#ifndef STROBE_SRC_API_FACTS_H_
#define STROBE_SRC_API_FACTS_H_

#include <strobe/strobe.h>

#include <cstdint>

namespace strobe::api {

// Pairs (i, j), i in [0, seqlen_q), j in [0, seqlen_k), with offset - left <= j - i <= offset +
// right; -1 is unlimited. Closed form; exact as long as it is below 2^53.
double visible_pairs(std::int64_t seqlen_q, std::int64_t seqlen_k, std::int64_t left,
                     std::int64_t right, std::int64_t offset);

struct Estimates {
  double visible_pairs = 0;  // as strobe_plan_facts
  double flops = 0;
  double bytes = 0;
  double standard_bytes = 0;
  double lse_bytes = 0;  // what Strobe keeps of the scores besides its workspace
};

// Varlen: of `batch` sequences at their upper bounds; where a bound is unknown, of one sequence
// that has all rows. Padded: of full sequences. Bytes count tensors that the operation requires,
// each distinct element once; pairs of STROBE_PROBS are num_rows / seqlen_q of all; merge and keep
// mask have none.
Estimates estimate(const strobe_problem& resolved);

}  // namespace strobe::api

#endif  // STROBE_SRC_API_FACTS_H_
