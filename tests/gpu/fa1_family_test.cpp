// Families fa1 and standard through the public API on the emulator, judged by the harness.
#include <gtest/gtest.h>

#include "harness/harness.h"

namespace strobe::harness {
namespace {

Problem small(DType dtype, Op op) {
  Problem p;
  p.op = op;
  p.dtype = dtype;
  p.batch = 2;
  p.heads = 2;
  p.kv_heads = 1;
  p.seqlen_q = 40;
  p.seqlen_k = 70;
  p.head_dim = 64;
  return p;
}

void check(const char* kernel, Problem problem, Data data = Data::normal) {
  Case c;
  c.name = kernel;
  c.problem = problem;
  c.data = data;
  c.seed = 3;
  c.dlse = problem.op == Op::backward;
  if (problem.lengths == Lengths::padded) {
    c.seqlens_q = {40, 33};
    c.seqlens_k = {0, 65};
  }
  static int count = 0;  // every case with another landing and order
  constexpr const char* kLandings[] = {"immediate", "late", "random"};
  ++count;
  const CheckReport report =
      check_case(c, {.device = Device::emulator(),
                     .kernel = kernel,
                     .overrides = std::string("landing=") + kLandings[count % 3] +
                                  ",seed=" + std::to_string(count),
                     .threads = 1});
  EXPECT_EQ(report.outcome, Outcome::passed) << report.text();
}

class Study : public testing::TestWithParam<const char*> {};

TEST_P(Study, DataKinds) {
  for (const Op op : {Op::forward, Op::backward}) {
    for (int kind = 0; kind < kDataKinds; ++kind)
      check(GetParam(), small(DType::bf16, op), static_cast<Data>(kind));
  }
}

TEST_P(Study, Problems) {
  for (const Op op : {Op::forward, Op::backward}) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      Problem p = small(dtype, op);
      p.mask = Band::causal();
      p.dropout_p = 0.25;
      check(GetParam(), p);
      p.head_dim = 100;
      p.head_dim_v = 128;
      check(GetParam(), p);
      p.head_dim = 33;  // no 16-byte loads
      p.head_dim_v = 7;
      p.dropout_p = 0;
      p.mask = Band::window(20, 3);
      check(GetParam(), p);
      p = small(dtype, op);
      p.lengths = Lengths::padded;
      check(GetParam(), p);
      p = small(dtype, op);
      p.seqlen_k = 0;
      check(GetParam(), p);
      p = small(dtype, op);
      p.scale = -0.3;
      check(GetParam(), p);
    }
  }
}

TEST_P(Study, RefusesWhatItHasNot) {
  Problem p = small(DType::bf16, Op::forward);
  p.softcap = 10;
  const auto plan = make_plan(p, {.device = Device::emulator(), .kernel = GetParam()});
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.status().message().find("softcap"), std::string::npos) << plan.status().message();
}

// Chosen by name alone.
TEST_P(Study, NeverTheDefault) {
  for (const Op op : {Op::forward, Op::backward}) {
    const auto plan = make_plan(small(DType::bf16, op), {.device = Device::emulator()});
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->explain(STROBE_TEXT).find(std::string("kernel: ") + GetParam()),
              std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Study, testing::Values("fa1", "standard"));

}  // namespace
}  // namespace strobe::harness
