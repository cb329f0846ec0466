// Device emulator as callers meet it: choices and their explanation, refusals, hazards as a status,
// and what a run leaves to read.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "emu/executor.h"
#include "gpu/shapes.h"
#include "harness/harness.h"
#include "kernels/outside_rows.h"

namespace strobe::harness {
namespace {

using Json = nlohmann::json;

Problem problem(std::int64_t seqlen, std::int64_t head_dim) {
  Problem p;
  p.seqlen_q = p.seqlen_k = seqlen;
  p.head_dim = head_dim;
  p.dtype = DType::bf16;
  return p;
}

PlanOptions emulator(const std::string& overrides = "") {
  PlanOptions o;
  o.device = Device::emulator();
  o.kernel = "fa2";
  o.overrides = overrides;
  o.threads = 1;
  return o;
}

std::string explained(const Problem& p, const std::string& overrides = "") {
  const Result<Plan> plan = make_plan(p, emulator(overrides));
  return plan ? plan->explain(STROBE_TEXT) : plan.status().message();
}

Json run_and_read(const Case& c, const std::string& overrides = "") {
  const Result<Plan> plan = make_plan(c.problem, emulator(overrides));
  const Result<Inputs> inputs = make_inputs(c);
  if (!plan || !inputs) return {};
  Outputs out = make_outputs(c);
  const Status status = run(*plan, c, *inputs, &out);
  EXPECT_TRUE(status) << status.message();
  return Json::parse(plan->explain(STROBE_JSON))["last_run"];
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(EmulatorPlan, ExplainsItsChoices) {
  Problem p = problem(512, 80);
  EXPECT_TRUE(holds(explained(p), "fa2_fwd_bf16_d96_plain: no modifier")) << explained(p);
  p.dtype = DType::f16;
  p.softcap = 3;
  p.dropout_p = 0.5;
  EXPECT_TRUE(holds(explained(p), "fa2_fwd_f16_d96_full: full, for softcap, dropout"));
  p.head_dim = 81;
  EXPECT_TRUE(holds(explained(p), "element by element: head_dim is 81")) << explained(p);
  p = problem(1, 128);
  p.heads = 8;
  p.kv_heads = 2;
  EXPECT_TRUE(holds(explained(p), "heads in a tile: 4: 1 tiles for a group of 4, against 4"));
  EXPECT_TRUE(holds(explained(p, "pack=1"), "heads in a tile: 1: as the overrides say"));
  p.seqlen_q = p.seqlen_k = 4096;
  EXPECT_TRUE(holds(explained(p), "heads in a tile: 1: 128 tiles"));
}

TEST(EmulatorPlan, RefusalsSayWhy) {
  Problem p = problem(64, 64);
  EXPECT_TRUE(holds(explained(p, "pack=3"), "pack is \"3\""));
  EXPECT_TRUE(holds(explained(p, "row=plain"), "row is \"plain\""));
  EXPECT_TRUE(holds(explained(p, "seed=x"), "seed is \"x\""));
  EXPECT_TRUE(holds(explained(p, "landing=never"), "landing is \"never\""));
  EXPECT_TRUE(holds(explained(p, "tile=4"), "has the keys pack, row, seed, landing"));
  p.dtype = DType::f32;
  EXPECT_TRUE(holds(explained(p), "takes bf16 and f16"));
  p = problem(64, 512);
  EXPECT_TRUE(holds(explained(p), "takes up to 256"));
}

TEST(CudaPlan, WithoutAGpuSaysWhy) {
  PlanOptions o;
  o.device = Device::cuda();
  const Result<Plan> plan = make_plan(problem(64, 64), o);
  if (plan) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(plan.status().code(), STROBE_UNSUPPORTED);
  EXPECT_TRUE(holds(plan.status().message(), "device is cuda, but")) << plan.status().message();
}

// As on the CPU, memory can be read here: bad lengths and streams are refused, and nothing is run.
TEST(EmulatorRun, ChecksArguments) {
  Case c;
  c.problem = problem(8, 64);
  c.problem.lengths = Lengths::varlen;
  c.problem.total_q = c.problem.total_k = 8;
  c.cu_seqlens_q = {0, 8};
  c.cu_seqlens_k = {0, 8};
  const Result<Inputs> inputs = make_inputs(c);
  ASSERT_TRUE(inputs);
  c.cu_seqlens_k = {0, 9};
  const Result<Plan> plan = make_plan(c.problem, emulator());
  ASSERT_TRUE(plan) << plan.status().message();
  Outputs out = make_outputs(c);
  EXPECT_EQ(run(*plan, c, *inputs, &out).argument(), "cu_seqlens_k");
  c.cu_seqlens_k = {0, 8};
  int not_a_stream = 0;
  EXPECT_EQ(plan->run(Args(c, *inputs, &out), &not_a_stream).argument(), "stream");
}

// The papers' counts: every element of Q, K, V, O once per tile that needs it, 4 N^2 d FLOPs.
TEST(EmulatorRun, LeavesCounts) {
  Case c;
  c.problem = problem(128, 64);
  c.problem.heads = 2;
  const Json last = run_and_read(c);
  ASSERT_TRUE(last.is_object());
  EXPECT_TRUE(last["hazards"].empty());
  EXPECT_EQ(last["counters"]["mma_flops"], 2 * 4 * 128 * 128 * 64);
  EXPECT_EQ(last["counters"]["ops"]["exp"].get<double>() >= 2 * 128 * 128, true);
  for (const Json& tensor : last["tensors"]) {
    const bool lse = tensor["name"] == "lse";
    const bool output = lse || tensor["name"] == "o";
    const int bytes = lse ? 2 * 128 * 4 : 2 * 128 * 64 * 2;
    EXPECT_EQ(tensor["bytes_read"], output ? 0 : bytes) << tensor;
    EXPECT_EQ(tensor["bytes_written"], output ? bytes : 0) << tensor;
  }
  EXPECT_GT(last["cycles"]["tensor core"].get<double>(), 0);
}

TEST(EmulatorRun, LaterRunsReplaceTheReport) {
  Case c;
  c.problem = problem(64, 64);
  const Json once = run_and_read(c, "seed=7"), again = run_and_read(c, "seed=7");
  EXPECT_EQ(once["counters"], again["counters"]);  // a seed repeats a run exactly
}

// A kernel that writes where no tensor is.
TEST(EmulatorExecutor, HazardsBecomeAStatus) {
  emu::EmulatorExecutor executor({});
  const gpu::LoadedKernel* kernel = nullptr;
  const gpu::Row* row = gpu::find_row("outside_rows_16bit");
  ASSERT_NE(row, nullptr);
  ASSERT_TRUE(executor.load(*row, 0, &kernel).ok());
  const int end = 0;
  std::vector<float> lse(8);
  kernels::OutsideRowsParams params = {};
  params.end = &end;
  params.total = 8;
  params.heads = 1;
  params.lse = lse.data();
  params.lse_stride = {0, 1, 8};
  gpu::Launch launch;
  launch.kernel = kernel;
  launch.grid = 1;
  launch.block = gpu::find_shape(row->name)->threads;
  launch.params = &params;
  launch.params_bytes = sizeof(params);
  const std::vector<gpu::Step> steps = {launch};

  emu::EmulatedRun good;
  good.memory.add("end", &end, sizeof(end), emu::TensorKind::kInput);
  good.memory.add("lse", lse.data(), 32, emu::TensorKind::kOutput);
  EXPECT_TRUE(executor.run(steps, &good).ok());
  for (const float x : lse) EXPECT_TRUE(std::isinf(x) && x < 0);

  emu::EmulatedRun bad;
  bad.memory.add("end", &end, sizeof(end), emu::TensorKind::kInput);
  bad.memory.add("lse", lse.data(), 28, emu::TensorKind::kOutput);
  const api::Status status = executor.run(steps, &bad);
  EXPECT_EQ(status.code, STROBE_INTERNAL);
  EXPECT_TRUE(holds(status.message, "out of bounds")) << status.message;
  EXPECT_TRUE(holds(status.message, "outside_rows.h")) << status.message;
  EXPECT_FALSE(Json::parse(executor.last_run())["hazards"].empty());
}

TEST(EmulatorExecutor, SetsAndCopiesOnlyRegisteredMemory) {
  emu::EmulatorExecutor executor({});
  std::vector<unsigned char> from(64, 7), to(64, 1);
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{65}}) {
    for (const gpu::Step& step : {gpu::Step(gpu::Memset{to.data(), 0, bytes}),
                                  gpu::Step(gpu::Copy{to.data(), from.data(), bytes}),
                                  gpu::Step(gpu::Memset{from.data(), 0, std::size_t{1}})}) {
      emu::EmulatedRun run;
      run.memory.add("from", from.data(), from.size(), emu::TensorKind::kInput);
      run.memory.add("to", to.data(), to.size(), emu::TensorKind::kOutput);
      const bool to_input = std::holds_alternative<gpu::Memset>(step) &&
                            std::get<gpu::Memset>(step).to == from.data();
      const std::vector<gpu::Step> steps = {step};
      EXPECT_EQ(executor.run(steps, &run).ok(), bytes == 64 && !to_input);
    }
  }
  EXPECT_EQ(to, from);
}

}  // namespace
}  // namespace strobe::harness
