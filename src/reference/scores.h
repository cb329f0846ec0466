// The scores of one query row, straight from docs/numerics.md.
#ifndef STROBE_SRC_REFERENCE_SCORES_H_
#define STROBE_SRC_REFERENCE_SCORES_H_

#include <strobe/strobe.h>

#include <cstdint>

#include "reference/tensor.h"

namespace strobe::reference {

// One query head of one sequence.
class Scores {
 public:
  Scores(const strobe_problem& problem, const strobe_run_args& args, const Sequence& sequence,
         std::int64_t head);

  bool visible(std::int64_t i, std::int64_t j) const;

  // s[j] of query i for every key j of the sequence, -inf where masked; masked keys are not
  // touched. q: [head_dim]; k: [len_k, head_dim]. slope[j], if asked for: ds / d(scale q.k) through
  // softcap.
  void row(std::int64_t i, const double* q, const double* k, double* s, double* slope) const;

  double sink() const { return sink_; }  // -inf without sinks

  // Where element (i, j) of this head lies in dbias, a contiguous tensor of the bias's sizes.
  std::int64_t dbias_index(std::int64_t i, std::int64_t j) const;

 private:
  const strobe_problem& problem_;
  const strobe_run_args& args_;
  const Sequence& sequence_;
  std::int64_t head_;
  double alibi_slope_;
  double sink_;
};

// sum_j exp(s[j]) + exp(sink), as exp(maximum) * sum. NaN if a score is NaN or +inf.
struct ExpSum {
  double maximum;  // -inf if all scores are
  double sum;      // then 0

  double log() const;            // the LSE
  double share(double s) const;  // P = exp(s) / total; 0 for s = -inf
};
ExpSum exp_sum(const double* s, std::int64_t n, double sink);

}  // namespace strobe::reference

#endif  // STROBE_SRC_REFERENCE_SCORES_H_
