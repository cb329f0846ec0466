// The generic rows, the float64 oracle, merge, probabilities and keep masks on the emulator,
// through the public API, against the float64 reference. The emulator reports races, reads of what
// nobody wrote and accesses outside the tensors as errors of the run; the harness poisons all else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "harness/harness.h"
#include "harness/shapes.h"

namespace strobe::harness {
namespace {

PlanOptions options(std::uint64_t seed, const char* kernel = "generic") {
  constexpr const char* kLandings[] = {"immediate", "late", "random"};
  return {.device = Device::emulator(),
          .kernel = kernel,
          .overrides =
              "landing=" + std::string(kLandings[seed % 3]) + ",seed=" + std::to_string(seed + 1),
          .threads = 1};
}

void expect_passes(const Case& c, std::uint64_t seed = 1) {
  const CheckReport report = check_case(c, options(seed));
  EXPECT_EQ(report.outcome, Outcome::passed) << report.text();
}

// Multiply-adds and loads that the emulator must do, roughly.
double work(const Case& c) {
  const Problem& p = c.problem;
  const auto batch = static_cast<double>(std::max<std::int64_t>(p.batch, 1));
  const bool varlen = p.lengths == Lengths::varlen;
  const double rows =
      varlen ? static_cast<double>(p.total_q) / batch : static_cast<double>(p.seqlen_q);
  const double keys = p.op == Op::merge ? p.partials
                      : varlen          ? static_cast<double>(p.total_k) / batch
                                        : static_cast<double>(p.seqlen_k);
  const auto dims = static_cast<double>(p.head_dim + p.head_dim_v.value_or(p.head_dim));
  const double ctas = batch * static_cast<double>(p.heads) * 2e4;
  return ctas + batch * static_cast<double>(p.heads) * (rows + 32) * (keys + 32) * dims *
                    (p.op == Op::backward ? 3 : 1);
}

std::uint64_t cases(std::uint64_t quick, std::uint64_t slow) {
  return std::getenv("STROBE_SLOW") ? slow : quick;
}

Case dense(Op op, DType dtype, std::int64_t seqlen_q, std::int64_t seqlen_k,
           std::int64_t head_dim) {
  Case c;
  c.seed = 5;
  c.problem = {
      .seqlen_q = seqlen_q, .seqlen_k = seqlen_k, .head_dim = head_dim, .dtype = dtype, .op = op};
  return c;
}

TEST(Generic, RandomCasesAgreeWithTheReference) {
  std::uint64_t checked = 0;
  for (std::uint64_t seed = 0; checked < cases(100, 2000); ++seed) {
    const Case c = random_case(seed);
    if (work(c) > 2e6) continue;
    ++checked;
    expect_passes(c, seed);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Generic, LengthsAtTheEdgesOfTiles) {
  constexpr std::int64_t kLengths[] = {0, 1, 2, 7, 33, 65, 129};
  std::uint64_t seed = 0;
  for (std::int64_t q : kLengths) {
    for (std::int64_t k : kLengths) {
      if (q == 129 && k == 129 && !std::getenv("STROBE_SLOW")) continue;
      const Op op = ++seed % 2 ? Op::forward : Op::backward;
      Case c = dense(op, DType::f32, q, k, 8);
      c.problem.heads = 2;
      c.problem.kv_heads = 1;
      c.data = Data::growing_maxima;
      if (seed % 3 == 0) c.problem.mask = Band::causal();
      if (seed % 3 == 1) c.problem.mask = Band::window(20, 3);
      expect_passes(c, seed);
    }
  }
}

// Each tile of keys ends the walk over queries, and each tile of queries that over keys, at its own
// place: one off shows.
TEST(Generic, WindowsThatCutTiles) {
  constexpr std::int64_t kWindows[][2] = {{20, 3}, {0, 0}, {3, -1}, {-1, 0}};
  for (const auto& [left, right] : kWindows) {
    for (const Op op : {Op::forward, Op::backward}) {
      Case c = dense(op, DType::f32, 139, 140, 4);
      c.problem.mask = Band::window(left, right);
      expect_passes(c);
    }
  }
}

TEST(Generic, EveryHeadDimension) {
  constexpr std::int64_t kDims[] = {1, 8, 40, 46, 80, 257, 512};
  std::uint64_t seed = 0;
  for (std::int64_t d : kDims) {
    for (const Op op : {Op::forward, Op::backward}) {
      constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};
      Case c = dense(op, kTypes[seed % 3], 9, 34, d);
      c.problem.head_dim_v = kDims[(seed + 3) % std::size(kDims)];
      c.problem.alignment_bytes = 4;
      c.misalign_bytes = 4;
      expect_passes(c, ++seed);
    }
  }
}

// Everything at once, the bias broadcast in each possible way.
TEST(Generic, EveryFeature) {
  constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};
  for (std::uint64_t n = 0; n < 8; ++n) {
    Case c = dense(n == 7 ? Op::forward : Op::backward, kTypes[n % 3], 37, 71, 12);
    Problem& p = c.problem;
    p.batch = 2;
    p.heads = 4;
    p.kv_heads = 2;
    p.mask = Band::window(40, 9);
    p.softcap = 5;
    p.alibi = n % 2 ? Alibi::per_head : Alibi::per_batch_head;
    p.sinks = true;
    p.dropout_p = 0.3;
    p.bias = {.dtype = n % 2 ? DType::f32 : p.dtype};
    if (n & 1) p.bias.batch = 1;
    if (n & 2) p.bias.heads = 1;
    if (n & 4) p.bias.seqlen_q = 1;
    p.bool_mask = {.dtype = DType::boolean};
    c.dlse = c.dbias = c.dsinks = p.op == Op::backward;
    expect_passes(c, n);
  }
}

TEST(Generic, GradientsHaveTheSameBitsInAnyOrderOfThreads) {
  Case c = dense(Op::backward, DType::f32, 70, 90, 16);
  c.problem.heads = 2;
  c.problem.sinks = true;
  c.problem.bias = {.dtype = DType::f32, .heads = 1};
  c.dbias = c.dsinks = true;
  const Result<Inputs> inputs = make_inputs(c);
  ASSERT_TRUE(inputs);
  Outputs first;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    Outputs outputs = make_outputs(c);
    const Result<Plan> plan = make_plan(c.problem, options(seed));
    ASSERT_TRUE(plan) << plan.status().message();
    const Status status = run(*plan, c, *inputs, &outputs);
    ASSERT_TRUE(status) << status.message();
    if (seed == 0) first = outputs;
    for (const auto member :
         {&Outputs::dq, &Outputs::dk, &Outputs::dv, &Outputs::dbias, &Outputs::dsinks}) {
      const Buffer &a = (first.*member).buffer, &b = (outputs.*member).buffer;
      EXPECT_TRUE(std::equal(a.data(), a.data() + a.bytes(), b.data(), b.data() + b.bytes()));
    }
  }
}

