// Bugs that users of other attention libraries met, as tests: sequence lengths, strides,
// alignment, biases of odd sizes. See users_scores_test.cpp.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "cpu_run.h"

namespace strobe::harness {
namespace {

class Users3Varlen : public OnTarget {};
class Users5Strides : public OnTarget {};

// A varlen case of sequences of these lengths, with `tail` rows that belong to none.
Case varlen(std::vector<std::int32_t> lengths_q, std::vector<std::int32_t> lengths_k,
            std::int64_t head_dim, std::int64_t tail = 0) {
  Case c = dense(0, 0, head_dim);
  c.problem.lengths = Lengths::varlen;
  c.problem.batch = static_cast<std::int64_t>(lengths_q.size());
  c.cu_seqlens_q = c.cu_seqlens_k = {0};
  std::partial_sum(lengths_q.begin(), lengths_q.end(), std::back_inserter(c.cu_seqlens_q));
  std::partial_sum(lengths_k.begin(), lengths_k.end(), std::back_inserter(c.cu_seqlens_k));
  c.problem.total_q = c.cu_seqlens_q.back() + tail;
  c.problem.total_k = c.cu_seqlens_k.back() + tail;
  return c;
}

TEST_P(Users3Varlen, B28_EmptyQueriesAmongSingleOnes) {
  for (Op op : {Op::forward, Op::backward}) {
    Case c = varlen({0, 1, 0, 1}, {7, 33, 0, 100}, 64);
    c.problem.op = op;
    c.problem.heads = 9;
    c.problem.kv_heads = 3;
    check(c);
    c.problem.seqlen_q = 1;  // a stated bound
    check(c);
    c = varlen({0, 0, 0, 1}, {5, 6, 0, 130}, 120);
    c.problem.op = op;
    c.problem.heads = 21;
    c.problem.kv_heads = 7;
    check(c);
  }
}

TEST_P(Users3Varlen, B29_SequencesWithoutKeys) {
  for (DType dtype : kDTypes) {
    Case c = varlen({5, 70, 3}, {0, 40, 0}, 40);
    c.problem.dtype = dtype;
    c.problem.heads = 2;
    const Inputs in = inputs_of(c);
    const Outputs out = run_cpu(c, in);
    for (std::int64_t i : {0, 4, 75, 77}) {
      EXPECT_EQ(out.lse.get({0, 1, i, 0}), -kInfinity);
      EXPECT_EQ(out.o.get({0, i, 1, 39}), 0);
    }
    check(c);
    c.problem.op = Op::backward;
    check(c);
  }
}

TEST_P(Users3Varlen, B31_NoKeysAtAll) {
  for (bool sinks : {false, true}) {
    Case c = dense(70, 0, 64);
    c.problem.batch = 2;
    c.problem.heads = 2;
    c.problem.sinks = sinks;
    const Inputs in = inputs_of(c);
    const Outputs out = run_cpu(c, in);
    EXPECT_TRUE(all_equal(out.o, 0));
    for_each(out.lse.size, [&](const Index& at) {
      EXPECT_EQ(out.lse.get(at), sinks ? in.sinks.get({0, 0, 0, at[1]}) : -kInfinity);
    });
    c.problem.op = Op::backward;
    c.dsinks = sinks;
    c.dlse = true;
    const Outputs grads = run_cpu(c, inputs_of(c));
    EXPECT_TRUE(all_equal(grads.dq, 0));
    check(c);
    Case packed = varlen({3, 4}, {0, 0}, 64);
    packed.problem.op = Op::backward;
    check(packed);
  }
}

TEST_P(Users3Varlen, B32_RowsPastTheLastSequence) {
  Case c = varlen({500, 444}, {444, 500}, 8, 2);
  c.problem.mask = Band::window(30, 30);
  const Inputs in = inputs_of(c);
  const Outputs out = run_cpu(c, in);
  c.problem.op = Op::backward;
  const Outputs grads = run_cpu(c, inputs_of(c));
  for (std::int64_t i : {944, 945}) {
    EXPECT_EQ(out.lse.get({0, 0, i, 0}), -kInfinity);
    for (std::int64_t d = 0; d < 8; ++d) {
      const Index at = {0, i, 0, d};
      for (const Tensor* t : {&out.o, &grads.dq, &grads.dk, &grads.dv}) EXPECT_EQ(t->get(at), 0);
    }
  }
  EXPECT_TRUE(all_finite(grads));
}

// Refusals leave every output as it was.
void expect_refused(const Case& c, const PlanOptions& options) {
  const Result<Plan> plan = make_plan(c.problem, options);
  ASSERT_TRUE(plan) << plan.status().message();
  Case sound = c;
  sound.cu_seqlens_q.assign(c.cu_seqlens_q.size(), 0);
  sound.cu_seqlens_k.assign(c.cu_seqlens_k.size(), 0);
  sound.seqlens_k.assign(c.seqlens_k.size(), 0);
  const Inputs in = inputs_of(sound);
  Outputs out = make_outputs(c);
  EXPECT_EQ(run(*plan, c, in, &out).code(), STROBE_INVALID_ARGUMENT);
  for (const auto& [name, tensor] : kOutputs) {
    for_each((out.*tensor).size, [&](const Index& at) {
      ASSERT_TRUE(std::isnan((out.*tensor).get(at))) << name << text(at);
    });
  }
}

TEST_P(Users3Varlen, B35_BadCuSeqlensAreRefused) {
  const std::vector<std::vector<std::int32_t>> bad = {{1, 3, 6},  {0, 5, 3},  {0, 3, 7},
                                                      {0, -1, 6}, {-1, 3, 6}, {0, 6, 6}};
  for (const auto& cu : bad) {
    Case c = varlen({3, 3}, {3, 3}, 8);
    c.problem.seqlen_q = c.problem.seqlen_k = 5;  // so the last of them has a sequence too long
    Case q = c, k = c;
    q.cu_seqlens_q = cu;
    k.cu_seqlens_k = cu;
    expect_refused(q, options());
    expect_refused(k, options());
  }
}

TEST_P(Users3Varlen, B48_LengthsBeyondTheCapacityAreRefused) {
  for (std::int32_t length : {-1, 9, std::numeric_limits<std::int32_t>::max()}) {
    Case c = dense(4, 8, 8);
    c.problem.lengths = Lengths::padded;
    c.seqlens_k = {length};
    expect_refused(c, options());
  }
}

TEST_P(Users3Varlen, B37_NothingToDo) {
  for (Op op : {Op::forward, Op::backward}) {
    for (const auto& [batch, lq, lk] : {std::array{0, 5, 5}, {2, 0, 5}, {2, 0, 0}, {0, 0, 0}}) {
      Case c = dense(lq, lk, 16, DType::bf16, op);
      c.problem.batch = batch;
      c.problem.heads = 4;
      check(c);
    }
    Case c = varlen({}, {}, 8, 3);
    c.problem.op = op;
    check(c);
    c.problem.heads = 0;
    const Result<Plan> plan = make_plan(c.problem, options());
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.status().argument(), "heads");
  }
}

TEST_P(Users3Varlen, B50_MaskNarrowerThanTheKeysIsRefused) {
  Case c = dense(10, 20, 8);
  c.problem.bool_mask = {.dtype = DType::boolean, .seqlen_k = 15};
  const Result<Plan> plan = make_plan(c.problem, options());
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.status().code(), STROBE_INVALID_ARGUMENT);
}

