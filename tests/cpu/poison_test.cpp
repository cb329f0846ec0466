// NaN and infinities in the inputs: outside the sequences they reach nothing, inside they follow
// the mask exactly.
#include <cmath>
#include <cstdint>

#include "cpu_run.h"

namespace strobe::harness {
namespace {

class Poison : public OnTarget {};

void fill_row(Tensor& t, std::int64_t b, std::int64_t row, std::int64_t h, double value) {
  for (std::int64_t d = 0; d < t.size[3]; ++d) t.set({b, row, h, d}, value);
}

bool is_nan_row(const Tensor& t, std::int64_t row) {
  for (std::int64_t d = 0; d < t.size[3]; ++d) {
    if (!std::isnan(t.get({0, row, 0, d}))) return false;
  }
  return true;
}
bool is_finite_row(const Tensor& t, std::int64_t row) {
  for (std::int64_t d = 0; d < t.size[3]; ++d) {
    if (!std::isfinite(t.get({0, row, 0, d}))) return false;
  }
  return true;
}

// The same results whether what lies outside holds NaN, infinities or zeros.
template <class Fill>
void expect_unreachable(Case c, const PlanOptions& options, Fill fill) {
  for (Op op : {Op::forward, Op::backward}) {
    c.problem.op = op;
    c.dlse = true;
    Inputs in = inputs_of(c);
    fill(in, 0.0);
    const Outputs expected = run_plan(c, in, options);
    for (double value : {kNaN, kInfinity, -kInfinity}) {
      fill(in, value);
      EXPECT_TRUE(same_bits(run_plan(c, in, options), expected)) << value;
    }
  }
}

TEST_P(Poison, PaddingIsUnreachable) {
  for (DType dtype : kDTypes) {
    Case c = dense(40, 150, 40, dtype);
    c.problem.batch = 2;
    c.problem.heads = 2;
    c.problem.sinks = true;
    c.problem.lengths = Lengths::padded;
    c.seqlens_q = {17, 40};
    c.seqlens_k = {150, 97};
    expect_unreachable(c, options(), [&](Inputs& in, double value) {
      for (std::int64_t h : {0, 1}) {
        for (std::int64_t i = 17; i < 40; ++i) {
          for (Tensor* t : {&in.q, &in.o, &in.dout}) {
            if (t->defined()) fill_row(*t, 0, i, h, value);
          }
          for (Tensor* t : {&in.lse, &in.dlse}) {
            if (t->defined()) t->set({0, h, i, 0}, value);
          }
        }
        for (std::int64_t j = 97; j < 150; ++j) {
          fill_row(in.k, 1, j, h, value);
          fill_row(in.v, 1, j, h, value);
        }
      }
    });
  }
}

TEST_P(Poison, NeighboursInAPackedBatchAreUnreachable) {
  Case c = dense(0, 0, 72, DType::bf16);
  c.problem.lengths = Lengths::varlen;
  c.problem.batch = 3;
  c.cu_seqlens_q = {0, 33, 50, 83};
  c.cu_seqlens_k = {0, 100, 131, 200};
  c.seqlens_q = {33, 9, 33};  // the second and third use less than they have
  c.seqlens_k = {100, 31, 60};
  c.problem.total_q = 90;
  c.problem.total_k = 210;
  expect_unreachable(c, options(), [&](Inputs& in, double value) {
    for (std::int64_t i : {42, 49, 83, 89}) {
      for (Tensor* t : {&in.q, &in.o, &in.dout}) {
        if (t->defined()) fill_row(*t, 0, i, 0, value);
      }
    }
    for (std::int64_t j : {191, 199, 200, 209}) {
      fill_row(in.k, 0, j, 0, value);
      fill_row(in.v, 0, j, 0, value);
    }
  });
  // The second sequence all NaN: the first and third do not notice.
  const Inputs in = inputs_of(c);
  Inputs bad = in;
  for (std::int64_t i = 33; i < 50; ++i) fill_row(bad.q, 0, i, 0, kNaN);
  for (std::int64_t j = 100; j < 131; ++j) fill_row(bad.k, 0, j, 0, kNaN);
  const Outputs good_out = run_cpu(c, in), bad_out = run_cpu(c, bad);
  for_each(good_out.o.size, [&](const Index& at) {
    if (at[1] >= 33 && at[1] < 42) return;
    ASSERT_TRUE(same_bits(good_out.o.get(at), bad_out.o.get(at))) << text(at);
  });
}

struct MaskKind {
  const char* name;
  Band band;
  bool boolean;
};
const MaskKind kMasks[] = {{"full", Band::full(), false},
                           {"causal", Band::causal(), false},
                           {"window", Band::window(20, 5), false},
                           {"boolean", Band::full(), true}};

// Query i sees key j; with the boolean mask, two of three pairs.
bool sees(const MaskKind& mask, std::int64_t i, std::int64_t j, std::int64_t offset) {
  if (mask.boolean) return (i + j) % 3 != 0;
  if (mask.band.left >= 0 && j < i + offset - mask.band.left) return false;
  return mask.band.right < 0 || j <= i + offset + mask.band.right;
}

Case masked_case(const MaskKind& mask) {
  Case c = dense(70, 130, 40);
  c.problem.mask = mask.band;
  if (mask.boolean) c.problem.bool_mask = {.dtype = DType::boolean};
  return c;
}

Inputs masked_inputs(const Case& c, const MaskKind& mask) {
  Inputs in = inputs_of(c);
  if (mask.boolean) assign(in.mask, [&](const Index& at) { return sees(mask, at[2], at[3], 60); });
  return in;
}

TEST_P(Poison, NaNInOneKeyReachesTheRowsThatSeeIt) {
  for (const MaskKind& mask : kMasks) {
    for (double bad : {kNaN, kInfinity}) {
      for (std::int64_t j : {0, 63, 64, 100, 129}) {
        const Case c = masked_case(mask);
        Inputs in = masked_inputs(c, mask);
        in.k.set({0, j, 0, 7}, bad);
        assign(in.q, [&](const Index& at) {  // so that q.k = +inf, which makes NaN as well
          return at[3] == 7 ? 1 : in.q.get(at);
        });
        const Outputs out = run_cpu(c, in);
        for (std::int64_t i = 0; i < 70; ++i) {
          const bool seen = sees(mask, i, j, 60);
          EXPECT_EQ(is_nan_row(out.o, i), seen) << mask.name << " key " << j << " row " << i;
          EXPECT_EQ(is_finite_row(out.o, i), !seen) << mask.name << " key " << j << " row " << i;
          if (std::isinf(bad)) continue;  // O is NaN then, LSE may be inf or NaN
          EXPECT_EQ(std::isnan(out.lse.get({0, 0, i, 0})), seen) << mask.name << " row " << i;
        }
      }
    }
  }
}

TEST_P(Poison, NaNInOneQueryStaysInItsRow) {
  for (const MaskKind& mask : kMasks) {
    for (std::int64_t bad : {0, 31, 69}) {
      Case c = masked_case(mask);
      c.problem.softcap = bad == 31 ? 10 : 0;
      Inputs in = masked_inputs(c, mask);
      const Outputs clean = run_cpu(c, in);
      in.q.set({0, bad, 0, 3}, kNaN);
      const Outputs out = run_cpu(c, in);
      for (std::int64_t i = 0; i < 70; ++i) {
        EXPECT_EQ(is_nan_row(out.o, i), i == bad) << mask.name << " row " << i;
        const double lse = out.lse.get({0, 0, i, 0});
        if (i == bad) {
          EXPECT_TRUE(std::isnan(lse));
        } else {
          EXPECT_EQ(lse, clean.lse.get({0, 0, i, 0}));
        }
      }
      // Backward: dQ of that row, and dK and dV of the keys it sees.
      c.problem.op = Op::backward;
      const Outputs grads = run_cpu(c, backward_inputs(in, out, clean.o));
      for (std::int64_t i = 0; i < 70; ++i) {
        EXPECT_EQ(is_nan_row(grads.dq, i), i == bad) << mask.name << " row " << i;
      }
      for (std::int64_t j = 0; j < 130; ++j) {
        if (!sees(mask, bad, j, 60)) continue;  // a NaN may reach other keys of the tile
        EXPECT_TRUE(is_nan_row(grads.dv, j) && is_nan_row(grads.dk, j))
            << mask.name << " key " << j;
      }
    }
  }
}

// Keys that no row may see, by the boolean mask or by a bias of -inf.
Case hidden_keys(bool by_bias, DType dtype) {
  Case c = dense(70, 130, 40, dtype);
  c.problem.heads = 2;
  const ScoreTensor all_rows = {.batch = 1, .heads = 1, .seqlen_q = 1};
  ScoreTensor& t = by_bias ? c.problem.bias : c.problem.bool_mask;
  t = all_rows;
  t.dtype = by_bias ? DType::f32 : DType::boolean;
  return c;
}
bool hidden(std::int64_t j) { return j == 5 || j == 64 || (j >= 90 && j < 120); }

TEST_P(Poison, ValuesOfHiddenKeysAreUnreachable) {
  for (DType dtype : kDTypes) {
    for (bool by_bias : {false, true}) {
      expect_unreachable(hidden_keys(by_bias, dtype), options(), [&](Inputs& in, double value) {
        if (by_bias)
          assign(in.bias, [](const Index& at) { return hidden(at[3]) ? -kInfinity : 0; });
        if (!by_bias) assign(in.mask, [](const Index& at) { return !hidden(at[3]); });
        for (std::int64_t j = 0; j < 130; ++j) {
          if (!hidden(j)) continue;
          for (std::int64_t h : {0, 1}) fill_row(in.v, 0, j, h, value);
        }
      });
    }
  }
}

TEST_P(Poison, HiddenKeysAreUnreachable) {
  for (DType dtype : kDTypes) {
    expect_unreachable(hidden_keys(false, dtype), options(), [&](Inputs& in, double value) {
      assign(in.mask, [](const Index& at) { return !hidden(at[3]); });
      for (std::int64_t j = 0; j < 130; ++j) {
        if (!hidden(j)) continue;
        for (std::int64_t h : {0, 1}) fill_row(in.k, 0, j, h, value);
      }
    });
  }
}

// Rows that see nothing: what their q and dO hold reaches no gradient.
TEST_P(Poison, RowsThatSeeNothingAreUnreachable) {
  Case c = dense(100, 60, 40);
  c.problem.mask = Band::causal();  // rows 0 to 39 see nothing
  expect_unreachable(c, options(), [&](Inputs& in, double value) {
    for (std::int64_t i = 0; i < 40; ++i) {
      fill_row(in.q, 0, i, 0, value);
      if (in.dout.defined()) fill_row(in.dout, 0, i, 0, value);
    }
  });
}

TEST_P(Poison, LowestFloatBiasIsANumber) {
  for (DType dtype : kDTypes) {
    Case c = dense(5, 300, 16, dtype);
    c.problem.bias = {.dtype = DType::f32};
    c.bias_lowest_share = 1;
    Inputs in = inputs_of(c);
    assign(in.v, [](const Index& at) { return at[1] % 2 == 0 ? 1.0 : -2.0; });
    const Outputs out = run_cpu(c, in);  // every score rounds to the same number
    EXPECT_TRUE(all_near(out.o, -0.5, epsilon(dtype)));
    for_each(out.lse.size, [&](const Index& at) {
      EXPECT_LT(out.lse.get(at), -3e38);
      EXPECT_TRUE(std::isfinite(out.lse.get(at)));
    });
  }
}

STROBE_ON_EVERY_TARGET(Poison);

}  // namespace
}  // namespace strobe::harness
