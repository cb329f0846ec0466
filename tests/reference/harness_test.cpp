// The harness finds what it is there to find: each test plants one defect.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "reference_run.h"

namespace strobe::harness {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Outputs of the reference in the case's dtype, and all that judges them.
class PlantedDefect : public testing::TestWithParam<DType> {
 protected:
  void prepare(Op op) {
    c.seed = 3;
    c.problem = {
        .batch = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 20, .seqlen_k = 12, .head_dim = 16};
    c.problem.dtype = GetParam();
    c.problem.mask = Band::causal();  // the first 8 rows see nothing
    c.problem.op = op;
    in = inputs_of(c);
    got = run_reference(c, in);
    ref = run_reference(as_f64(c), as_f64(c, in));
    judge = naive(c, in, Tensor());
  }

  CheckRow row(const char* tensor) {
    for (const CheckRow& r : compare(got, ref, judge)) {
      if (r.tensor == tensor) return r;
    }
    ADD_FAILURE() << "no row for " << tensor;
    return {};
  }

  Case c;
  Inputs in;
  Outputs got, ref;
  Naive judge;
};

TEST_P(PlantedDefect, NoneIsAccepted) {
  for (const Op op : {Op::forward, Op::backward}) {
    prepare(op);
    for (const CheckRow& r : compare(got, ref, judge)) EXPECT_TRUE(r.ok) << r.tensor << r.fault;
  }
}

TEST_P(PlantedDefect, WrongElement) {
  prepare(Op::forward);
  const Index at = {1, 15, 3, 7};
  // Half the bound's size is accepted, twice is not: the bound is as tight as it says.
  const double bound = row("o").bound;
  EXPECT_LT(bound, GetParam() == DType::bf16 ? 0.15 : GetParam() == DType::f16 ? 0.02 : 1e-5);
  const double ref_value = ref.o.get(at);
  got.o.set(at, ref_value + 0.5 * bound);
  EXPECT_TRUE(row("o").ok);
  got.o.set(at, ref_value + 2 * bound);
  const CheckRow r = row("o");
  EXPECT_FALSE(r.ok);
  EXPECT_EQ(r.worst, at);
  EXPECT_EQ(r.value, got.o.get(at));
}

TEST_P(PlantedDefect, NaN) {
  prepare(Op::backward);
  const Index at = {0, 11, 1, 2};
  got.dk.set(at, kNaN);
  EXPECT_FALSE(row("dk").ok);
  EXPECT_EQ(row("dk").worst, at);
  EXPECT_TRUE(row("dv").ok);
}

TEST_P(PlantedDefect, RowNotWritten) {
  prepare(Op::forward);
  got.lse.set({1, 3, 19, 0}, kNaN);  // as poisoned
  EXPECT_FALSE(row("lse").ok);
}

TEST_P(PlantedDefect, EmptyRowNotExactlyZero) {
  prepare(Op::forward);
  got.o.set({0, 7, 2, 0}, 1e-7);
  EXPECT_FALSE(row("o").ok);
  got.lse.set({0, 2, 7, 0}, -1e38);
  EXPECT_FALSE(row("lse").ok);
  prepare(Op::backward);
  got.dq.set({0, 7, 2, 0}, 1e-7);
  EXPECT_FALSE(row("dq").ok);
}

TEST_P(PlantedDefect, MaskOffByOne) {
  for (const std::int64_t right : {-1, 1}) {
    prepare(Op::forward);
    Case off = c;
    off.problem.mask.right = 1 - (right < 0);
    off.problem.mask.offset = 12 - 20 + (right < 0 ? -1 : 0);
    got = run_reference(off, in);
    EXPECT_FALSE(row("o").ok) << right;
    EXPECT_FALSE(row("lse").ok) << right;
  }
}

TEST_P(PlantedDefect, WrongKvHead) {
  prepare(Op::backward);
  assign(got.dv, [&](const Index& at) { return ref.dv.get({at[0], at[1], 1 - at[2], at[3]}); });
  EXPECT_FALSE(row("dv").ok);
}

TEST_P(PlantedDefect, LseInOtherLogarithm) {
  prepare(Op::forward);
  assign(got.lse, [&](const Index& at) { return ref.lse.get(at) / std::log(2.0); });
  EXPECT_FALSE(row("lse").ok);
}

INSTANTIATE_TEST_SUITE_P(DTypes, PlantedDefect,
                         testing::Values(DType::f32, DType::bf16, DType::f16));

TEST(Buffer, GuardsNoticeWrites) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{300}}) {
    for (const std::size_t misalign : {0, 2, 6}) {
      Buffer buffer(bytes, misalign);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, misalign);
      for (std::size_t n = 0; n < bytes; ++n) buffer.data()[n] = 0;
      EXPECT_TRUE(buffer.guards_intact());
      const Buffer copy = buffer;
      buffer.data()[bytes] = 0;
      EXPECT_FALSE(buffer.guards_intact());
      EXPECT_TRUE(copy.guards_intact());
      buffer.data()[bytes] = 0xFF;
      EXPECT_TRUE(buffer.guards_intact());
      buffer.data()[-1] = 0;
      EXPECT_FALSE(buffer.guards_intact());
    }
  }
}