// The same values in tensors that start `bytes` past an aligned address.
TEST_P(Users5Strides, B52_UnalignedTensors) {
  for (DType dtype : kDTypes) {
    for (Op op : {Op::forward, Op::backward}) {
      Case c = dense(64, 64, 64, dtype, op);
      c.problem.batch = 2;
      c.problem.heads = 4;
      c.problem.kv_heads = 2;
      const Outputs aligned = run_cpu(c, inputs_of(c));
      const int element = static_cast<int>(dtype_bytes(dtype));
      for (int bytes : {element, 2 * element, 3 * element, 7 * element}) {
        c.misalign_bytes = bytes;
        c.problem.alignment_bytes = bytes == element ? element : 1;
        EXPECT_TRUE(same_bits(run_cpu(c, inputs_of(c)), aligned)) << bytes;
      }
    }
  }
}

// Any number of keys with a bias, its rows with and without gaps.
TEST_P(Users5Strides, B53_BiasOfAnyWidth) {
  for (std::int64_t keys = 1; keys <= 130; keys += keys % 8 == 0 ? 1 : 3) {
    for (std::int64_t gap : {0, 3}) {
      Case c = dense(5, keys, 16, DType::bf16, keys % 2 ? Op::forward : Op::backward);
      c.problem.heads = 2;
      c.problem.bias = {.dtype = gap ? DType::bf16 : DType::f32, .stride_q = keys + gap};
      c.problem.bool_mask = {.dtype = DType::boolean, .heads = 1, .stride_q = keys + gap};
      c.dbias = true;
      check(c);
    }
  }
}

