// Bugs that users of other attention libraries met, as tests: GQA, softcap, dropout, sinks, split
// keys, determinism. See users_scores_test.cpp.
#include <cmath>
#include <cstdint>

#include "cpu_run.h"

namespace strobe::harness {
namespace {

class Users6Features : public OnTarget {};
class Users7SplitKeys : public OnTarget {};
class Users8Plans : public OnTarget {};

// V of key/value head g is 1 + g everywhere: O of query head h must be 1 + h / ratio.
TEST_P(Users6Features, B59_QueryHeadsReadTheirKeyValueHead) {
  for (std::int64_t ratio : {3, 5, 6, 7, 12, 20}) {
    for (std::int64_t rows : {1, 50}) {
      Case c = dense(rows, 40, 16);
      c.problem.batch = 2;
      c.problem.kv_heads = 3;
      c.problem.heads = 3 * ratio;
      c.data = Data::v_head_index;
      const Outputs out = run_cpu(c, inputs_of(c));
      for_each(out.o.size, [&](const Index& at) {
        const double expected = 1 + static_cast<double>(at[2] / ratio);
        ASSERT_NEAR(out.o.get(at), expected, 1e-5) << "ratio " << ratio << " " << text(at);
      });
    }
  }
}

TEST_P(Users6Features, B60_OneQueryWithPaddedStrides) {
  for (Op op : {Op::forward, Op::backward}) {
    Case c = dense(1, 77, 128, DType::bf16, op);
    Problem& p = c.problem;
    p.batch = 3;
    p.heads = 8;
    p.kv_heads = 2;
    p.q_strides = p.o_strides = p.dout_strides = p.dq_strides = {8 * 136 + 24, 8 * 136, 136};
    p.k_strides = p.v_strides = p.dk_strides = p.dv_strides = {80 * 300, 300, 144};
    p.alignment_bytes = 2;
    check(c);
  }
}

TEST_P(Users6Features, B62_Softcap) {
  for (double sign : {1.0, -1.0}) {
    Case c = dense(1, 1, 1);
    c.problem.scale = 1;
    c.problem.softcap = 10;
    Inputs in = inputs_of(c);
    assign_all(in.q, 3);
    assign_all(in.k, sign);
    assign_all(in.v, 1);
    const Outputs out = run_cpu(c, in);
    EXPECT_NEAR(out.lse.get({0, 0, 0, 0}), sign * 2.9131261245159090, 1e-6);

    // dLSE / dq = k (1 - tanh^2(s / cap)).
    c.problem.op = Op::backward;
    Inputs back = backward_inputs(in, out, in.q);
    assign_all(back.dout, 0);
    back.dlse = out.lse;
    assign_all(back.dlse, 1);
    const double slope = 1 - std::pow(std::tanh(0.3), 2);
    EXPECT_NEAR(run_cpu(c, back).dq.get({0, 0, 0, 0}), sign * slope, 1e-6);
  }
  Case c = dense(100, 130, 128, DType::bf16, Op::backward);
  c.problem.heads = 2;
  c.problem.softcap = 10;
  c.data = Data::x3;
  check(c);
  c.problem.lengths = Lengths::varlen;
  c.problem.batch = 2;
  c.problem.softcap = 15;
  c.cu_seqlens_q = {0, 30, 100};
  c.cu_seqlens_k = {0, 101, 130};
  c.problem.total_q = 100;
  c.problem.total_k = 130;
  check(c);
}

Case dropout_case(Op op) {
  Case c = dense(60, 90, 90, DType::f32, op);
  c.problem.batch = 2;
  c.problem.heads = 4;
  c.problem.kv_heads = 2;
  c.problem.dropout_p = 0.3;
  c.data = Data::one_hot_v;
  return c;
}

Tensor keep_mask(Case c, const PlanOptions& options) {
  c.problem.op = Op::keep_mask;
  c.problem.num_rows = c.problem.seqlen_q;
  for (std::int64_t i = 0; i < c.problem.seqlen_q; ++i) c.rows.push_back(i);
  return run_plan(c, Inputs(), options).keep_mask;
}

// Q = 0 and V = identity: O is the dropout mask over (keys * (1 - p)).
TEST_P(Users6Features, B64_ForwardDropsWhatTheKeepMaskSays) {
  Case c = dropout_case(Op::forward);
  Inputs in = inputs_of(c);
  assign_all(in.q, 0);
  const Outputs out = run_cpu(c, in);
  const Tensor keep = keep_mask(c, options());
  for_each(out.o.size, [&](const Index& at) {
    const double kept = keep.get({at[0], at[2], at[1], at[3]});
    ASSERT_NEAR(out.o.get(at), kept / (90 * 0.7), 1e-7) << text(at);
  });
  EXPECT_TRUE(all_near(out.lse, std::log(90), 1e-5));  // before dropout
  check(dropout_case(Op::backward));                   // with the same mask
}

TEST_P(Users6Features, B65_SeedAndOffsetDrawTheMask) {
  Case c = dropout_case(Op::forward);
  const Outputs first = run_cpu(c, inputs_of(c));
  EXPECT_TRUE(same_bits(run_cpu(c, inputs_of(c)), first));
  const Tensor mask = keep_mask(c, options());
  Case other = c;
  other.seed = c.seed + 1;
  const Tensor other_mask = keep_mask(other, options());
  double kept = 0, differ = 0;
  for_each(mask.size, [&](const Index& at) {
    kept += mask.get(at);
    differ += mask.get(at) != other_mask.get(at);
  });
  const auto n = static_cast<double>(mask.elements());
  const double sigma = std::sqrt(n * 0.3 * 0.7);
  EXPECT_NEAR(kept, n * 0.7, 4 * sigma);
  EXPECT_NEAR(differ, n * 2 * 0.3 * 0.7, 6 * sigma);
}

// Key indices beyond 65536.
TEST_P(Users6Features, B65_MaskOfALongRow) {
  Case c = dense(1, 70000, 1);
  c.problem.dropout_p = 0.5;
  Inputs in = inputs_of(c);
  assign_all(in.q, 0);
  const Tensor keep = keep_mask(c, options());
  double late = 0, repeats = 0, kept = 0;
  for (std::int64_t j = 0; j < 70000; ++j) {
    const double value = keep.get({0, 0, 0, j});
    kept += value;
    if (j < 65536) continue;
    late += value;
    repeats += value == keep.get({0, 0, 0, j - 65536});
  }
  EXPECT_NEAR(late, 2232, 4 * std::sqrt(4464 * 0.25));
  EXPECT_NEAR(repeats, 2232, 4 * std::sqrt(4464 * 0.25));
  assign_all(in.v, 1);
  EXPECT_NEAR(run_cpu(c, in).o.get({0, 0, 0, 0}), 2 * kept / 70000, 1e-5);
}

// n zero logits and a sink of 0: O = n / (n + 1), dSink = -n / (n + 1)^2, however the keys are cut.
TEST_P(Users6Features, B66_SinkIsCountedOnce) {
  for (std::int64_t n : {1, 7, 300, 5000, 18000}) {
    Case c = dense(1, n, 4);
    c.problem.heads = 2;
    c.problem.sinks = true;
    c.data = Data::v_ones;
    Inputs in = inputs_of(c);
    assign_all(in.q, 0);
    assign_all(in.sinks, 0);
    const Outputs out = run_cpu(c, in);
    const auto count = static_cast<double>(n);
    EXPECT_TRUE(all_near(out.o, count / (count + 1), 1e-6)) << n;
    EXPECT_TRUE(all_near(out.lse, std::log(count + 1), 2e-6)) << n;
    c.problem.op = Op::backward;
    c.dsinks = true;
    Inputs back = backward_inputs(in, out, in.q);
    assign(back.dout, [](const Index& at) { return at[3] == 0; });
    const double expected = -count / ((count + 1) * (count + 1));
    EXPECT_TRUE(all_near(run_cpu(c, back).dsinks, expected, 1e-6 * std::fabs(expected) + 1e-9));
  }
}

TEST_P(Users6Features, B66_SinkAlone) {
  for (std::int64_t keys : {2, 5000}) {  // all masked by position, all masked by bias
    Case c = dense(3, keys, 8);
    c.problem.sinks = true;
    if (keys == 2) c.problem.mask = Band{.right = 0, .offset = -10};
    if (keys != 2) c.problem.bias = {.dtype = DType::f32, .seqlen_q = 1};
    c.bias_inf_share = 1;
    const Inputs in = inputs_of(c);
    const Outputs out = run_cpu(c, in);
    EXPECT_TRUE(all_equal(out.o, 0));
    EXPECT_TRUE(all_equal(out.lse, in.sinks.get({0, 0, 0, 0})));
    c.problem.op = Op::backward;
    c.dsinks = true;
    Inputs back = backward_inputs(in, out, in.q);
    back.dlse = out.lse;
    assign_all(back.dlse, 2);
    const Outputs grads = run_cpu(c, back);
    EXPECT_TRUE(all_near(grads.dsinks, 6, 1e-5));  // dLSE / dsink = 1
    for (const Tensor* t : {&grads.dq, &grads.dk, &grads.dv}) EXPECT_TRUE(all_equal(*t, 0));
  }
}

TEST_P(Users7SplitKeys, B69_DecodeOfManyKeys) {
  Case c = dense(1, 4096, 32, DType::bf16);
  c.problem.heads = 4;
  c.problem.kv_heads = 2;
  check(c);
  // One head alone: with two query heads per head of keys, bits may not depend on the others.
  const Inputs in = inputs_of(c);
  const Outputs all = run_cpu(c, in);
  Case one = c;
  one.problem.heads = 2;
  one.problem.kv_heads = 1;
  Inputs head = inputs_of(one);
  assign(head.q, [&](const Index& at) { return in.q.get({0, 0, 2 + at[2], at[3]}); });
  assign(head.k, [&](const Index& at) { return in.k.get({0, at[1], 1, at[3]}); });
  assign(head.v, [&](const Index& at) { return in.v.get({0, at[1], 1, at[3]}); });
  const Outputs alone = run_cpu(one, head);
  for_each(alone.o.size, [&](const Index& at) {
    ASSERT_EQ(alone.o.get(at), all.o.get({0, 0, 2 + at[2], at[3]}));
  });
}

// A cache of 8,192 slots of which a few more than a whole number of splits are used: the new keys,
// and only these, have V = 1.
TEST_P(Users7SplitKeys, B71_SplitsFollowTheLengthInUse) {
  constexpr std::int64_t kOld = 3456;  // three splits of the least size
  for (std::int32_t fresh : {1, 2, 7, 63, 96, 97, 130}) {
    Case c = dense(1, 8192, 16);
    c.problem.lengths = Lengths::padded;
    c.seqlens_k = {static_cast<std::int32_t>(kOld) + fresh};
    Inputs in = inputs_of(c);
    assign_all(in.q, 0);
    assign(in.v, [&](const Index& at) {
      return at[1] >= c.seqlens_k[0] ? kNaN : at[1] >= kOld ? 1 : 0;
    });
    const double expected = fresh / static_cast<double>(c.seqlens_k[0]);
    EXPECT_TRUE(all_near(run_cpu(c, in).o, expected, 1e-6)) << fresh;
  }
}

// Two plans made, then both run: neither sees anything of the other.
TEST_P(Users8Plans, B77_PlansDoNotShareState) {
  Case a = dense(100, 100, 32), b = dense(7, 1000, 64);
  b.problem.heads = 3;
  const Inputs in_a = inputs_of(a), in_b = inputs_of(b);
  const Outputs alone_a = run_cpu(a, in_a), alone_b = run_cpu(b, in_b);
  const Result<Plan> plan_a = make_plan(a.problem, options());
  const Result<Plan> plan_b = make_plan(b.problem, options());
  ASSERT_TRUE(plan_a && plan_b);
  Outputs out_a = make_outputs(a), out_b = make_outputs(b);
  ASSERT_TRUE(run(*plan_a, a, in_a, &out_a));
  ASSERT_TRUE(run(*plan_b, b, in_b, &out_b));
  EXPECT_TRUE(same_bits(out_a, alone_a));
  EXPECT_TRUE(same_bits(out_b, alone_b));
}

TEST_P(Users8Plans, B78_GradientsRepeatToTheBit) {
  Case c = dense(130, 450, 64, DType::bf16, Op::backward);
  c.problem.heads = 4;
  c.problem.kv_heads = 2;
  c.problem.deterministic = true;
  const Inputs in = inputs_of(c);
  const Outputs first = run_plan(c, in, options(4));
  for (int n = 0; n < 30; ++n) ASSERT_TRUE(same_bits(run_plan(c, in, options(4)), first)) << n;
}

TEST_P(Users8Plans, B83_Fp8IsRefusedByName) {
  for (DType dtype : {DType::f8e4m3, DType::f8e5m2}) {
    const Result<Plan> plan = make_plan(dense(8, 8, 16, dtype).problem, options());
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.status().code(), STROBE_UNSUPPORTED);
    EXPECT_NE(plan.status().message().find("fp8"), std::string::npos) << plan.status().message();
  }
}

STROBE_ON_EVERY_TARGET(Users6Features);
STROBE_ON_EVERY_TARGET(Users7SplitKeys);
STROBE_ON_EVERY_TARGET(Users8Plans);

}  // namespace
}  // namespace strobe::harness