TEST(Tensor, StridesMayBeNegativeAndZero) {
  Tensor t(DType::f32, {2, 3, 1, 4}, {0, -6, 99, 1}, 4);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data()) % 256, 4u);
  EXPECT_EQ(t.buffer.bytes(), (2 * 6 + 4) * sizeof(float));
  assign(t, [](const Index& at) { return static_cast<double>(10 * at[1] + at[3]); });
  EXPECT_EQ(static_cast<const float*>(t.data())[-6 * 2 + 3], 23);
  EXPECT_EQ(t.get({1, 2, 0, 3}), 23);
  EXPECT_TRUE(t.buffer.guards_intact());
}

// A plan whose args are those of a smaller tensor writes past its end: run() must say so.
TEST(Run, ReportsWritesOutsideTheTensorAndBetweenItsRows) {
  Case c;
  c.problem = {.batch = 1, .heads = 2, .seqlen_q = 8, .seqlen_k = 8, .head_dim = 16};
  const Result<Plan> plan = make_plan(c.problem, {.kernel = "reference"});
  ASSERT_TRUE(plan);
  const Inputs in = inputs_of(c);
  {
    Outputs out = make_outputs(c);
    EXPECT_TRUE(run(*plan, c, in, &out));
    out.o = Tensor(DType::f32, {1, 8, 2, 15}, {256, 32, 16, 1});
    const Status status = run(*plan, c, in, &out);
    EXPECT_EQ(status.code(), STROBE_INTERNAL);
    EXPECT_EQ(status.argument(), "o");
  }
  {
    Outputs out = make_outputs(c);
    out.lse = Tensor(DType::f32, {1, 1, 8, 1}, {16, 8, 1, 1});
    const Status status = run(*plan, c, in, &out);
    EXPECT_EQ(status.code(), STROBE_INTERNAL);
    EXPECT_EQ(status.argument(), "lse");
  }
}

TEST(RandomCase, IsReproducibleAndCoversEverything) {
  int backward = 0, varlen = 0, padded = 0, bias = 0, dropout = 0, gqa = 0, strided = 0,
      misaligned = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Case c = random_case(seed);
    ASSERT_EQ(describe(c), describe(random_case(seed)));
    const Problem& p = c.problem;
    ASSERT_TRUE(p.check()) << describe(c) << "\n" << p.check().message();
    backward += p.op == Op::backward;
    varlen += p.lengths == Lengths::varlen;
    padded += p.lengths == Lengths::padded;
    bias += p.bias.dtype != DType::none;
    dropout += p.dropout_p > 0;
    gqa += *p.kv_heads > 1 && *p.kv_heads < p.heads && p.batch > 1;
    strided += p.q_strides.seq != STROBE_AUTO;
    misaligned += c.misalign_bytes % 16 != 0;
  }
  for (const int count : {backward, varlen, padded, bias, dropout, gqa, strided, misaligned}) {
    EXPECT_GE(count, 20);
  }
}

Case data_case(Data data, DType dtype, std::int64_t head_dim) {
  Case c;
  c.seed = 8;
  c.problem = {.batch = 2, .heads = 2, .seqlen_q = 10, .seqlen_k = 40, .head_dim = head_dim};
  c.problem.dtype = dtype;
  c.data = data;
  return c;
}

TEST(MakeInputs, DataKindsDoWhatTheySay) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t head_dim : {1, 8, 128, 512}) {
      Case c = data_case(Data::very_negative, dtype, head_dim);
      Outputs out = run_reference(c, inputs_of(c));
      for_each_index(out.lse, [&](const Index& at) { EXPECT_LT(out.lse.get(at), -88.8); });

      c = data_case(Data::growing_maxima, dtype, head_dim);
      Inputs in = inputs_of(c);
      for_each_index(in.k, [&](const Index& at) {
        if (at[1] == 0) return;
        const Index before = {at[0], at[1] - 1, at[2], at[3]};
        EXPECT_GT(in.k.get(at), in.k.get(before));
      });

      c = data_case(Data::one_huge_key, dtype, head_dim);
      c.problem.op = Op::probs;
      c.problem.num_rows = 1;
      c.rows = {3};
      out = run_reference(c, inputs_of(c));
      for (std::int64_t h = 0; h < 2; ++h) {
        double largest = 0;
        for (std::int64_t j = 0; j < 40; ++j) {
          largest = std::max(largest, out.probs.get({1, h, 0, j}));
        }
        EXPECT_GT(largest, 0.99);
      }

      c = data_case(Data::equal_logits, dtype, head_dim);
      c.problem.op = Op::probs;
      c.problem.num_rows = 1;
      c.rows = {3};
      out = run_reference(c, inputs_of(c));
      for_each_index(out.probs,
                     [&](const Index& at) { EXPECT_NEAR(out.probs.get(at), 1.0 / 40, 1e-6); });
    }
  }
}

TEST(MakeInputs, PoisonOutsideTheSequences) {
  Case c;
  c.problem = {.batch = 2, .heads = 1, .seqlen_q = 4, .seqlen_k = 4, .head_dim = 2};
  c.problem.lengths = Lengths::padded;
  c.seqlens_k = {1, 4};
  const Inputs in = inputs_of(c);
  for_each_index(in.k, [&](const Index& at) {
    EXPECT_EQ(std::isnan(in.k.get(at)), at[1] >= c.seqlens_k[at[0]]);
    EXPECT_EQ(std::isnan(in.v.get(at)), at[1] >= c.seqlens_k[at[0]]);
  });
}

}  // namespace
}  // namespace strobe::harness
