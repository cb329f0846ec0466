// strobe explain: the plan of a problem: kernel, tiles, FLOPs, bytes, memory, and why others
// refused.
#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "problem_options.h"

namespace strobe::tools {
namespace {

struct Options {
  Problem problem;
  PlanOptions plan;
  bool json = false;
};

int explain(const CLI::App& app, Options& options) {
  for (const char* name : {"--seqlen-q", "--head-dim"}) {
    if (app.get_option(name)->count() == 0)
      return report(app, kUsage, fmt::format("{}: not given", name));
  }
  complete_shape(&options.problem);
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
  app->footer(
      "Examples:\n"
      "  strobe explain --seqlen-q 4096 --head-dim 128 --heads 32 --kv-heads 8 --causal\n"
      "  strobe explain --seqlen-q 1 --seqlen-k 8192 --head-dim 64 --dtype bf16 --json");
  return {app, [app, options] { return explain(*app, *options); }};
}

}  // namespace strobe::tools
