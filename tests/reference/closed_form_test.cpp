// The reference on problems whose answers are known on paper.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "reference_run.h"

namespace strobe::harness {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Case dense(std::int64_t seqlen_q, std::int64_t seqlen_k, std::int64_t head_dim,
           DType dtype = DType::f64) {
  Case c;
  c.seed = 5;
  c.problem = {.seqlen_q = seqlen_q, .seqlen_k = seqlen_k, .head_dim = head_dim, .dtype = dtype};
  return c;
}

void expect_all(const Tensor& t, double value, double tolerance = 0) {
  for_each_index(t, [&](const Index& at) {
    if (std::isinf(value)) {
      ASSERT_EQ(t.get(at), value);
    } else {
      ASSERT_NEAR(t.get(at), value, tolerance);
    }
  });
}

TEST(ClosedForm, SinkAmongEqualLogits) {
  for (const std::int64_t n : {1, 7, 64}) {
    Case c = dense(1, n, 1);
    c.problem.sinks = true;
    c.problem.op = Op::backward;
    c.dsinks = true;
    c.data = Data::v_ones;
    Inputs in = inputs_of(c);
    assign_all(in.q, 0);
    assign_all(in.sinks, 0);
    assign_all(in.dout, 1);
    const double count = static_cast<double>(n);
    assign_all(in.o, count / (count + 1));
    assign_all(in.lse, std::log(count + 1));
    expect_all(run_reference(c, in).dsinks, -count / ((count + 1) * (count + 1)), 1e-15);

    c.problem.op = Op::forward;
    in.o = in.lse = in.dout = Tensor();
    const Outputs out = run_reference(c, in);
    expect_all(out.o, count / (count + 1), 1e-14);
    expect_all(out.lse, std::log(count + 1), 1e-15);
  }
}

TEST(ClosedForm, SinkAlone) {
  Case c = dense(3, 2, 4);
  c.problem.mask = Band{.right = 0, .offset = -10};  // no row sees a key
  c.problem.sinks = true;
  c.problem.op = Op::backward;
  c.dlse = c.dsinks = true;
  Inputs in = inputs_of(c);
  assign_all(in.dlse, 2);
  const Outputs gradients = run_reference(c, in);
  expect_all(gradients.dsinks, 3 * 2.0);  // dLSE / dsink = 1
  expect_all(gradients.dq, 0);
  expect_all(gradients.dk, 0);
  expect_all(in.o, 0);
  expect_all(in.lse, in.sinks.get({0, 0, 0, 0}));
}

TEST(ClosedForm, Softcap) {
  for (const double sign : {1.0, -1.0}) {
    Case c = dense(1, 1, 1);
    c.problem.scale = 1;
    c.problem.softcap = 10;
    Inputs in = inputs_of(c);
    assign_all(in.q, 3);
    assign_all(in.k, sign);
    expect_all(run_reference(c, in).lse, sign * 2.9131261245159090, 1e-14);
  }
}

TEST(ClosedForm, ExtremeLogits) {
  const struct {
    DType dtype;
    std::int64_t head_dim, keys;
    double q, k, lse;
  } kCases[] = {{DType::bf16, 128, 5, 1, -480, -5428.9706},
                {DType::f32, 128, 5, 1, -480, -5428.9706},
                {DType::f64, 128, 5, 1, -480, -5428.9706},
                {DType::bf16, 128, 5, 1, 480, 5432.1894},
                {DType::f16, 512, 6, 12, 12, 3260.1398}};
  for (const auto& x : kCases) {
    Case c = dense(2, x.keys, x.head_dim, x.dtype);
    Inputs in = inputs_of(c);
    assign_all(in.q, x.q);
    assign_all(in.k, x.k);
    assign(in.v, [](const Index& at) { return static_cast<double>(at[1]); });
    const Outputs out = run_reference(c, in);
    expect_all(out.lse, x.lse, 3e-4);
    expect_all(out.o, static_cast<double>(x.keys - 1) / 2, 1e-12);
  }
}

// V = identity: row i of O says which keys query i saw.
void expect_visible(Case c, std::int64_t i, std::int64_t first, std::int64_t last) {
  c.problem.head_dim_v = c.problem.seqlen_k;
  c.data = Data::one_hot_v;
  const Outputs out = run_reference(c, inputs_of(c));
  for (std::int64_t j = 0; j < c.problem.seqlen_k; ++j) {
    EXPECT_EQ(out.o.get({0, i, 0, j}) != 0, first <= j && j <= last)
        << "query " << i << ", key " << j;
  }
}

TEST(ClosedForm, BandsShowTheirKeys) {
  Case c = dense(2, 5, 3);
  c.problem.mask = Band::causal();  // bottom right: the last query sees the last key
  expect_visible(c, 0, 0, 3);
  expect_visible(c, 1, 0, 4);
  c.problem.mask = Band{.right = 0, .offset = 0};  // top left
  expect_visible(c, 0, 0, 0);
  expect_visible(c, 1, 0, 1);
  c = dense(9, 9, 3);
  c.problem.mask = Band::window(3, 2);  // inclusive counts
  expect_visible(c, 5, 2, 7);
  c.problem.mask = Band::window(0, 0);
  expect_visible(c, 5, 5, 5);
  c.problem.mask = Band::window(-1, 1);
  expect_visible(c, 5, 0, 6);
  c.problem.mask = Band::window(2, -1);
  expect_visible(c, 5, 3, 8);
  c = dense(1, 5, 3);
  c.problem.mask = Band::causal();
  expect_visible(c, 0, 0, 4);
}

TEST(ClosedForm, RowsThatSeeNoKey) {
  Case c = dense(3, 1, 4);
  c.problem.mask = Band::causal();
  Outputs out = run_reference(c, inputs_of(c));
  for (const std::int64_t i : {0, 1}) {
    EXPECT_EQ(out.lse.get({0, 0, i, 0}), -kInfinity);
    EXPECT_EQ(out.o.get({0, i, 0, 2}), 0);
  }
  EXPECT_TRUE(std::isfinite(out.lse.get({0, 0, 2, 0})));

  c = dense(3, 4, 4);
  c.problem.bias = {.dtype = DType::f64};
  c.bias_inf_share = 1;
  out = run_reference(c, inputs_of(c));
  expect_all(out.lse, -kInfinity);
  expect_all(out.o, 0);
}

TEST(ClosedForm, LowestFloatBiasIsANumber) {
  Case c = dense(2, 4, 4, DType::f32);
  c.problem.bias = {.dtype = DType::f32};
  c.bias_lowest_share = 1;
  Inputs in = inputs_of(c);
  assign(in.v, [](const Index& at) { return static_cast<double>(at[1]); });
  expect_all(run_reference(c, in).o, 1.5, 1e-6);
}

TEST(ClosedForm, NaNFollowsTheMask) {
  Case c = dense(4, 4, 2);
  c.problem.mask = Band::causal();
  Inputs in = inputs_of(c);
  in.k.set({0, 2, 0, 1}, kNaN);
  const Outputs out = run_reference(c, in);
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(std::isnan(out.lse.get({0, 0, i, 0})), i >= 2);
    EXPECT_EQ(std::isnan(out.o.get({0, i, 0, 0})), i >= 2);
  }
  c = dense(1, 1, 2);  // nothing but the NaN
  in = inputs_of(c);
  in.q.set({0, 0, 0, 0}, kNaN);
  const Outputs alone = run_reference(c, in);
  EXPECT_TRUE(std::isnan(alone.lse.get({0, 0, 0, 0})));
  EXPECT_TRUE(std::isnan(alone.o.get({0, 0, 0, 0})));
}

