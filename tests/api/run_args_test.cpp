// Arguments of a run that are accepted, and what check_args() makes of them.
#include <gtest/gtest.h>
#include <strobe/strobe.h>

#include <cstdint>
#include <string>

#include "api/support.h"
#include "call.h"
#include "problems.h"

namespace strobe::test {
namespace {

TEST(RunArgs, NullPlanAndArgs) {
  strobe_status status;
  strobe_run_args args;
  strobe_run_args_init(&args);
  EXPECT_EQ(strobe_plan_run(nullptr, &args, nullptr, &status), STROBE_INVALID_ARGUMENT);
  EXPECT_STREQ(status.argument, "plan");
  const PlanPtr plan = reference_plan(dense_problem());
  EXPECT_EQ(strobe_plan_run(plan.get(), nullptr, nullptr, &status), STROBE_INVALID_ARGUMENT);
  EXPECT_STREQ(status.argument, "args");
}

TEST(RunArgs, EmptyTensorsNeedNoPointers) {
  strobe_problem p = dense_problem();
  p.seqlen_q = p.seqlen_k = 0;
  strobe_run_args args;
  strobe_run_args_init(&args);
  strobe_status status;
  EXPECT_EQ(strobe_plan_run(reference_plan(p).get(), &args, nullptr, &status), STROBE_OK)
      << status.message;
}

TEST(RunArgs, OptionalOutputMayBeMissing) {
  Call call(dense_problem());
  call.args.lse = nullptr;
  strobe_status status;
  EXPECT_EQ(strobe_plan_run(reference_plan(call.problem).get(), &call.args, nullptr, &status),
            STROBE_OK)
      << status.message;
}

TEST(RunArgs, InputsMayOverlap) {
  Call call(dense_problem());
  call.args.v = call.args.k;
  strobe_status status;
  EXPECT_EQ(strobe_plan_run(reference_plan(call.problem).get(), &call.args, nullptr, &status),
            STROBE_OK)
      << status.message;
}

// dq, dk and dv as views of one gradient [batch, seq, 3, heads, dim].
TEST(RunArgs, PackedGradientsAreAccepted) {
  strobe_problem p = dense_problem(STROBE_BACKWARD);
  p.kv_heads = 4;
  p.seqlen_k = 3;
  const std::int64_t row = 3 * 4 * 8;
  p.dq_strides = p.dk_strides = p.dv_strides = {3 * row, row, 8};
  Call call(p);
  float* packed = call.memory.slot<float>(20);
  call.args.dq = packed;
  call.args.dk = packed + 32;
  call.args.dv = packed + 64;
  strobe_status status;
  EXPECT_EQ(strobe_plan_run(reference_plan(p).get(), &call.args, nullptr, &status), STROBE_OK)
      << status.message;
  call.args.dv = packed + 60;  // its last heads now reach into the next row's dq
  EXPECT_EQ(strobe_plan_run(reference_plan(p).get(), &call.args, nullptr, &status),
            STROBE_INVALID_ARGUMENT);
}

// O written into the q part of packed [batch, seq, 3, heads, dim], of which k and v are read.
TEST(RunArgs, OutputInterleavedWithInputsIsAccepted) {
  strobe_problem p = dense_problem();
  p.kv_heads = 4;
  p.seqlen_k = 3;
  const std::int64_t row = 3 * 4 * 8;
  p.o_strides = p.k_strides = p.v_strides = {3 * row, row, 8};
  Call call(p);
  float* packed = call.memory.slot<float>(20);
  call.args.o = packed;
  call.args.k = packed + 32;
  call.args.v = packed + 64;
  strobe_status status;
  EXPECT_EQ(strobe_plan_run(reference_plan(p).get(), &call.args, nullptr, &status), STROBE_OK)
      << status.message;
}

class CheckArgs : public testing::Test {
 protected:
  api::Status check(Call& call, std::size_t workspace_bytes,
                    strobe_device_kind device = STROBE_DEVICE_CPU) {
    strobe_problem resolved;
    const api::Status status = api::resolve(&call.problem, &resolved);
    EXPECT_TRUE(status.ok()) << status.message;
    return api::check_args(resolved, workspace_bytes, &call.args, call.stream, device, &checked_);
  }
  strobe_run_args checked_{};
};

TEST_F(CheckArgs, Workspace) {
  Call call(dense_problem());
  EXPECT_TRUE(check(call, 0).ok());
  api::Status status = check(call, 512);
  EXPECT_EQ(status.argument, "workspace");
  EXPECT_NE(status.message.find("512 bytes"), std::string::npos) << status.message;
  call.args.workspace = call.memory.slot(21);
  call.args.workspace_bytes = 511;
  status = check(call, 512);
  EXPECT_EQ(status.argument, "workspace_bytes");
  EXPECT_NE(status.message.find("511"), std::string::npos) << status.message;
  EXPECT_NE(status.message.find("512 bytes"), std::string::npos) << status.message;
  call.args.workspace_bytes = 512;
  EXPECT_TRUE(check(call, 512).ok());
  EXPECT_EQ(checked_.workspace, call.args.workspace);
  call.args.workspace = call.memory.slot<char>(21) + 128;
  EXPECT_EQ(check(call, 512).argument, "workspace");
}

TEST_F(CheckArgs, WorkspaceMayNotOverlap) {
  Call call(dense_problem());
  call.args.workspace_bytes = 4096;
  for (void* tensor : {const_cast<void*>(call.args.q), call.args.o}) {
    call.args.workspace = tensor;
    const api::Status status = check(call, 256);
    EXPECT_EQ(status.code, STROBE_INVALID_ARGUMENT);
    EXPECT_NE(status.message.find("workspace"), std::string::npos) << status.message;
  }
}

TEST_F(CheckArgs, DropoutStateIsReadOnTheCpuOnly) {
  strobe_problem p = dense_problem();
  p.dropout_p = 0.5;
  Call call(p);
  call.args.dropout_seed = 1;
  call.args.dropout_state = call.dropout_state.data();
  EXPECT_TRUE(check(call, 0).ok());
  EXPECT_EQ(checked_.dropout_seed, 5u);
  EXPECT_EQ(checked_.dropout_offset, 6u);
  EXPECT_EQ(checked_.dropout_state, nullptr);
  EXPECT_TRUE(check(call, 0, STROBE_DEVICE_CUDA).ok());
  EXPECT_EQ(checked_.dropout_seed, 1u);
  EXPECT_EQ(checked_.dropout_state, call.dropout_state.data());
}

TEST_F(CheckArgs, DropoutStateIsNotReadWithoutUse) {
  Call call(dense_problem(STROBE_PROBS));
  call.problem.dropout_p = 0.5;  // of the forward pass; probs are before dropout
  call.args.dropout_state = reinterpret_cast<const std::uint64_t*>(1);
  EXPECT_TRUE(check(call, 0).ok());
  EXPECT_EQ(checked_.dropout_state, nullptr);
}

// Device memory: addresses that the host cannot read.
TEST_F(CheckArgs, DevicePointersAreNotRead) {
  strobe_problem p = varlen_problem(STROBE_PROBS);
  Call call(p);
  auto* nowhere = reinterpret_cast<char*>(std::uintptr_t{1} << 60);
  call.args.cu_seqlens_q = reinterpret_cast<std::int32_t*>(nowhere);
  call.args.cu_seqlens_k = reinterpret_cast<std::int32_t*>(nowhere + 4096);
  call.args.seqlens_k = reinterpret_cast<std::int32_t*>(nowhere + 8192);
  call.args.rows = reinterpret_cast<std::int64_t*>(nowhere + 12288);
  call.stream = nowhere;
  EXPECT_TRUE(check(call, 0, STROBE_DEVICE_CUDA).ok());
}

TEST_F(CheckArgs, PaddedLengthsMayBeGivenOnOneSide) {
  Call call(padded_problem());
  EXPECT_TRUE(check(call, 0).ok());
  EXPECT_EQ(checked_.seqlens_q, nullptr);
  EXPECT_EQ(checked_.seqlens_k, call.used_k.data());
}

}  // namespace
}  // namespace strobe::test
