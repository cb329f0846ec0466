// Bugs that users of other attention libraries met, as tests: NaN, infinities, masks, extreme
// logits, causal alignment and windows. Numbers in the names are those of the list that this and
// the other users_* files follow. Of that list these need what a CPU backend does not have:
//   67         mask objects that move between devices
//   72         paged key/value caches; 47 and 71 in part: there is no operation that appends
//   74 - 76    streams, several GPUs, graph capture
//   81, 82     fp8 inputs (83: that they are refused by name is tested)
#include <cstddef>
#include <cstdint>

#include "cpu_run.h"

namespace strobe::harness {
namespace {

class Users1NaNAndMasks : public OnTarget {};
class Users2Bands : public OnTarget {};

// O = 0, LSE = -inf, or gradients 0, in one query row of all heads.
void expect_empty_row(const Outputs& out, std::int64_t b, std::int64_t i) {
  const auto all = [&](const Tensor& t, bool lse, double value) {
    for_each({1, 1, lse ? t.size[1] : t.size[2], t.size[3]}, [&](const Index& at) {
      const Index index = lse ? Index{b, at[2], i, 0} : Index{b, i, at[2], at[3]};
      EXPECT_EQ(t.get(index), value) << text(index);
    });
  };
  if (out.o.defined()) all(out.o, false, 0);
  if (out.lse.defined()) all(out.lse, true, -kInfinity);
  if (out.dq.defined()) all(out.dq, false, 0);
}

Case one_row_masked(DType dtype, Op op) {
  Case c = dense(6, 10, 8, dtype, op);
  c.problem.heads = 2;
  c.problem.bool_mask = {.dtype = DType::boolean, .batch = 1, .heads = 1};
  return c;
}

TEST_P(Users1NaNAndMasks, B01_FullyMaskedRow) {
  for (DType dtype : kDTypes) {
    Case c = one_row_masked(dtype, Op::forward);
    c.problem.batch = 2;
    Inputs in = inputs_of(c);
    assign(in.mask, [](const Index& at) { return at[2] != 5; });
    const Outputs out = run_cpu(c, in);
    for (std::int64_t b : {0, 1}) expect_empty_row(out, b, 5);
    c.problem.op = Op::backward;
    Inputs back = backward_inputs(in, out, in.q);
    const Outputs grads = run_cpu(c, back);
    for (std::int64_t b : {0, 1}) expect_empty_row(grads, b, 5);
    EXPECT_TRUE(all_finite(grads));
  }
}

TEST_P(Users1NaNAndMasks, B02_EmptyRowLeavesTheOtherGradientsAlone) {
  Case c = one_row_masked(DType::f32, Op::forward);
  Inputs in = inputs_of(c);
  assign(in.mask, [](const Index& at) { return at[2] != 5; });
  Inputs back = backward_inputs(in, run_cpu(c, in), in.q);
  assign(back.dout, [&](const Index& at) { return at[1] == 5 ? kNaN : in.q.get(at); });
  c.problem.op = Op::backward;
  const Outputs grads = run_cpu(c, back);
  expect_empty_row(grads, 0, 5);

  // The row removed.
  Case shorter = c;
  shorter.problem.seqlen_q = 5;
  Inputs rest = inputs_of(shorter);
  for (Tensor Inputs::*t : {&Inputs::q, &Inputs::o, &Inputs::dout, &Inputs::lse}) {
    assign(rest.*t, [&](const Index& at) { return (back.*t).get(at); });
  }
  rest.k = back.k;
  rest.v = back.v;
  assign_all(rest.mask, 1);
  const Outputs expected = run_cpu(shorter, rest);
  EXPECT_TRUE(same_bits(grads.dk, expected.dk));
  EXPECT_TRUE(same_bits(grads.dv, expected.dv));
}

// Rows whose first key tiles are wholly masked: bias -inf but for i - 10 < j <= i.
TEST_P(Users1NaNAndMasks, B03_LeadingTilesMasked) {
  Case c = dense(640, 640, 4);
  c.problem.bias = {.dtype = DType::f32};
  Inputs in = inputs_of(c);
  for (Tensor* t : {&in.q, &in.k, &in.v}) assign_all(*t, 1);
  assign(in.bias,
         [](const Index& at) { return at[2] - 10 < at[3] && at[3] <= at[2] ? 0.0 : -kInfinity; });
  const Outputs out = run_cpu(c, in);
  EXPECT_TRUE(all_near(out.o, 1, 1e-6));
  Inputs back = backward_inputs(in, out, in.q);
  c.problem.op = Op::backward;
  const Outputs grads = run_cpu(c, back);
  EXPECT_TRUE(all_near(grads.dq, 0, 1e-5));
  EXPECT_TRUE(all_near(grads.dk, 0, 1e-4));
  EXPECT_NEAR(grads.dv.get({0, 300, 0, 0}), 1, 1e-5);  // ten rows give it a tenth each
}

TEST_P(Users1NaNAndMasks, B05_LogitsFarFromZero) {
  const struct {
    DType dtype;
    double k, lse;
  } kCases[] = {{DType::bf16, -480, -5428.9706},
                {DType::f16, -480, -5428.9706},
                {DType::f32, -480, -5428.9706},
                {DType::bf16, 480, 5432.1894}};
  for (const auto& x : kCases) {
    for (std::int64_t rows : {1, 5}) {
      Case c = dense(rows, 5, 128, x.dtype);
      c.problem.heads = 4;
      c.problem.kv_heads = 2;
      Inputs in = inputs_of(c);
      assign_all(in.q, 1);
      assign_all(in.k, x.k);
      assign(in.v, [](const Index& at) { return static_cast<double>(at[1]); });
      const Outputs out = run_cpu(c, in);
      EXPECT_TRUE(all_near(out.o, 2, 1e-6));
      EXPECT_TRUE(all_near(out.lse, x.lse, 1e-3));
      c.problem.op = Op::backward;
      const Outputs grads = run_cpu(c, backward_inputs(in, out, in.q));
      EXPECT_TRUE(all_finite(grads));
      EXPECT_TRUE(all_near(grads.dv, static_cast<double>(rows) * 2 / 5, 0.01));
    }
  }
}

TEST_P(Users1NaNAndMasks, B07_MergeWithEmptyStates) {
  for (DType dtype : kDTypes) {
    Case c = dense(5, 0, 24, dtype, Op::merge);
    c.problem.heads = 3;
    c.problem.partials = 3;
    for (std::size_t full = 0; full < 4; ++full) {  // 3: none
      c.empty_partials = {full != 0, full != 1, full != 2};
      Inputs in = inputs_of(c);
      if (full < 3) in.partial_o[full].set({0, 0, 0, 0}, -0.0);
      const Outputs out = run_cpu(c, in);
      for_each(out.lse.size, [&](const Index& at) {
        const double lse = full < 3 ? in.partial_lse[full].get(at) : -kInfinity;
        EXPECT_TRUE(same_bits(out.lse.get(at), lse));
        for (std::int64_t d = 0; d < 24; ++d) {
          const Index at_o = {at[0], at[2], at[1], d};
          const double o = lse == -kInfinity ? 0.0 : in.partial_o[full].get(at_o);
          EXPECT_TRUE(same_bits(out.o.get(at_o), o)) << text(at_o);
        }
      });
    }
  }
}

// Keys 0..127 behind a very negative bias: as if they were not there.
TEST_P(Users1NaNAndMasks, B09_MaskedByAdditiveBias) {
  for (double masked : {-kInfinity, -double{std::numeric_limits<float>::max()}, -1e4}) {
    Case c = dense(441, 441, 16);
    c.problem.batch = 2;
    c.problem.heads = 2;
    c.problem.bias = {.dtype = DType::f32, .batch = 1, .heads = 1, .seqlen_q = 1};
    Inputs in = inputs_of(c);
    assign(in.bias, [&](const Index& at) { return at[3] < 128 ? masked : 0.0; });
    const Outputs out = run_cpu(c, in);

    Case rest = c;
    rest.problem.seqlen_k = 313;
    rest.problem.bias = {};
    Inputs cut = inputs_of(rest);
    cut.q = in.q;
    const auto later = [](Index at) {
      at[1] += 128;
      return at;
    };
    assign(cut.k, [&](const Index& at) { return in.k.get(later(at)); });
    assign(cut.v, [&](const Index& at) { return in.v.get(later(at)); });
    const Outputs expected = run_cpu(rest, cut);
    for_each(out.o.size, [&](const Index& at) {
      ASSERT_NEAR(out.o.get(at), expected.o.get(at), 2e-6) << text(at);
    });
    c.problem.op = rest.problem.op = Op::backward;
    const Outputs grads = run_cpu(c, backward_inputs(in, out, in.q));
    const Outputs cut_grads = run_cpu(rest, backward_inputs(cut, expected, in.q));
    for_each(cut_grads.dk.size, [&](const Index& at) {
      ASSERT_NEAR(grads.dk.get(later(at)), cut_grads.dk.get(at), 2e-5) << text(at);
      ASSERT_NEAR(grads.dv.get(later(at)), cut_grads.dv.get(at), 2e-5) << text(at);
    });
  }
}

// Every logit about -120: an unmasked padding lane would score 0 and overflow exp(0 - LSE).
TEST_P(Users1NaNAndMasks, B10_AllLogitsVeryNegative) {
  for (std::int64_t length : {64, 192, 704, 768, 1000}) {
    for (bool mask : {false, true}) {
      Case c = dense(length, length, 32, DType::bf16, Op::backward);
      c.data = Data::very_negative;
      if (length > 200) c.problem.mask = Band::window(60, 20);  // less work
      if (mask) c.problem.bool_mask = {.dtype = DType::boolean, .batch = 1, .heads = 1};
      c.mask_visible_share = 1;
      check(c);
    }
  }
  Case c = dense(1, 128, 64, DType::bf16, Op::backward);
  c.problem.heads = 2;
  c.data = Data::very_negative;
  check(c);
}

Case one_key_each(bool top_left) {
  Case c = dense(146, 1, 32, DType::f16, Op::backward);
  c.problem.lengths = Lengths::varlen;
  c.problem.batch = 3;
  c.problem.mask = top_left ? Band{.right = 0, .offset = 0} : Band::causal();
  c.data = Data::x3;
  c.cu_seqlens_q = {0, 76, 110, 256};
  c.cu_seqlens_k = {0, 1, 2, 3};
  c.problem.total_q = 256;
  c.problem.total_k = 3;
  return c;
}

TEST_P(Users1NaNAndMasks, B12_VarlenCausalWithOneKeyEach) {
  for (bool top_left : {false, true}) {
    const Case c = one_key_each(top_left);
    const Inputs in = inputs_of(c);
    const Outputs out = run_cpu(c, in);
    EXPECT_TRUE(all_near(out.dq, 0, 1e-2));  // P = 1: only the rounding of o and lse is left
    for_each(out.dv.size, [&](const Index& at) {
      const std::int64_t begin = c.cu_seqlens_q[at[1]], end = c.cu_seqlens_q[at[1] + 1];
      double expected = 0;
      for (std::int64_t i = top_left ? begin : end - 1; i < end; ++i) {
        expected += in.dout.get({0, i, 0, at[3]});
      }
      EXPECT_NEAR(out.dv.get(at), expected, 0.02) << text(at);
    });
    if (top_left) continue;
    for (std::int64_t i : {0, 74, 76, 254}) expect_empty_row(out, 0, i);
  }
}

TEST_P(Users1NaNAndMasks, B14_RawLogitsBeyondTheRangeOfF16) {
  Case c = dense(6, 6, 512, DType::f16);
  Inputs in = inputs_of(c);
  assign_all(in.q, 12);
  assign_all(in.k, 12);
  assign(in.v, [](const Index& at) { return static_cast<double>(at[1]); });
  Outputs out = run_cpu(c, in);
  EXPECT_TRUE(all_near(out.o, 2.5, 1e-6));
  EXPECT_TRUE(all_near(out.lse, 3260.1398, 1e-3));
  c.problem.scale = 1;
  c.problem.mask = Band::causal();
  out = run_cpu(c, in);
  for_each(out.o.size, [&](const Index& at) {
    EXPECT_NEAR(out.o.get(at), static_cast<double>(at[1]) / 2, 1e-3);
  });
}

TEST_P(Users1NaNAndMasks, B15_SumsBeyondTheRangeOfF16) {
  Case c = dense(2, 4096, 8, DType::f16);
  Inputs in = inputs_of(c);
  assign_all(in.k, 0);
  assign_all(in.v, 1000);
  EXPECT_TRUE(all_equal(run_cpu(c, in).o, 1000));
}

// Unused cache slots hold NaN or infinities; the result is that of a tight cache, bit for bit.
TEST_P(Users1NaNAndMasks, B16_UnusedCacheSlotsHoldPoison) {
  for (double poison : {kNaN, kInfinity, -kInfinity}) {
    Case c = dense(1, 3, 64, DType::f16);
    c.problem.batch = 2;
    c.problem.lengths = Lengths::padded;
    c.seqlens_k = {1, 3};
    Inputs in = inputs_of(c);
    for (std::int64_t j : {1, 2}) {
      for (std::int64_t d = 0; d < 64; ++d) {
        in.k.set({0, j, 0, d}, poison);
        in.v.set({0, j, 0, d}, poison);
      }
    }
    const Outputs out = run_cpu(c, in);
    Inputs clean = in;
    for (Tensor* t : {&clean.k, &clean.v}) {
      assign(*t, [&](const Index& at) { return at[0] == 0 && at[1] > 0 ? 0 : t->get(at); });
    }
    EXPECT_TRUE(same_bits(out, run_cpu(c, clean)));
    EXPECT_TRUE(all_finite(out));
    c.problem.op = Op::backward;
    const Outputs grads = run_cpu(c, backward_inputs(in, out, in.q));
    EXPECT_TRUE(same_bits(grads, run_cpu(c, backward_inputs(clean, out, in.q))));
    for (std::int64_t d = 0; d < 64; ++d) EXPECT_EQ(grads.dk.get({0, 2, 0, d}), 0);
  }
}

TEST_P(Users1NaNAndMasks, B19_Float32BiasWithF16Inputs) {
  for (Op op : {Op::forward, Op::backward}) {
    Case c = dense(32, 32, 16, DType::f16, op);
    c.problem.batch = 2;
    c.problem.bias = {.dtype = DType::f32, .batch = 1, .heads = 1};
    c.bias_inf_share = 0.5;
    c.dbias = true;
    check(c);
    c.problem.bias.dtype = DType::bf16;  // neither float32 nor the problem's dtype
    const Result<Plan> plan = make_plan(c.problem, options());
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.status().code(), STROBE_INVALID_ARGUMENT);
  }
}

// V = identity: row i of O says which keys query i saw.
void expect_visible(const PlanOptions& options, Case c, std::int64_t i, std::int64_t first,
                    std::int64_t last) {
  c.problem.head_dim_v = c.problem.seqlen_k;
  c.data = Data::one_hot_v;
  const Outputs out = run_plan(c, inputs_of(c), options);
  for (std::int64_t j = 0; j < c.problem.seqlen_k; ++j) {
    EXPECT_EQ(out.o.get({0, i, 0, j}) != 0, first <= j && j <= last)
        << "query " << i << ", key " << j;
  }
}

TEST_P(Users2Bands, B20_CausalIsAlignedAtTheBottomRight) {
  Case c = dense(2, 5, 8);
  c.problem.mask = Band::causal();
  expect_visible(options(), c, 0, 0, 3);
  expect_visible(options(), c, 1, 0, 4);
  c.problem.mask = Band{.right = 0, .offset = 0};  // top left
  expect_visible(options(), c, 0, 0, 0);
  expect_visible(options(), c, 1, 0, 1);
  c = dense(1, 5, 8);
  c.problem.mask = Band::causal();
  expect_visible(options(), c, 0, 0, 4);
}

TEST_P(Users2Bands, B21_CausalWithMoreQueriesThanKeys) {
  Case c = dense(2048, 1024, 8);
  c.problem.mask = Band::causal();
  const Inputs in = inputs_of(c);
  const Outputs out = run_cpu(c, in);
  for (std::int64_t i : {0, 1, 511, 1023}) expect_empty_row(out, 0, i);
  EXPECT_TRUE(std::isfinite(out.lse.get({0, 0, 1024, 0})));

  Case square = c;
  square.problem.seqlen_q = 1024;
  Inputs lower = in;
  lower.q = inputs_of(square).q;
  assign(lower.q, [&](const Index& at) { return in.q.get({0, at[1] + 1024, 0, at[3]}); });
  const Outputs expected = run_cpu(square, lower);
  for_each(expected.o.size, [&](const Index& at) {
    ASSERT_EQ(out.o.get({0, at[1] + 1024, 0, at[3]}), expected.o.get(at));
  });
  c.problem.op = square.problem.op = Op::backward;
  const Outputs grads = run_cpu(c, backward_inputs(in, out, in.q));
  for (std::int64_t i : {0, 1, 511, 1023}) expect_empty_row(grads, 0, i);
  const Outputs square_grads = run_cpu(square, backward_inputs(lower, expected, lower.q));
  EXPECT_TRUE(same_bits(grads.dk, square_grads.dk));
  EXPECT_TRUE(same_bits(grads.dv, square_grads.dv));
}

TEST_P(Users2Bands, B23_WindowAsWideAsTheSequenceIsCausal) {
  Case c = dense(1000, 1000, 16);
  c.problem.heads = 2;
  const Inputs in = inputs_of(c);
  c.problem.mask = Band::causal();
  const Outputs causal = run_cpu(c, in);
  for (std::int64_t left : {999, 1000, 5000}) {
    c.problem.mask = Band::window(left, 0);
    EXPECT_TRUE(same_bits(run_cpu(c, in), causal)) << left;
  }
  c.problem.mask = Band::window(998, 0);  // the last query misses key 0, and only that
  const Outputs narrower = run_cpu(c, in);
  for_each(causal.lse.size, [&](const Index& at) {
    EXPECT_EQ(causal.lse.get(at) == narrower.lse.get(at), at[2] < 999) << text(at);
  });
}

TEST_P(Users2Bands, B24_WindowsAreInclusiveCounts) {
  Case c = dense(40, 40, 8);
  for (std::int64_t left : {0, 1, 3, 16}) {
    for (std::int64_t right : {0, 2, 5}) {
      c.problem.mask = Band::window(left, right);
      for (std::int64_t i : {0, 17, 20, 39}) {
        expect_visible(options(), c, i, std::max<std::int64_t>(i - left, 0),
                       std::min<std::int64_t>(i + right, 39));
      }
    }
  }
}

TEST_P(Users2Bands, B26_OtherNegativeWindowsAreRefused) {
  Case c = dense(8, 8, 8);
  for (const Band& band : {Band::window(-1, -3), Band::window(-2, -1)}) {
    c.problem.mask = band;
    const Result<Plan> plan = make_plan(c.problem, options());
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.status().code(), STROBE_INVALID_ARGUMENT);
  }
}

STROBE_ON_EVERY_TARGET(Users1NaNAndMasks);
STROBE_ON_EVERY_TARGET(Users2Bands);

}  // namespace
}  // namespace strobe::harness
