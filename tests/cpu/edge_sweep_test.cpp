// Edge lengths, head dimensions and GQA ratios of every dtype and kind of data, against the float64
// reference: a sample in which every pair of values of two axes occurs, in cheap company. With
// STROBE_SLOW, all triples (seqlen_q, seqlen_k, head_dim).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <set>

#include "cpu_run.h"

namespace strobe::harness {
namespace {

constexpr std::int64_t kLengths[] = {0,  1,  2,  7,   8,   31,  32,  33,
                                     63, 64, 65, 127, 128, 129, 192, 704};
constexpr std::int64_t kHeadDims[] = {1, 8, 40, 46, 64, 72, 80, 96, 120, 128, 160, 192, 256, 512};
constexpr std::int64_t kRatios[] = {1, 3, 5, 6, 7, 12, 16, 20};
constexpr const char* kTilings[] = {"", "", ",q_tile=64,kv_block=12,kv_chunk=24",
                                    ",q_tile=192,kv_block=60,kv_chunk=60"};
const Band kBands[] = {Band::full(), Band::causal(), Band::window(33, 5), Band::window(-1, 64),
                       Band{.left = 64, .right = 0, .offset = 7}};

// One index into each of: kLengths twice, kHeadDims (q and k, v and o), kRatios, kDTypes, Data,
// kBands, kTilings.
constexpr std::array<int, 9> kAxes = {16, 16, 14, 14, 8, 3, kDataKinds, 5, 4};
using Point = std::array<int, kAxes.size()>;

Case case_of(const Point& at, Op op) {
  Case c = dense(kLengths[at[0]], kLengths[at[1]], kHeadDims[at[2]], kDTypes[at[5]], op);
  Problem& p = c.problem;
  p.batch = p.seqlen_q * p.seqlen_k > 20000 ? 1 : 2;
  p.kv_heads = 2;
  p.heads = 2 * kRatios[at[4]];
  p.head_dim_v = kHeadDims[at[3]];
  p.mask = kBands[at[7]];
  c.data = static_cast<Data>(at[6]);
  c.seed = 1;
  for (int index : at) c.seed = c.seed * 31 + static_cast<std::uint64_t>(index);
  return c;
}

// (query, key, dim) triples, and the elements of the tensors, which the harness looks at one by
// one.
double work_of(const Point& at) {
  const Case c = case_of(at, Op::forward);
  const Problem& p = c.problem;
  const std::int64_t dims = p.head_dim + *p.head_dim_v;
  const std::int64_t rows = p.heads * p.seqlen_q + *p.kv_heads * p.seqlen_k;
  return static_cast<double>(p.batch * dims * (p.heads * p.seqlen_q * p.seqlen_k + 20 * rows));
}

// The smallest of `draws` on the axes of sizes.
Point random_point(Rng& rng, int draws = 1) {
  Point at;
  for (std::size_t a = 0; a < at.size(); ++a) {
    at[a] = static_cast<int>(rng.between(0, kAxes[a] - 1));
    for (int n = 1; n < draws && a < 5; ++n) {
      at[a] = std::min(at[a], static_cast<int>(rng.between(0, kAxes[a] - 1)));
    }
  }
  return at;
}

// The values that a point has on axes a < b, as one number.
int pair_of(const Point& at, std::size_t a, std::size_t b) {
  return static_cast<int>(a * kAxes.size() + b) * 256 + at[a] * 16 + at[b];
}
void for_each_pair(const Point& at, const std::function<void(int)>& use) {
  for (std::size_t a = 0; a < at.size(); ++a) {
    for (std::size_t b = a + 1; b < at.size(); ++b) use(pair_of(at, a, b));
  }
}

// Greedy: each pair not yet covered is completed in the way, of some random ones, that covers most
// others.
std::vector<Point> pairwise_sample(double max_work) {
  Rng rng(7);
  std::set<int> covered;
  std::vector<Point> sample;
  const auto cover = [&](std::size_t a, std::size_t b, int value_a, int value_b) {
    Point best{};
    double most = 0;  // new pairs for the work
    for (int trial = 0; trial < 140; ++trial) {
      Point at = random_point(rng, 1 + trial / 20);
      at[a] = value_a;
      at[b] = value_b;
      if (covered.contains(pair_of(at, a, b))) return;
      if (work_of(at) > max_work) continue;
      double fresh = 0;
      for_each_pair(at, [&](int pair) { fresh += !covered.contains(pair); });
      fresh /= work_of(at) + 2e5;
      if (fresh > most) {
        best = at;
        most = fresh;
      }
    }
    if (most == 0) return;
    for_each_pair(best, [&](int pair) { covered.insert(pair); });
    sample.push_back(best);
  };
  std::size_t pairs = 0;
  for (std::size_t a = 0; a < kAxes.size(); ++a) {
    for (std::size_t b = a + 1; b < kAxes.size(); ++b) {
      for (int x = 0; x < kAxes[a] * kAxes[b]; ++x, ++pairs) {
        cover(a, b, x % kAxes[a], x / kAxes[a]);
      }
    }
  }
  EXPECT_EQ(covered.size(), pairs) << "some pair is too much work";
  return sample;
}

// Every triple of lengths and head dimension, in cheap company.
std::vector<Point> all_triples() {
  Rng rng(8);
  std::vector<Point> points;
  for (int x = 0; x < 16 * 16 * 14; ++x) {
    Point at = random_point(rng, 4);
    at[0] = x % 16;
    at[1] = x / 16 % 16;
    at[2] = x / 256;
    points.push_back(at);
  }
  return points;
}

// What a case must give: computed once for all targets.
class Expected {
 public:
  explicit Expected(const Case& c) : case_(c), inputs_(inputs_of(c)) {
    const Case c64 = as_f64(c);
    reference_ = run_plan(c64, as_f64(c, inputs_), {.kernel = "reference"});
    naive_ = naive(c, inputs_, Tensor());
  }

  void check(const PlanOptions& options) const {
    const Outputs got = run_plan(case_, inputs_, options);
    for (const CheckRow& row : compare(got, reference_, naive_)) {
      EXPECT_TRUE(row.ok) << options.overrides << ": " << describe(case_) << "\n  " << row.tensor
                          << ": " << row.fault << " at " << text(row.worst) << ", error "
                          << row.error << ", bound " << row.bound;
    }
  }

 private:
  Case case_;
  Inputs inputs_;
  Outputs reference_;
  Naive naive_;
};

class EdgeSweep : public testing::TestWithParam<Op> {};

TEST_P(EdgeSweep, AgreesWithTheReference) {
  static const std::vector<Point> sample =
      std::getenv("STROBE_SLOW") ? all_triples() : pairwise_sample(3e7);
  ASSERT_GT(sample.size(), 200u);
  for (const Point& at : sample) {
    const Expected expected(case_of(at, GetParam()));
    for (const std::string& target : tested_targets()) {
      PlanOptions options = on_target(target);
      options.overrides += kTilings[at[8]];
      expected.check(options);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, EdgeSweep, testing::Values(Op::forward, Op::backward),
                         [](const testing::TestParamInfo<Op>& op) {
                           return op.param == Op::forward ? "Forward" : "Backward";
                         });

}  // namespace
}  // namespace strobe::harness
