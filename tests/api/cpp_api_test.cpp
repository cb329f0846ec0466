// The C++ wrapper, from a problem to numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <strobe/strobe.hpp>
#include <thread>
#include <vector>

namespace strobe::test {
namespace {

Problem small_problem() {
  return {.heads = 2, .seqlen_q = 2, .seqlen_k = 4, .head_dim = 4, .mask = Band::causal()};
}

const PlanOptions kReference = {.kernel = "reference"};

// Equal logits: O is the mean of the visible V, LSE the logarithm of their number.
void run_and_check(const Plan& plan) {
  alignas(16) float q[2][2][4] = {}, o[2][2][4], k[4][2][4] = {}, v[4][2][4], lse[2][2];
  for (int j = 0; j < 4; ++j) {
    for (int h = 0; h < 2; ++h) {
      for (float& x : v[j][h]) x = static_cast<float>(j + 10 * h);
    }
  }
  const HostWorkspace workspace(plan);
  const Status status =
      plan.run({.q = q, .k = k, .v = v, .o = o, .lse = lse, .workspace = workspace});
  ASSERT_TRUE(status.ok()) << status.message();
  for (int h = 0; h < 2; ++h) {
    EXPECT_FLOAT_EQ(o[0][h][0], static_cast<float>(1 + 10 * h));    // keys 0 1 2
    EXPECT_FLOAT_EQ(o[1][h][3], static_cast<float>(1.5 + 10 * h));  // keys 0 1 2 3
    EXPECT_FLOAT_EQ(lse[h][0], std::log(3.0f));
    EXPECT_FLOAT_EQ(lse[h][1], std::log(4.0f));
  }
}

TEST(CppApi, FromProblemToNumbers) {
  const Result<Plan> plan = make_plan(small_problem(), kReference);
  ASSERT_TRUE(plan) << plan.status().message();
  EXPECT_TRUE(plan.status().ok());
  run_and_check(*plan);
}

TEST(CppApi, CopiesOfAPlanShareItAndRunInThreads) {
  std::vector<std::thread> threads;
  {
    const Result<Plan> plan = make_plan(small_problem(), kReference);
    ASSERT_TRUE(plan);
    for (int t = 0; t < 4; ++t) threads.emplace_back([copy = *plan] { run_and_check(copy); });
  }  // the threads hold the plan now
  for (std::thread& thread : threads) thread.join();
}

// A value in every field, carried to C and back out of the refusals or the explanation.
TEST(CppApi, EveryFieldReachesC) {
  Problem p = small_problem();
  p.batch = 3;
  p.kv_heads = 1;
  p.head_dim_v = 6;
  p.dtype = DType::f16;
  p.mask = {.left = 5, .right = 6, .offset = 7};
  p.layout = Layout::bhsd;
  p.op = Op::backward;
  p.lengths = Lengths::varlen;
  p.total_q = 8;
  p.total_k = 9;
  p.scale = 0.125;
  p.softcap = 11;
  p.alibi = Alibi::per_batch_head;
  p.sinks = true;
  p.bias = {.dtype = DType::f16, .batch = 1};
  p.bool_mask = {.dtype = DType::boolean, .heads = 1};
  p.dropout_p = 0.5;
  p.deterministic = true;
  p.alignment_bytes = 64;
  p.dq_strides = {.batch = 1, .seq = 2, .head = 3};
  const strobe_problem c = p.to_c();
  EXPECT_EQ(c.struct_size, sizeof(c));
  EXPECT_EQ(c.op, STROBE_BACKWARD);
  EXPECT_EQ(c.dtype, STROBE_F16);
  EXPECT_EQ(c.layout, STROBE_BHSD);
  EXPECT_EQ(c.lengths, STROBE_VARLEN);
  EXPECT_EQ(c.batch, 3);
  EXPECT_EQ(c.heads, 2);
  EXPECT_EQ(c.kv_heads, 1);
  EXPECT_EQ(c.head_dim_v, 6);
  EXPECT_EQ(c.total_q, 8);
  EXPECT_EQ(c.total_k, 9);
  EXPECT_EQ(c.scale, 0.125);
  EXPECT_EQ(c.softcap, 11);
  EXPECT_EQ(c.window_left, 5);
  EXPECT_EQ(c.window_right, 6);
  EXPECT_EQ(c.query_offset, 7);
  EXPECT_EQ(c.alibi, STROBE_ALIBI_PER_BATCH_HEAD);
  EXPECT_EQ(c.sinks, 1);
  EXPECT_EQ(c.deterministic, 1);
  EXPECT_EQ(c.bias.dtype, STROBE_F16);
  EXPECT_EQ(c.bias.batch, 1);
  EXPECT_EQ(c.bias.heads, STROBE_AUTO);
  EXPECT_EQ(c.mask.dtype, STROBE_BOOL);
  EXPECT_EQ(c.mask.heads, 1);
  EXPECT_EQ(c.dropout_p, 0.5);
  EXPECT_EQ(c.alignment_bytes, 64);
  EXPECT_EQ(c.dq_strides.head, 3);
  EXPECT_EQ(c.dk_strides.head, STROBE_AUTO);
}

TEST(CppApi, DefaultsAreThoseOfC) {
  Problem p;
  p.head_dim = 4;
  EXPECT_TRUE(p.check().ok()) << p.check().message();
  const strobe_problem c = p.to_c();
  EXPECT_EQ(c.batch, 1);
  EXPECT_EQ(c.kv_heads, STROBE_AUTO);
  EXPECT_EQ(c.scale, STROBE_SCALE_AUTO);
  EXPECT_EQ(c.query_offset, STROBE_AUTO);
}

TEST(CppApi, RefusalsComeAsStatus) {
  Problem p = small_problem();
  p.kv_heads = 5;
  const Status status = p.check();
  EXPECT_FALSE(status);
  EXPECT_EQ(status.code(), STROBE_INVALID_ARGUMENT);
  EXPECT_EQ(status.argument(), "kv_heads");
  EXPECT_NE(status.message().find("5"), std::string::npos);
  const Result<Plan> plan = make_plan(p);
  EXPECT_FALSE(plan);
  EXPECT_EQ(plan.status().message(), status.message());
}

TEST(CppApi, UnknownKernel) {
  const Result<Plan> plan = make_plan(small_problem(), {.kernel = "flash"});
  EXPECT_EQ(plan.status().argument(), "kernel");
  EXPECT_NE(plan.status().message().find("reference"), std::string::npos);
}

TEST(CppApi, NoSilentFallbackBetweenDevices) {
  const Result<Plan> plan =
      make_plan(small_problem(), {.device = Device::emulator(), .kernel = "reference"});
  EXPECT_FALSE(plan);
}

TEST(CppApi, FactsExplainAndInfo) {
  const Result<Plan> plan = make_plan(small_problem(), kReference);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->facts().visible_pairs, 2 * (3 + 4));
  EXPECT_NE(plan->explain().find("causal"), std::string::npos);
  EXPECT_EQ(plan->explain(STROBE_JSON).front(), '{');
  EXPECT_EQ(version(), "0.1.0");
  EXPECT_NE(library_info().find("reference"), std::string::npos);
  EXPECT_EQ(dtype_bytes(DType::bf16), 2u);
}

}  // namespace
}  // namespace strobe::test
