#include "reference/scores.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace strobe::reference {
namespace {

// Element (b, h, i, j) of a bias or mask; a dimension of size 1 broadcasts.
std::int64_t element(const strobe_score_tensor& t, std::int64_t b, std::int64_t h, std::int64_t i,
                     std::int64_t j) {
  return (t.batch == 1 ? 0 : b * t.stride_batch) + (t.heads == 1 ? 0 : h * t.stride_head) +
         (t.seqlen_q == 1 ? 0 : i * t.stride_q) + j;
}

}  // namespace

Scores::Scores(const strobe_problem& problem, const strobe_run_args& args, const Sequence& sequence,
               std::int64_t head)
    : problem_(problem),
      args_(args),
      sequence_(sequence),
      head_(head),
      alibi_slope_(0),
      sink_(-kInfinity) {
  const strobe_dtype aux = aux_dtype(problem.dtype);
  if (problem.alibi == STROBE_ALIBI_PER_HEAD) alibi_slope_ = load(args.alibi_slopes, aux, head);
  if (problem.alibi == STROBE_ALIBI_PER_BATCH_HEAD) {
    alibi_slope_ = load(args.alibi_slopes, aux, sequence.index * problem.heads + head);
  }
  if (problem.sinks) sink_ = load(args.sinks, aux, head);
}

bool Scores::visible(std::int64_t i, std::int64_t j) const {
  const std::int64_t after_diagonal = j - (i + sequence_.offset);
  if (problem_.window_left != -1 && after_diagonal < -problem_.window_left) return false;
  if (problem_.window_right != -1 && after_diagonal > problem_.window_right) return false;
  if (problem_.mask.dtype == STROBE_NONE) return true;
  return args_.mask[element(problem_.mask, sequence_.index, head_, i, j)] != 0;
}

void Scores::row(std::int64_t i, const double* q, const double* k, double* s, double* slope) const {
  for (std::int64_t j = 0; j < sequence_.len_k; ++j) {
    s[j] = -kInfinity;
    if (slope) slope[j] = 0;
    if (!visible(i, j)) continue;
    double score = problem_.scale * dot(q, k + j * problem_.head_dim, problem_.head_dim);
    double derivative = 1;
    if (problem_.softcap > 0) {
      const double t = std::tanh(score / problem_.softcap);
      score = problem_.softcap * t;
      derivative = 1 - t * t;
    }
    if (problem_.alibi != STROBE_ALIBI_NONE) {
      score -= alibi_slope_ * std::fabs(static_cast<double>(i + sequence_.offset - j));
    }
    if (problem_.bias.dtype != STROBE_NONE) {
      score += load(args_.bias, problem_.bias.dtype,
                    element(problem_.bias, sequence_.index, head_, i, j));
    }
    s[j] = score;
    if (slope) slope[j] = derivative;
  }
}

std::int64_t Scores::dbias_index(std::int64_t i, std::int64_t j) const {
  const strobe_score_tensor& t = problem_.bias;
  const std::int64_t b = t.batch == 1 ? 0 : sequence_.index;
  const std::int64_t h = t.heads == 1 ? 0 : head_;
  const std::int64_t row = t.seqlen_q == 1 ? 0 : i;
  return ((b * t.heads + h) * t.seqlen_q + row) * t.seqlen_k + j;
}

double ExpSum::log() const { return sum == 0 ? -kInfinity : maximum + std::log(sum); }

// Not exp(s - log()): log(sum) is lost beside a maximum as large as a bias of the lowest float.
double ExpSum::share(double s) const { return s == -kInfinity ? 0 : std::exp(s - maximum) / sum; }

ExpSum exp_sum(const double* s, std::int64_t n, double sink) {
  double maximum = sink;
  bool any_nan = std::isnan(sink);
  for (std::int64_t j = 0; j < n; ++j) {
    maximum = std::max(maximum, s[j]);  // passes over NaN
    any_nan = any_nan || std::isnan(s[j]);
  }
  if (any_nan) return {maximum, std::numeric_limits<double>::quiet_NaN()};
  if (maximum == -kInfinity) return {maximum, 0};
  double sum = std::exp(sink - maximum);
  for (std::int64_t j = 0; j < n; ++j) sum += std::exp(s[j] - maximum);
  return {maximum, sum};
}

}  // namespace strobe::reference