Case merge_case(int partials) {
  Case c = dense(5, 0, 8, DType::f32);
  c.problem.heads = 3;
  c.problem.op = Op::merge;
  c.problem.partials = partials;
  c.empty_partials.resize(static_cast<std::size_t>(partials));
  return c;
}

TEST(ClosedForm, MergeWithEmptyIsTheIdentity) {
  Case c = merge_case(3);
  c.empty_partials = {true, false, true};
  Inputs in = inputs_of(c);
  const Outputs out = run_reference(c, in);
  for_each_index(out.o, [&](const Index& at) {
    const bool empty = in.partial_lse[1].get({at[0], at[2], at[1], 0}) == -kInfinity;
    EXPECT_EQ(out.o.get(at), empty ? 0 : in.partial_o[1].get(at));
  });
  for_each_index(out.lse,
                 [&](const Index& at) { EXPECT_EQ(out.lse.get(at), in.partial_lse[1].get(at)); });
  c.empty_partials = {true, true, true};
  const Outputs empty = run_reference(c, inputs_of(c));
  expect_all(empty.o, 0);
  expect_all(empty.lse, -kInfinity);
}

TEST(ClosedForm, MergeOfHalvesIsTheWhole) {
  Case whole = dense(6, 10, 4);
  Inputs in = inputs_of(whole);
  const Outputs expected = run_reference(whole, in);
  Case merged = merge_case(2);
  merged.problem.dtype = DType::f64;
  merged.problem.heads = 1;
  merged.problem.seqlen_q = 6;
  merged.problem.head_dim = 4;
  Inputs parts = inputs_of(merged);
  for (int part = 0; part < 2; ++part) {
    Case half = whole;
    half.problem.bool_mask = {.dtype = DType::boolean, .seqlen_q = 1};
    in.mask = Tensor(DType::boolean, {1, 1, 1, 10});
    assign(in.mask, [&](const Index& at) { return (at[3] < 3) == (part == 0); });
    Outputs out = run_reference(half, in);
    parts.partial_o[static_cast<std::size_t>(part)] = out.o;
    parts.partial_lse[static_cast<std::size_t>(part)] = out.lse;
  }
  const Outputs got = run_reference(merged, parts);
  for_each_index(got.o,
                 [&](const Index& at) { EXPECT_NEAR(got.o.get(at), expected.o.get(at), 1e-15); });
  for_each_index(
      got.lse, [&](const Index& at) { EXPECT_NEAR(got.lse.get(at), expected.lse.get(at), 1e-15); });
}

