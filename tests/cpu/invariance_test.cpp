// What must not change a result, to the bit where docs/numerics.md promises bits: batch neighbours,
// memory layout, packing, how work is split. No reference is needed.
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cpu_run.h"

namespace strobe::harness {
namespace {

class Invariance : public OnTarget {};
class Merging : public OnTarget {};

// A case with a bit of everything, for both passes.
Case rich(Op op, DType dtype = DType::bf16) {
  Case c = dense(70, 210, 40, dtype, op);
  Problem& p = c.problem;
  p.batch = 3;
  p.heads = 6;
  p.kv_heads = 2;
  p.head_dim_v = 24;
  p.mask = Band::window(100, 3);
  p.alibi = Alibi::per_head;
  p.sinks = true;
  p.softcap = 20;
  p.dropout_p = 0.2;
  p.bias = {.dtype = DType::f32, .batch = 1};
  c.dlse = c.dbias = c.dsinks = true;
  return c;
}

// Tensors that a case's `item`-th sequence alone would have, for cases without bias.
Inputs one_sequence(const Case& one, const Inputs& all, std::int64_t item) {
  Inputs in = inputs_of(one);
  for (Tensor Inputs::*t : {&Inputs::q, &Inputs::k, &Inputs::v, &Inputs::o, &Inputs::dout,
                            &Inputs::lse, &Inputs::dlse}) {
    assign(in.*t, [&](Index at) {
      at[0] = item;
      return (all.*t).get(at);
    });
  }
  in.alibi_slopes = all.alibi_slopes;
  in.sinks = all.sinks;
  return in;
}

TEST_P(Invariance, DenseNeighboursDoNotMatter) {
  for (Op op : {Op::forward, Op::backward}) {
    Case c = rich(op);
    c.problem.bias = {};
    c.problem.dropout_p = 0;  // its mask depends on the index in the batch
    c.dbias = c.dsinks = false;
    const Inputs in = inputs_of(c);
    const Outputs out = run_cpu(c, in);
    Case one = c;
    one.problem.batch = 1;
    for (std::int64_t b : {0, 1, 2}) {
      const Outputs alone = run_cpu(one, one_sequence(one, in, b));
      for (const auto& [name, tensor] : kOutputs) {
        const Tensor &a = alone.*tensor, &all = out.*tensor;
        for_each(a.size, [&](const Index& at) {
          ASSERT_TRUE(same_bits(a.get(at), all.get({b, at[1], at[2], at[3]}))) << name << text(at);
        });
      }
    }
  }
}

// Varlen against one dense problem for each sequence: the same bits, whatever the lengths beside.
TEST_P(Invariance, VarlenIsALoopOfDense) {
  const std::vector<std::int32_t> lengths_q = {5, 0, 130, 1, 64}, lengths_k = {3000, 7, 130, 0, 65};
  for (Op op : {Op::forward, Op::backward}) {
    Case c = dense(0, 0, 40, DType::f32, op);
    Problem& p = c.problem;
    p.heads = 6;
    p.kv_heads = 2;
    p.lengths = Lengths::varlen;
    p.batch = 5;
    p.mask = Band::causal();
    p.sinks = true;
    c.dlse = true;
    c.cu_seqlens_q = {0, 5, 5, 135, 136, 200};
    c.cu_seqlens_k = {0, 3000, 3007, 3137, 3137, 3202};
    p.total_q = 200;
    p.total_k = 3202;
    const Inputs in = inputs_of(c);
    const Outputs out = run_cpu(c, in);
    for (std::size_t b = 0; b < 5; ++b) {
      Case one = c;
      one.problem.lengths = Lengths::dense;
      one.problem.batch = 1;
      one.problem.seqlen_q = lengths_q[b];
      one.problem.seqlen_k = lengths_k[b];
      one.cu_seqlens_q = one.cu_seqlens_k = {};
      const auto packed = [&](Index at, bool query, bool lse) {
        at[lse ? 2 : 1] += query ? c.cu_seqlens_q[b] : c.cu_seqlens_k[b];
        return at;
      };
      Inputs sequence = inputs_of(one);
      const auto take = [&](Tensor Inputs::*t, bool query, bool lse) {
        assign(sequence.*t, [&](const Index& at) { return (in.*t).get(packed(at, query, lse)); });
      };
      take(&Inputs::q, true, false);
      take(&Inputs::k, false, false);
      take(&Inputs::v, false, false);
      take(&Inputs::o, true, false);
      take(&Inputs::dout, true, false);
      take(&Inputs::lse, true, true);
      take(&Inputs::dlse, true, true);
      sequence.sinks = in.sinks;
      const Outputs alone = run_cpu(one, sequence);
      for (const auto& [name, tensor] : kOutputs) {
        const bool keys = tensor == &Outputs::dk || tensor == &Outputs::dv;
        for_each((alone.*tensor).size, [&](const Index& at) {
          const double got = (out.*tensor).get(packed(at, !keys, tensor == &Outputs::lse));
          ASSERT_TRUE(same_bits(got, (alone.*tensor).get(at)))
              << name << " of sequence " << b << text(at);
        });
      }
    }
  }
}

TEST_P(Invariance, LayoutDoesNotMatter) {
  for (Op op : {Op::forward, Op::backward}) {
    const Case c = rich(op);
    const Outputs expected = run_cpu(c, inputs_of(c));
    Case other = c;
    other.problem.layout = Layout::bhsd;
    EXPECT_TRUE(same_bits(run_cpu(other, inputs_of(other)), expected)) << "bhsd";
    Problem& p = other.problem;
    p.q_strides = p.dq_strides = {70 * 6 * 50, 6 * 50, 50};  // gaps everywhere
    p.o_strides = p.dout_strides = {70 * 6 * 31 + 7, 31, 70 * 31};
    p.k_strides = p.dk_strides = {210 * 2 * 41 + 3, 2 * 41, 41};
    p.v_strides = p.dv_strides = {1 << 16, 25, 210 * 25 + 9};
    p.alignment_bytes = 2;
    other.misalign_bytes = 6;
    EXPECT_TRUE(same_bits(run_cpu(other, inputs_of(other)), expected)) << "gaps";
    p.q_strides = {-70 * 6 * 40, 6 * 40, -40};
    p.k_strides = {210 * 2 * 40, -2 * 40, 40};
    p.v_strides = {210 * 2 * 24, -2 * 24, -24};
    p.dout_strides = {-70 * 6 * 24, -6 * 24, 24};
    EXPECT_TRUE(same_bits(run_cpu(other, inputs_of(other)), expected)) << "negative strides";
  }
}

// The heads of a group share tiles, yet a query row does not depend on its tile: bits are equal in
// o, lse and dq. dK and dV are sums over the group, in another order than a sum of single heads.
TEST_P(Invariance, GqaIsRepeatedHeads) {
  for (Op op : {Op::forward, Op::backward}) {
    Case c = dense(67, 150, 32, DType::f32, op);
    c.problem.batch = 2;
    c.problem.heads = 6;
    c.problem.kv_heads = 2;
    c.problem.mask = Band::causal();
    const Inputs in = inputs_of(c);
    const Outputs grouped = run_cpu(c, in);
    Case repeated = c;
    repeated.problem.kv_heads = 6;
    Inputs wide = in;
    wide.k = wide.v = Tensor(DType::f32, {2, 150, 6, 32});
    assign(wide.k, [&](const Index& at) { return in.k.get({at[0], at[1], at[2] / 3, at[3]}); });
    assign(wide.v, [&](const Index& at) { return in.v.get({at[0], at[1], at[2] / 3, at[3]}); });
    const Outputs single = run_cpu(repeated, wide);
    EXPECT_TRUE(same_bits(grouped.o, single.o));
    EXPECT_TRUE(same_bits(grouped.lse, single.lse));
    EXPECT_TRUE(same_bits(grouped.dq, single.dq));
    for (Tensor Outputs::*t : {&Outputs::dk, &Outputs::dv}) {
      for_each((grouped.*t).size, [&](const Index& at) {
        double sum = 0;
        for (std::int64_t h : {0, 1, 2}) {
          sum += (single.*t).get({at[0], at[1], at[2] * 3 + h, at[3]});
        }
        ASSERT_NEAR((grouped.*t).get(at), sum, 2e-5) << text(at);
      });
    }
  }
}

// A constant added to all scores of a row shifts its LSE and nothing else.
TEST_P(Invariance, ShiftOfARowsScores) {
  for (double shift : {-500.0, -3.0, 40.0, 3000.0}) {
    Case c = dense(50, 180, 32);
    c.problem.heads = 2;
    c.problem.bias = {.dtype = DType::f32, .batch = 1, .heads = 1};
    Inputs in = inputs_of(c);
    assign_all(in.bias, 0);
    const Outputs plain = run_cpu(c, in);
    assign(in.bias, [&](const Index& at) { return shift * static_cast<double>(at[2] % 3); });
    const Outputs shifted = run_cpu(c, in);
    const double lost = std::fabs(shift) * 2 * std::ldexp(1, -22);  // of a score, to rounding
    for_each(plain.o.size, [&](const Index& at) {
      ASSERT_NEAR(shifted.o.get(at), plain.o.get(at), 2e-6 + 4 * lost) << text(at);
    });
    for_each(plain.lse.size, [&](const Index& at) {
      const double expected = plain.lse.get(at) + shift * static_cast<double>(at[2] % 3);
      ASSERT_NEAR(shifted.lse.get(at), expected, 2e-6 + 2 * lost) << text(at);
    });
  }
}

TEST_P(Invariance, ProbabilitiesAreTheSoftmax) {
  for (DType dtype : kDTypes) {
    Case c = dense(40, 190, 24, dtype);
    c.problem.batch = 2;
    c.problem.heads = 4;
    c.problem.kv_heads = 2;
    c.problem.mask = Band::causal();
    Inputs in = inputs_of(c);
    in.lse = run_cpu(c, in).lse;
    c.problem.op = Op::probs;
    c.rows = {39, 0, 7, 7};
    c.problem.num_rows = 4;
    const Outputs probs = run_cpu(c, in);
    for_each({2, 4, 4, 1}, [&](const Index& at) {
      double sum = 0;
      for (std::int64_t j = 0; j < 190; ++j) {
        const std::int64_t i = c.rows[static_cast<std::size_t>(at[2])];
        double dot = 0;
        for (std::int64_t d = 0; d < 24; ++d) {
          dot += in.q.get({at[0], i, at[1], d}) * in.k.get({at[0], j, at[1] / 2, d});
        }
        const bool visible = j <= i + 150;
        const double lse = in.lse.get({at[0], at[1], i, 0});
        const double expected = visible ? std::exp(dot / std::sqrt(24) - lse) : 0;
        const double got = probs.probs.get({at[0], at[1], at[2], j});
        ASSERT_NEAR(got, expected, 4e-6 * expected) << text(at) << " key " << j;
        sum += got;
      }
      EXPECT_NEAR(sum, 1, 2e-6);
    });
  }
}

// Few queries, many keys: the keys are split.
TEST_P(Invariance, SplitKeysAgreeWithTheReference) {
  for (std::int64_t rows = 1; rows <= 8; ++rows) {
    Case c = dense(rows, 2200 + 2225 * (9 - rows), 16, kDTypes[rows % 3]);
    c.problem.heads = 2;
    c.problem.kv_heads = rows == 4 ? 2 : 1;
    c.problem.sinks = rows % 2 == 0;
    if (rows % 3 == 0) c.problem.mask = Band::window(4000, 0);  // some splits see nothing
    if (rows % 4 == 1) c.data = Data::growing_maxima;
    check(c);
  }
}

// By an independent Philox, itself checked with the known answers of Random123.
TEST_P(Invariance, KeepMaskKnownAnswer) {
  Case c = dense(3, 40, 8);
  c.problem.op = Op::keep_mask;
  c.problem.heads = 2;
  c.problem.dropout_p = 0.5;
  c.problem.num_rows = 1;
  const std::int64_t row = 2;
  const Result<Plan> plan = make_plan(c.problem, options());
  ASSERT_TRUE(plan) << plan.status().message();
  const std::uint64_t state[2] = {0x123456789ABCDEF0u, 7};
  for (bool in_memory : {false, true}) {
    std::uint8_t keep[80];
    RunArgs args{.dropout_seed = in_memory ? 1 : state[0],
                 .dropout_offset = in_memory ? 2 : state[1],
                 .dropout_state = in_memory ? state : nullptr,
                 .rows = &row,
                 .keep_mask = keep};
    ASSERT_TRUE(plan->run(args));
    std::string got;
    for (std::uint8_t kept : keep) got += kept ? '1' : '0';
    EXPECT_EQ(got,
              "1101011011001001100000010111111110010001"
              "1001100000010001000111101000101011000101");
  }
}

Outputs merged(const Case& c, const std::vector<Outputs>& parts, const PlanOptions& options) {
  Case m = c;
  m.problem = {.batch = c.problem.batch,
               .heads = c.problem.heads,
               .seqlen_q = c.problem.seqlen_q,
               .head_dim = c.problem.head_dim,
               .dtype = c.problem.dtype,
               .op = Op::merge,
               .partials = static_cast<int>(parts.size())};
  Inputs in;
  for (const Outputs& part : parts) {
    in.partial_o.push_back(part.o);
    in.partial_lse.push_back(part.lse);
  }
  return run_plan(m, in, options);
}

TEST_P(Merging, PartsOverTheKeysGiveTheWhole) {
  Case c = dense(33, 200, 48);
  c.problem.batch = 2;
  c.problem.heads = 2;
  Inputs in = inputs_of(c);
  const Outputs whole = run_cpu(c, in);
  Case half = c;
  half.problem.bool_mask = {.dtype = DType::boolean, .batch = 1, .heads = 1, .seqlen_q = 1};
  in.mask = Tensor(DType::boolean, {1, 1, 1, 200});
  std::vector<Outputs> parts;
  for (int part : {0, 1, 2}) {  // the third sees nothing
    assign(in.mask, [&](const Index& at) { return (at[3] < 77 ? 0 : 1) == part; });
    parts.push_back(run_cpu(half, in));
  }
  const Outputs got = merged(c, parts, options());
  for_each(got.o.size,
           [&](const Index& at) { ASSERT_NEAR(got.o.get(at), whole.o.get(at), 1e-6) << text(at); });
  for_each(got.lse.size, [&](const Index& at) {
    ASSERT_NEAR(got.lse.get(at), whole.lse.get(at), 2e-6) << text(at);
  });
  EXPECT_TRUE(same_bits(merged(c, {parts[0], parts[2]}, options()), parts[0]));
  EXPECT_TRUE(same_bits(merged(c, {parts[2], parts[1]}, options()), parts[1]));
  EXPECT_TRUE(same_bits(merged(c, {parts[2], parts[2]}, options()), parts[2]));
}

STROBE_ON_EVERY_TARGET(Invariance);
STROBE_ON_EVERY_TARGET(Merging);

}  // namespace
}  // namespace strobe::harness
