// What resolve() fills in.
#include <gtest/gtest.h>
#include <strobe/strobe.h>

#include <cmath>
#include <cstdint>

#include "api/support.h"
#include "problems.h"

namespace strobe::test {
namespace {

strobe_problem resolved(const strobe_problem& p) {
  strobe_problem r{};
  const api::Status status = api::resolve(&p, &r);
  EXPECT_TRUE(status.ok()) << status.message;
  return r;
}

void expect_strides(const strobe_strides& s, std::int64_t batch, std::int64_t seq,
                    std::int64_t head) {
  EXPECT_EQ(s.batch, batch);
  EXPECT_EQ(s.seq, seq);
  EXPECT_EQ(s.head, head);
}

TEST(Resolve, Values) {
  strobe_problem p = dense_problem();
  p.kv_heads = STROBE_AUTO;
  const strobe_problem r = resolved(p);
  EXPECT_EQ(r.struct_size, sizeof(strobe_problem));
  EXPECT_EQ(r.kv_heads, 4);
  EXPECT_EQ(r.head_dim_v, 8);
  EXPECT_DOUBLE_EQ(r.scale, 1 / std::sqrt(8.0));
  EXPECT_EQ(r.query_offset, 2);
  EXPECT_EQ(r.total_q, 6);
  EXPECT_EQ(r.total_k, 10);
}

TEST(Resolve, KeepsWhatIsGiven) {
  strobe_problem p = dense_problem();
  p.head_dim_v = 16;
  p.scale = -2;
  p.query_offset = -7;
  p.window_left = 0;
  p.dropout_p = 0.25;
  const strobe_problem r = resolved(p);
  EXPECT_EQ(r.kv_heads, 2);
  EXPECT_EQ(r.head_dim_v, 16);
  EXPECT_EQ(r.scale, -2);
  EXPECT_EQ(r.query_offset, -7);
  EXPECT_EQ(r.window_left, 0);
  EXPECT_EQ(r.dropout_p, 0.25);
}

TEST(Resolve, QueryOffsetIsPerSequenceUnlessDense) {
  EXPECT_EQ(resolved(padded_problem()).query_offset, STROBE_AUTO);
  EXPECT_EQ(resolved(varlen_problem()).query_offset, STROBE_AUTO);
}

TEST(Resolve, WindowTooWideToHideAKeyIsUnlimited) {
  strobe_problem p = dense_problem();
  p.window_left = INT64_MAX;
  p.window_right = 1000;
  const strobe_problem r = resolved(p);
  EXPECT_EQ(r.window_left, -1);
  EXPECT_EQ(r.window_right, 1000);
}

TEST(Resolve, ContiguousStrides) {
  strobe_problem p = dense_problem(STROBE_BACKWARD);
  p.head_dim_v = 16;
  strobe_problem r = resolved(p);
  expect_strides(r.q_strides, 3 * 4 * 8, 4 * 8, 8);
  expect_strides(r.dk_strides, 5 * 2 * 8, 2 * 8, 8);
  expect_strides(r.v_strides, 5 * 2 * 16, 2 * 16, 16);
  expect_strides(r.dout_strides, 3 * 4 * 16, 4 * 16, 16);
  expect_strides(r.lse_strides, 4 * 3, 1, 3);
  p.layout = STROBE_BHSD;
  r = resolved(p);
  expect_strides(r.q_strides, 4 * 3 * 8, 8, 3 * 8);
  expect_strides(r.v_strides, 2 * 5 * 16, 16, 5 * 16);
  expect_strides(r.dlse_strides, 4 * 3, 1, 3);
}

TEST(Resolve, VarlenStrides) {
  strobe_problem p = varlen_problem();
  strobe_problem r = resolved(p);
  expect_strides(r.q_strides, 0, 4 * 8, 8);
  expect_strides(r.lse_strides, 0, 1, 6);
  p.layout = STROBE_BHSD;
  r = resolved(p);
  expect_strides(r.q_strides, 0, 8, 6 * 8);
  expect_strides(r.k_strides, 0, 8, 9 * 8);
}

// Packed [batch, seq, 3, heads, dim]: only the row stride needs to be said.
TEST(Resolve, AutomaticStridesContinueFromGivenOnes) {
  strobe_problem p = dense_problem();
  p.q_strides.seq = 3 * 4 * 8;
  expect_strides(resolved(p).q_strides, 3 * 3 * 4 * 8, 3 * 4 * 8, 8);
  p.q_strides = {STROBE_AUTO, STROBE_AUTO, 0};  // one head for all
  expect_strides(resolved(p).q_strides, 3 * 8, 8, 0);
  p.q_strides = {STROBE_AUTO, -32, 8};
  expect_strides(resolved(p).q_strides, 96, -32, 8);
}

TEST(Resolve, StridesOfSizeOneAreReplaced) {
  strobe_problem p = dense_problem();
  p.batch = 1;
  p.q_strides.batch = INT64_MAX;
  p.o_strides.batch = 0;
  const strobe_problem r = resolved(p);
  EXPECT_EQ(r.q_strides.batch, 96);
  EXPECT_EQ(r.o_strides.batch, 96);
}

TEST(Resolve, EmptyTensorsHaveOrdinaryStrides) {
  strobe_problem p = dense_problem();
  p.seqlen_q = p.seqlen_k = 0;
  expect_strides(resolved(p).q_strides, 32, 32, 8);
  p.batch = 0;
  expect_strides(resolved(p).q_strides, 32, 32, 8);
}

TEST(Resolve, ScoreTensors) {
  strobe_problem p = dense_problem();
  p.bias.dtype = STROBE_F32;
  p.mask.dtype = STROBE_BOOL;
  p.mask.heads = 1;
  p.mask.stride_q = 64;
  const strobe_problem r = resolved(p);
  EXPECT_EQ(r.bias.batch, 2);
  EXPECT_EQ(r.bias.heads, 4);
  EXPECT_EQ(r.bias.seqlen_q, 3);
  EXPECT_EQ(r.bias.seqlen_k, 5);
  EXPECT_EQ(r.bias.stride_q, 5);
  EXPECT_EQ(r.bias.stride_head, 15);
  EXPECT_EQ(r.bias.stride_batch, 60);
  EXPECT_EQ(r.mask.stride_q, 64);
  EXPECT_EQ(r.mask.stride_head, 0);
  EXPECT_EQ(r.mask.stride_batch, 192);
}

TEST(Resolve, OperationsWithoutQNeedNoHeadDim) {
  strobe_problem p = dense_problem(STROBE_MERGE);
  p.head_dim = 0;
  p.head_dim_v = 24;
  EXPECT_EQ(resolved(p).head_dim_v, 24);
  EXPECT_EQ(resolved(p).partial_dtype, STROBE_F32);
  p = dense_problem(STROBE_KEEP_MASK);
  p.head_dim = 0;
  EXPECT_GE(resolved(p).head_dim, 1);
}

TEST(Resolve, BiasOfVarlenMayBroadcastOverUnknownRows) {
  strobe_problem p = varlen_problem();
  p.seqlen_q = 0;
  p.bias.dtype = STROBE_F32;
  p.bias.seqlen_q = 1;
  EXPECT_EQ(resolved(p).bias.seqlen_q, 1);
}

// Fields that describe the forward pass are welcome in questions about it.
TEST(Resolve, ForwardFieldsInProbsAndKeepMask) {
  for (const strobe_op op : {STROBE_PROBS, STROBE_KEEP_MASK}) {
    strobe_problem p = dense_problem(op);
    p.window_right = 0;
    p.softcap = 30;
    p.sinks = 1;
    p.bias.dtype = STROBE_F32;
    p.dropout_p = 0.1;
    EXPECT_EQ(resolved(p).op, op);
  }
}

TEST(Resolve, Fp8IsForBackendsToRefuse) {
  strobe_problem p = dense_problem();
  p.dtype = STROBE_F8E4M3;
  EXPECT_EQ(resolved(p).q_strides.head, 8);
  strobe_plan* plan = nullptr;
  strobe_status status;
  EXPECT_EQ(strobe_plan_create(&p, nullptr, &plan, &status), STROBE_UNSUPPORTED);
  EXPECT_EQ(plan, nullptr);
}

// Failure leaves *resolved alone.
TEST(Resolve, RefusalWritesNothing) {
  strobe_problem p = dense_problem(), r{};
  p.heads = 0;
  r.batch = 77;
  EXPECT_FALSE(api::resolve(&p, &r).ok());
  EXPECT_EQ(r.batch, 77);
}

}  // namespace
}  // namespace strobe::test