// Rows past the last sequence, empty sequences, and no sequence at all.
TEST(Generic, PackedSequences) {
  for (const Op op : {Op::forward, Op::backward}) {
    for (int kind = 0; kind < 3; ++kind) {
      Case c = dense(op, DType::f32, 0, 0, 8);  // lengths unknown
      Problem& p = c.problem;
      p.heads = 2;
      p.alibi = Alibi::per_batch_head;
      p.mask = Band::causal();
      p.lengths = Lengths::varlen;
      p.batch = kind == 2 ? 0 : 4;
      p.total_q = 90;
      p.total_k = 100;
      c.cu_seqlens_q = {0, 5, 5, 70, 72};
      c.cu_seqlens_k = {0, 0, 7, 80, 99};
      if (kind == 1) c.seqlens_q = {3, 0, 64, 2};
      if (kind == 1) c.seqlens_k = {0, 7, 70, 1};
      if (kind == 2) c.cu_seqlens_q = c.cu_seqlens_k = {0};
      expect_passes(c, static_cast<std::uint64_t>(kind));
    }
  }
}

// Any case, in float64.
Case in_f64(Case c) {
  c.problem.dtype = DType::f64;
  if (c.problem.bias.dtype != DType::none) c.problem.bias.dtype = DType::f64;
  c.problem.partial_dtype = DType::none;
  c.problem.alignment_bytes = 8;
  c.misalign_bytes = 8;
  return c;
}

TEST(Oracle, RandomCasesInFloat64) {
  std::uint64_t checked = 0;
  for (std::uint64_t seed = 5000; checked < cases(120, 1000); ++seed) {
    const Case c = random_case(seed);
    if (work(c) > 5e5) continue;
    ++checked;
    expect_passes(in_f64(c), seed);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Oracle, EveryFeature) {
  for (const Op op : {Op::forward, Op::backward, Op::probs}) {
    Case c = dense(op, DType::f64, 9, 41, 5);
    Problem& p = c.problem;
    p.batch = 2;
    p.heads = 2;
    p.kv_heads = 1;
    p.head_dim_v = 34;
    p.mask = Band::window(20, 3);
    p.softcap = 3;
    p.alibi = Alibi::per_batch_head;
    p.sinks = true;
    if (op != Op::probs) p.dropout_p = 0.3;
    p.bias = {.dtype = DType::f64, .heads = 1};
    p.bool_mask = {.dtype = DType::boolean};
    if (op == Op::probs) {
      c.rows = {8, 0, 3};
      p.num_rows = 3;
    }
    c.dlse = c.dbias = c.dsinks = op == Op::backward;
    expect_passes(c);
  }
}

// More parts than one launch can carry.
TEST(Merge, ManyParts) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Case c = dense(Op::merge, dtype, 3, 1, 9);
    c.problem.partials = 460;
    c.problem.partial_dtype = DType::f32;
    c.empty_partials.assign(460, false);
    c.empty_partials[0] = c.empty_partials[7] = true;
    expect_passes(c);
  }
}

TEST(Merge, RefusesMorePartsThanItTakes) {
  Case c = dense(Op::merge, DType::f32, 1, 1, 1);
  c.problem.partials = 897;
  const Result<Plan> plan = make_plan(c.problem, options(0));
  ASSERT_FALSE(plan);
  EXPECT_NE(std::string(plan.status().message()).find("partials is 897"), std::string::npos)
      << plan.status().message();
}

TEST(Generic, TakesWhatNoOtherKernelDoes) {
  const Case c = dense(Op::forward, DType::f32, 3, 5, 300);
  const CheckReport report = check_case(c, {.device = Device::emulator()});
  EXPECT_EQ(report.outcome, Outcome::passed) << report.text();
}

}  // namespace
}  // namespace strobe::harness
