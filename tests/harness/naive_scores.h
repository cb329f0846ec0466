// The naive computation's view of one sequence and KV head: its keys and values in precision T, and
// the scores of one query row at a time.
#ifndef STROBE_TESTS_HARNESS_NAIVE_SCORES_H_
#define STROBE_TESTS_HARNESS_NAIVE_SCORES_H_

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/shapes.h"

namespace strobe::harness {

// How much a term counts in a magnitude: one at the end of the range would drown all else.
inline double size_of_term(double term) { return std::fabs(term) < 1e30 ? std::fabs(term) : 0; }

template <class T>
class NaiveScores {
 public:
  static constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();
  using Row = std::vector<T>;

  struct Score {
    T s;          // -inf where masked
    T slope;      // ds / d(scale q.k), through softcap
    double size;  // sum of the absolute values that make up s
  };

  // keep: as naive() takes it.
  NaiveScores(const Case& c, const Inputs& in, const Tensor& keep, const Sequence& seq,
              std::int64_t b, std::int64_t kv_head)
      : dims(c.problem), seq(seq), kv_head(kv_head), c_(c), in_(in), keep_(keep), b_(b) {
    for (std::int64_t j = 0; j < seq.len_k; ++j) {
      k.push_back(row(in.k, seq.k_begin + j, kv_head));
      v.push_back(row(in.v, seq.k_begin + j, kv_head));
    }
  }

  // The last dimension of a [batch, rows, heads, dim] tensor, row `at` of q or of k.
  Row row(const Tensor& t, std::int64_t at, std::int64_t head) const {
    Row values(static_cast<std::size_t>(t.size[3]));
    for (std::int64_t d = 0; d < t.size[3]; ++d) values[d] = T(t.get({seq.batch, at, head, d}));
    return values;
  }

  std::vector<Score> scores(std::int64_t i, std::int64_t h) const {
    const Row q = row(in_.q, seq.q_begin + i, h);
    std::vector<Score> result;
    for (std::int64_t j = 0; j < seq.len_k; ++j) {
      result.push_back(visible(i, j, h) ? score(q, i, j, h) : Score{kMinusInfinity, 0, 0});
    }
    return result;
  }

  T keep_factor(std::int64_t i, std::int64_t j, std::int64_t h) const {
    if (!keep_.defined()) return 1;
    const bool kept = keep_.get({seq.batch, h, seq.q_begin + i, j}) != 0;
    return kept ? T(1 / (1 - c_.problem.dropout_p)) : 0;
  }

  T sink(std::int64_t h) const {
    return in_.sinks.defined() ? T(in_.sinks.get({0, 0, 0, h})) : kMinusInfinity;
  }

  T rounded(T x) const { return static_cast<T>(round_to(dims.dtype, x)); }

  const Dims dims;
  const Sequence& seq;
  const std::int64_t kv_head;
  std::vector<Row> k, v;

 private:
  bool visible(std::int64_t i, std::int64_t j, std::int64_t h) const {
    const Band& band = c_.problem.mask;
    if (band.left >= 0 && i + seq.offset - band.left > j) return false;
    if (band.right >= 0 && i + seq.offset + band.right < j) return false;
    return !in_.mask.defined() || in_.mask.get(broadcast_index(in_.mask, b_, h, i, j)) != 0;
  }

  Score score(const Row& q, std::int64_t i, std::int64_t j, std::int64_t h) const {
    T dot = 0;
    double size = 0;
    for (std::size_t d = 0; d < q.size(); ++d) {
      dot += q[d] * k[j][d];
      size += std::fabs(double(q[d]) * k[j][d]);
    }
    Score x{T(dims.scale) * dot, 1, size * std::fabs(dims.scale)};
    const T cap = T(c_.problem.softcap);
    if (cap > 0) {
      const T t = std::tanh(x.s / cap);
      x = {cap * t, 1 - t * t, x.size + cap};
    }
    if (in_.alibi_slopes.defined()) {
      const Index at = {0, 0, in_.alibi_slopes.size[2] == 1 ? 0 : b_, h};
      const T penalty = T(in_.alibi_slopes.get(at)) * T(std::abs(i + seq.offset - j));
      x.s -= penalty;
      x.size += penalty;
    }
    if (in_.bias.defined()) {
      const T bias = T(in_.bias.get(broadcast_index(in_.bias, b_, h, i, j)));
      x.s += bias;
      x.size += size_of_term(bias);
    }
    return x;
  }

  const Case& c_;
  const Inputs& in_;
  const Tensor& keep_;
  const std::int64_t b_;
};

}  // namespace strobe::harness

#endif  // STROBE_TESTS_HARNESS_NAIVE_SCORES_H_
