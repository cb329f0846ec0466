// strobe explain: the plan of a problem: kernel, tiles, FLOPs, bytes, memory, and why others
// refused.
#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "gpu/io_model.h"
#include "problem_options.h"

namespace strobe::tools {
namespace {

struct Options {
  Problem problem;
  PlanOptions plan;
  bool json = false;
  bool io = false;
  std::string gpu = "h200";
};

// The papers' comparison: operations, bytes and what they cost, of standard attention and of the
// FlashAttention kernels.
int explain_io(const CLI::App& app, const Options& options) {
  namespace io = gpu::io;
  const io::Gpu* gpu = io::find_gpu(options.gpu);
  if (!gpu) {
    std::string known;
    for (const io::Gpu& g : io::gpus()) known += fmt::format(" {}", g.name);
    return report(app, kUsage, fmt::format("--gpu: no {}; known are:{}", options.gpu, known));
  }
  const Problem& p = options.problem;
  if (p.head_dim > 128 || p.head_dim < 1 || p.seqlen_q < 1 || p.seqlen_k < 1 || p.batch < 1 ||
      p.heads < 1) {
    return report(app, kUsage,
                  "--io: needs lengths, batch and heads of at least 1 and a head_dim of 1 to 128");
  }
  const io::Shape shape = {.batch = p.batch,
                           .heads = p.heads,
                           .seqlen_q = p.seqlen_q,
                           .seqlen_k = p.seqlen_k,
                           .head_dim = p.head_dim};
  const bool backward = p.op == Op::backward;
  fmt::print("{}", options.json ? io::json(shape, gpu, backward) : io::table(shape, gpu, backward));
  return kOk;
}

int explain(const CLI::App& app, Options& options) {
  for (const char* name : {"--seqlen-q", "--head-dim"}) {
    if (app.get_option(name)->count() == 0)
      return report(app, kUsage, fmt::format("{}: not given", name));
  }
  complete_shape(&options.problem);
  if (options.io) return explain_io(app, options);
  const Result<Plan> plan = make_plan(options.problem, options.plan);
  if (!plan) return report(app, plan.status());
  fmt::print("{}\n", plan->explain(options.json ? STROBE_JSON : STROBE_TEXT));
  return kOk;
}

}  // namespace

Command add_explain(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "explain", "Print how a problem would be computed, and why not otherwise. Computes nothing.");
  auto options = std::make_shared<Options>();
  add_shape_options(*app, &options->problem);
  add_math_options(*app, &options->problem, nullptr);
  add_plan_options(*app, &options->plan, {"cpu", "cuda", "emulator"});
  app->add_flag("--json", options->json, "print JSON");
  app->add_flag("--io", options->io,
                "instead compare standard attention, FlashAttention-1 and 2: FLOPs, bytes, time; "
                "masks and grouped heads are ignored");
  app->add_option("--gpu", options->gpu,
                  "--io: the GPU whose roofline gives the time: h200, h100, a100")
      ->capture_default_str();
  app->footer(
      "Examples:\n"
      "  strobe explain --seqlen-q 4096 --head-dim 128 --heads 32 --kv-heads 8 --causal\n"
      "  strobe explain --seqlen-q 1 --seqlen-k 8192 --head-dim 64 --dtype bf16 --json\n"
      "  strobe explain --io --seqlen-q 4096 --head-dim 64 --batch 16 --heads 16 --gpu a100");
  return {app, [app, options] { return explain(*app, *options); }};
}

}  // namespace strobe::tools
