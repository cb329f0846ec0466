// The oracle against two forward passes that share nothing with it: one written here for dense
// problems, softmax by definition in long double, and the harness's naive computation in float64
// for everything that random_case() draws.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference_run.h"

namespace strobe::harness {
namespace {

// O and LSE of a dense problem with causal mask, softcap and ALiBi, without any care for overflow.
void naive_forward(const Case& c, const Inputs& in, Tensor& o, Tensor& lse) {
  const Problem& p = c.problem;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < p.heads; ++h) {
      const std::int64_t hk = h * *p.kv_heads / p.heads;
      for (std::int64_t i = 0; i < p.seqlen_q; ++i) {
        long double total = 0;
        std::vector<long double> numerator(static_cast<std::size_t>(*p.head_dim_v));
        for (std::int64_t j = 0; j < p.seqlen_k && j <= i + p.seqlen_k - p.seqlen_q; ++j) {
          long double x = 0;
          for (std::int64_t d = 0; d < p.head_dim; ++d) {
            x += static_cast<long double>(in.q.get({b, i, h, d})) * in.k.get({b, j, hk, d});
          }
          x = p.softcap *
              std::tanh(x / std::sqrt(static_cast<long double>(p.head_dim)) / p.softcap);
          x -= in.alibi_slopes.get({0, 0, 0, h}) *
               static_cast<double>(std::abs(p.seqlen_k - p.seqlen_q + i - j));
          total += std::exp(x);
          for (std::int64_t d = 0; d < *p.head_dim_v; ++d) {
            numerator[d] += std::exp(x) * in.v.get({b, j, hk, d});
          }
        }
        lse.set({b, h, i, 0}, static_cast<double>(std::log(total)));
        for (std::int64_t d = 0; d < *p.head_dim_v; ++d) {
          o.set({b, i, h, d}, static_cast<double>(numerator[d] / total));
        }
      }
    }
  }
}

TEST(Forward, EqualsSoftmaxByDefinition) {
  Case c;
  c.seed = 11;
  c.problem = {.batch = 3, .heads = 6, .kv_heads = 2, .seqlen_q = 9, .seqlen_k = 14, .head_dim = 5};
  c.problem.head_dim_v = 4;
  c.problem.dtype = DType::f64;
  c.problem.mask = Band::causal();
  c.problem.softcap = 3;
  c.problem.alibi = Alibi::per_head;
  const Inputs in = inputs_of(c);
  const Outputs out = run_reference(c, in);
  Outputs expected = make_outputs(c);
  naive_forward(c, in, expected.o, expected.lse);
  for_each_index(out.o,
                 [&](const Index& at) { ASSERT_NEAR(out.o.get(at), expected.o.get(at), 1e-14); });
  for_each_index(
      out.lse, [&](const Index& at) { ASSERT_NEAR(out.lse.get(at), expected.lse.get(at), 1e-13); });
}

TEST(Forward, EveryOperationEqualsTheNaiveOneInFloat64) {
  int compared = 0;
  for (std::uint64_t seed = 1000; seed < 1080; ++seed) {
    const CheckReport report = check_case(as_f64(random_case(seed)), {.kernel = "reference"});
    ASSERT_EQ(report.outcome, Outcome::passed) << report.text();
    for (const CheckRow& row : report.rows) {
      EXPECT_LE(row.naive_error, 1e-11 * (1 + row.max_ref)) << row.tensor << "\n" << report.text();
      compared += row.max_ref > 0;
    }
  }
  EXPECT_GT(compared, 100);
}

}  // namespace
}  // namespace strobe::harness
