// The workspace: exactly workspace_bytes() are used, whatever they hold, and they grow with the
// number of tokens alone.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu_run.h"

namespace strobe::harness {
namespace {

class Workspace : public OnTarget {
 protected:
  // One size of tile: the default is smaller where there are many threads for little work.
  std::size_t bytes(const Case& c, int threads = 1) const {
    PlanOptions tiled = options(threads);
    tiled.overrides += ",q_tile=128";
    const Result<Plan> plan = make_plan(c.problem, tiled);
    EXPECT_TRUE(plan) << plan.status().message();
    return plan ? plan->workspace_bytes() : 0;
  }
};

Case varlen_of(std::int64_t batch, std::int64_t length, Op op) {
  Case c = dense(0, 0, 64, DType::bf16, op);
  c.problem.heads = 8;
  c.problem.kv_heads = 2;
  c.problem.lengths = Lengths::varlen;
  c.problem.batch = batch;
  c.problem.total_q = c.problem.total_k = batch * length;
  return c;
}

Case dense_of(std::int64_t length, Op op) {
  Case c = dense(length, length, 64, DType::bf16, op);
  c.problem.heads = 8;
  c.problem.kv_heads = 2;
  return c;
}

TEST_P(Workspace, GrowsWithTheTokens) {
  for (Op op : {Op::forward, Op::backward}) {
    const auto linear = [&](auto of) {
      const std::size_t at_1 = bytes(of(4096)), at_2 = bytes(of(8192)),
                        at_17 = bytes(of(17 * 4096));
      ASSERT_GE(at_2, at_1);
      const std::size_t slope = at_2 - at_1;
      EXPECT_LE(at_17, at_1 + 16 * slope + slope / 8 + 4096);
      // Floats for one token: dQ and a few numbers of each head, or a split's part of O.
      EXPECT_LE(static_cast<double>(slope) / 4096, 4.0 * 8 * (64 + 64));
    };
    linear([&](std::int64_t tokens) { return dense_of(tokens, op); });
    linear([&](std::int64_t tokens) { return varlen_of(16, tokens / 16, op); });
    linear([&](std::int64_t tokens) { return varlen_of(tokens / 512, 512, op); });
    linear([&](std::int64_t tokens) {
      Case c = dense_of(512, op);
      c.problem.batch = tokens / 512;
      return c;
    });
    linear([&](std::int64_t tokens) {  // decode: one query, many keys
      Case c = dense_of(tokens, op);
      c.problem.seqlen_q = 1;
      return c;
    });
  }
}

// Each thread brings scratch of its own, independent of the lengths.
TEST_P(Workspace, GrowsWithTheThreads) {
  for (Op op : {Op::forward, Op::backward}) {
    const std::size_t of_a_short = bytes(dense_of(64, op), 2) - bytes(dense_of(64, op));
    EXPECT_GT(of_a_short, 0u);
    EXPECT_EQ(bytes(dense_of(64, op), 5) - bytes(dense_of(64, op)), 4 * of_a_short);
    EXPECT_EQ(bytes(dense_of(9999, op), 2) - bytes(dense_of(9999, op)), of_a_short);
  }
}

TEST_P(Workspace, IsAMultipleOf256) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) EXPECT_EQ(bytes(random_case(seed), 3) % 256, 0u);
}

// run() poisons the workspace with NaN; here it holds other things, and the bits do not change.
TEST_P(Workspace, ContentsDoNotMatter) {
  for (Op op : {Op::forward, Op::backward}) {
    Case c = dense(3, 3000, 40, DType::f32, op);  // splits keys
    c.problem.batch = 2;
    c.problem.heads = 4;
    c.problem.kv_heads = 2;
    c.problem.bias = {.dtype = DType::f32, .batch = 1, .heads = 1};
    c.problem.softcap = 20;
    c.problem.dropout_p = 0.1;
    c.dbias = true;
    const Inputs in = inputs_of(c);
    const Outputs expected = run_cpu(c, in);
    const Result<Plan> plan = make_plan(c.problem, options());
    ASSERT_TRUE(plan) << plan.status().message();
    for (int byte : {0x00, 0x7F, 0x01}) {
      Buffer workspace(plan->workspace_bytes());
      std::memset(workspace.data(), byte, workspace.bytes());
      Outputs out = make_outputs(c);
      Args args(c, in, &out);
      args.workspace = {workspace.data(), workspace.bytes()};
      ASSERT_TRUE(plan->run(args));
      EXPECT_TRUE(workspace.guards_intact());
      EXPECT_TRUE(same_bits(out, expected)) << byte;
    }
    Outputs out = make_outputs(c);
    Args args(c, in, &out);
    Buffer small(plan->workspace_bytes() - 256);
    args.workspace = {small.data(), small.bytes()};
    EXPECT_EQ(plan->run(args).code(), STROBE_INVALID_ARGUMENT);
  }
}

// Where little fits into it: every thread's scratch, many short sequences, splits.
TEST_P(Workspace, IsNeverExceeded) {
  for (int threads : {1, 3, 8}) {
    for (Op op : {Op::forward, Op::backward}) {
      Case c = varlen_of(6, 0, op);
      c.cu_seqlens_q = {0, 1, 1, 4, 60, 61, 66};
      c.cu_seqlens_k = {0, 2305, 2400, 2400, 4900, 4901, 7300};
      c.problem.total_q = 66;
      c.problem.total_k = 7300;
      c.problem.heads = 2;
      c.problem.head_dim = 8;
      const Outputs out = run_plan(c, inputs_of(c), options(threads));
      EXPECT_TRUE(same_bits(out, run_cpu(c, inputs_of(c))));
    }
  }
}

STROBE_ON_EVERY_TARGET(Workspace);

}  // namespace
}  // namespace strobe::harness
