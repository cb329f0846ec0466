// strobe check: outputs of a kernel against the float64 reference, for one problem or for random
// ones.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "harness/harness.h"
#include "problem_case.h"
#include "problem_options.h"

namespace strobe::tools {
namespace {

using harness::CheckReport;
using harness::CheckRow;
using harness::Outcome;

struct Options : CaseOptions {
  PlanOptions plan;
  std::uint64_t count = 100;
  bool json = false;
};

struct Tally {
  std::uint64_t passed = 0, failed = 0, refused = 0;
  nlohmann::ordered_json failures = nlohmann::ordered_json::array();
};

// Options that describe one problem, as they were given; empty: the problems are random.
std::vector<std::string> problem_options_given(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group() == kProblemGroup && option->count() > 0)
      names.push_back(option->get_name());
  }
  return names;
}

// Numbers that JSON lacks become strings.
nlohmann::json number(double value) {
  if (std::isfinite(value)) return value;
  return fmt::format("{}", value);
}

nlohmann::ordered_json to_json(const CheckRow& row) {
  return {{"tensor", row.tensor},
          {"ok", row.ok},
          {"fault", row.fault},
          {"error", number(row.error)},
          {"bound", number(row.bound)},
          {"worst",
           {{"index", row.worst},
            {"got", number(row.value)},
            {"want", number(row.ref)},
            {"naive", number(row.naive)}}}};
}

nlohmann::ordered_json to_json(const CheckReport& report, const std::string& command) {
  nlohmann::ordered_json failure = {{"case", report.description}, {"command", command}};
  if (!report.status.ok()) {
    failure["status"] = {{"code", report.status.code()},
                         {"argument", report.status.argument()},
                         {"message", report.status.message()}};
  }
  failure["outputs"] = nlohmann::ordered_json::array();
  for (const CheckRow& row : report.rows) failure["outputs"].push_back(to_json(row));
  return failure;
}

void print_failure(const CheckReport& report, const std::string& command) {
  fmt::print("FAILED  {}\n", report.description);
  if (!report.status.ok()) {
    fmt::print("  {}: {}\n", report.status.argument(), report.status.message());
  }
  for (const CheckRow& row : report.rows) {
    if (row.ok) continue;
    fmt::print("  {}: {}\n    error {:.4g}, bound {:.4g}\n", row.tensor, row.fault, row.error,
               row.bound);
    fmt::print("    worst element [{}]: got {:.9g}, want {:.9g}, naive {:.9g}\n",
               fmt::join(row.worst, ", "), row.value, row.ref, row.naive);
  }
  fmt::print("  again: {}\n", command);
}

// A kernel or override that does not exist would fail every case alike.
bool is_usage_fault(const Status& status) {
  return status.code() == STROBE_INVALID_ARGUMENT &&
         (status.argument() == "kernel" || status.argument() == "overrides" ||
          status.argument() == "threads");
}

void count_report(const CheckReport& report, const std::string& command, bool json, Tally* tally) {
  if (report.outcome == Outcome::passed) ++tally->passed;
  if (report.outcome == Outcome::refused) ++tally->refused;
  if (report.outcome != Outcome::failed) return;
  ++tally->failed;
  if (json) {
    tally->failures.push_back(to_json(report, command));
  } else {
    print_failure(report, command);
  }
}

int finish(const CLI::App& app, const Tally& tally, const nlohmann::ordered_json& head, bool json) {
  const std::uint64_t checked = tally.passed + tally.failed;
  if (json) {
    nlohmann::ordered_json summary = head;
    summary["passed"] = tally.passed;
    summary["failed"] = tally.failed;
    summary["refused"] = tally.refused;
    summary["failures"] = tally.failures;
    fmt::print("{}\n", summary.dump(2));
  } else {
    fmt::print("{} checked, {} within bound, {} failed, {} refused as unsupported\n", checked,
               tally.passed, tally.failed, tally.refused);
  }
  if (tally.failed > 0) return kOutOfBound;
  if (checked == 0) return report(app, kUsage, "nothing was checked: every problem was refused");
  return kOk;
}

int check_random(const CLI::App& app, const Options& options) {
  Tally tally;
  Progress progress("check");
  const std::string rest = command_line_of(app, {"--seed", "--count", "--json"});
  for (std::uint64_t i = 0; i < options.count; ++i) {
    const std::uint64_t seed = options.seed + i;
    progress.show(i + 1, options.count, fmt::format("seed {}, {} failed", seed, tally.failed));
    const CheckReport one = harness::check_case(harness::random_case(seed), options.plan);
    if (is_usage_fault(one.status)) return report(app, one.status);
    count_report(one, fmt::format("{} --seed {} --count 1", rest, seed), options.json, &tally);
  }
  return finish(app, tally, {{"seed", options.seed}, {"count", options.count}}, options.json);
}

int check_one(const CLI::App& app, Options& options) {
  complete_shape(&options.problem);
  harness::Case c;
  if (const std::string fault = make_case(options, &c); !fault.empty())
    return report(app, kUsage, fault);
  if (const Status status = c.problem.check(); !status.ok()) return report(app, status);
  const CheckReport one = harness::check_case(c, options.plan);
  if (is_usage_fault(one.status) || one.outcome == Outcome::refused) return report(app, one.status);
  Tally tally;
  count_report(one, command_line_of(app, {"--json"}), options.json, &tally);
  if (!options.json && one.outcome == Outcome::passed) fmt::print("{}", one.text());
  return finish(app, tally, {{"case", one.description}}, options.json);
}

int check(const CLI::App& app, Options& options) {
  const std::vector<std::string> given = problem_options_given(app);
  if (given.empty()) return check_random(app, options);
  for (const char* name : {"--seqlen-q", "--head-dim"}) {
    if (app.get_option(name)->count() == 0) {
      return report(
          app, kUsage,
          fmt::format("{}: not given, but {} describes one problem; random problems take only "
                      "--seed, --count and the plan",
                      name, fmt::join(given, ", ")));
    }
  }
  return check_one(app, options);
}

}  // namespace

Command add_check(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "check",
      "Compare a kernel with the float64 reference, on one problem or on seeded random ones.");
  auto options = std::make_shared<Options>();
  add_case_options(*app, options.get());
  app->add_option("--count", options->count, "random problems, from --seed upwards")
      ->capture_default_str();
  add_plan_options(*app, &options->plan, {"cpu", "cuda", "emulator"});
  app->add_flag("--json", options->json, "print JSON");
  app->footer(
      "The bound of each output is 2 max|naive - ref| + 4 eps max|ref|: docs/numerics.md. Every "
      "output and "
      "the memory around it hold NaN before the run.\n"
      "Exit code: 0 all within bound, 1 some not, 2 wrong use or nothing to check.\n\n"
      "Examples:\n"
      "  strobe check --seed 1000 --count 500 --kernel cpu\n"
      "  strobe check --seqlen-q 129 --head-dim 64 --heads 4 --kv-heads 2 --causal --op backward\n"
      "  strobe check --lengths varlen --seqlens-q 5,0,64 --seqlen-q 64 --head-dim 32");
  return {app, [app, options] { return check(*app, *options); }};
}

}  // namespace strobe::tools