// Each sequence has one key, so P is 1 where a row sees it: dQ = 0, and dV = dO of the last row
// alone.
TEST(ClosedForm, VarlenCausalWithOneKeyEach) {
  Case c = dense(146, 1, 32, DType::f16);
  c.problem.lengths = Lengths::varlen;
  c.problem.batch = 3;
  c.problem.mask = Band::causal();
  c.problem.op = Op::backward;
  c.data = Data::x3;
  c.cu_seqlens_q = {0, 76, 110, 256};
  c.cu_seqlens_k = {0, 1, 2, 3};
  c.problem.total_q = 260;
  c.problem.total_k = 5;
  const Inputs in = inputs_of(c);
  const Outputs out = run_reference(c, in);
  for_each_index(out.dq, [&](const Index& at) { ASSERT_NEAR(out.dq.get(at), 0, 1e-6); });
  for (std::int64_t b = 0; b < 3; ++b) {
    for (std::int64_t d = 0; d < 32; ++d) {
      EXPECT_NEAR(out.dv.get({0, b, 0, d}), in.dout.get({0, c.cu_seqlens_q[b + 1] - 1, 0, d}),
                  1e-3);
    }
  }
  for (const std::int64_t tail : {3, 4}) EXPECT_EQ(out.dv.get({0, tail, 0, 0}), 0);
  for (const std::int64_t tail : {256, 259}) EXPECT_EQ(out.dq.get({0, tail, 0, 0}), 0);
}

TEST(Reference, RefusesFp8ByName) {
  const Case c = dense(4, 4, 16, DType::f8e4m3);
  const Result<Plan> plan = make_plan(c.problem, {.kernel = "reference"});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.status().code(), STROBE_UNSUPPORTED);
  EXPECT_NE(plan.status().message().find("fp8"), std::string::npos) << plan.status().message();
}

}  // namespace
}  // namespace strobe::harness