// Strides of [batch, seq, head] for the six orders of these dimensions in memory.
std::vector<Strides> six_orders(std::int64_t batch, std::int64_t rows, std::int64_t heads,
                                std::int64_t dim) {
  std::array<int, 3> order = {0, 1, 2};
  const std::array<std::int64_t, 3> sizes = {batch, rows, heads};
  std::vector<Strides> all;
  do {
    std::array<std::int64_t, 3> stride{};
    std::int64_t next = dim;
    for (int d : order) {
      stride[static_cast<std::size_t>(d)] = next;
      next *= sizes[static_cast<std::size_t>(d)];
    }
    all.push_back({stride[0], stride[1], stride[2]});
  } while (std::next_permutation(order.begin(), order.end()));
  return all;
}

TEST_P(Users5Strides, B55_SixLayoutsGiveTheSameBits) {
  for (DType dtype : kDTypes) {
    for (Op op : {Op::forward, Op::backward}) {
      const std::int64_t dim = dtype == DType::bf16 ? 256 : 20;
      Case c = dense(33, 70, dim, dtype, op);
      c.problem.batch = 2;
      c.problem.heads = 6;
      c.problem.kv_heads = 2;
      const Outputs expected = run_cpu(c, inputs_of(c));
      const auto q = six_orders(2, 33, 6, dim), k = six_orders(2, 70, 2, dim);
      for (std::size_t n = 0; n < 6; ++n) {
        Problem& p = c.problem;
        p.q_strides = p.o_strides = p.dout_strides = p.dq_strides = q[n];
        p.k_strides = p.v_strides = p.dk_strides = p.dv_strides = k[n];
        EXPECT_TRUE(same_bits(run_cpu(c, inputs_of(c)), expected)) << "order " << n;
      }
    }
  }
}

TEST_P(Users5Strides, B56_GradientExpandedFromOneScalar) {
  Case c = dense(40, 50, 24, DType::f32, Op::backward);
  c.problem.batch = 2;
  c.problem.heads = 3;
  c.dlse = true;
  Inputs in = inputs_of(c);
  assign_all(in.dout, 0.75);
  const Outputs expected = run_cpu(c, in);

  Case expanded = c;  // one row of dO for all, and lse with strides of its own
  expanded.problem.dout_strides = {0, 0, 0};
  expanded.problem.lse_strides = {1, 2 * 3, 2};
  expanded.problem.dlse_strides = {40 * 3, 3, 1};
  Inputs same = in;
  same.dout = Tensor(DType::f32, in.dout.size, {0, 0, 0, 1});
  assign_all(same.dout, 0.75);
  const auto restride = [](const Tensor& t, const Index& stride) {
    Tensor copy(t.dtype, t.size, stride);
    assign(copy, [&](const Index& at) { return t.get(at); });
    return copy;
  };
  same.lse = restride(in.lse, {1, 2, 2 * 3, 1});
  same.dlse = restride(in.dlse, {40 * 3, 1, 3, 1});
  EXPECT_TRUE(same_bits(run_cpu(expanded, same), expected));
  check(expanded);
}

// Three tensors of another order than O's; LSE is written with its own strides.
TEST_P(Users5Strides, B56_LseWithOtherStrides) {
  Case c = dense(40, 50, 24);
  c.problem.batch = 2;
  c.problem.heads = 3;
  const Outputs expected = run_cpu(c, inputs_of(c));
  c.problem.lse_strides = {.batch = 1, .seq = 7, .head = 7 * 41};
  EXPECT_TRUE(same_bits(run_cpu(c, inputs_of(c)), expected));
}

STROBE_ON_EVERY_TARGET(Users3Varlen);
STROBE_ON_EVERY_TARGET(Users5Strides);

}  // namespace
}  // namespace strobe::harness
