// strobe check: outputs of a kernel against the float64 reference, for one problem or for random
// ones.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "harness/harness.h"
#include "problem_options.h"

namespace strobe::tools {
namespace {

using harness::CheckReport;
using harness::CheckRow;
using harness::Outcome;

struct Options {
  Problem problem;
  PlanOptions plan;
  std::vector<std::int32_t> seqlens_q, seqlens_k;
  bool dlse = false;
  harness::Data data = harness::Data::normal;
  std::uint64_t seed = 0;
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

// Where each sequence of that length begins, if they lie one after the other.
std::vector<std::int32_t> begins(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> begins = {0};
  for (const std::int32_t length : lengths) begins.push_back(begins.back() + length);
  return begins;
}

// The case that the options describe. Returns what is wrong with them.
std::string make_case(const Options& options, harness::Case* c) {
  Problem& problem = c->problem;
  problem = options.problem;
  c->data = options.data;
  c->seed = options.seed;
  c->dlse = options.dlse;
  c->dbias = problem.op == Op::backward && problem.bias.dtype != DType::none;
  c->dsinks = problem.op == Op::backward && problem.sinks;
  if (problem.lengths == Lengths::dense) {
    const bool any = !options.seqlens_q.empty() || !options.seqlens_k.empty();
    return any ? "--seqlens-q, --seqlens-k: need --lengths padded or varlen" : "";
  }
  c->seqlens_q = options.seqlens_q;
  c->seqlens_k = options.seqlens_k.empty() ? options.seqlens_q : options.seqlens_k;
  if (c->seqlens_q.empty() || c->seqlens_q.size() != c->seqlens_k.size()) {
    return "--seqlens-q, --seqlens-k: --lengths padded and varlen need one length per sequence";
  }
  for (const auto* lengths : {&c->seqlens_q, &c->seqlens_k}) {
    std::int64_t total = 0;
    for (const std::int32_t length : *lengths) {
      if (length < 0) return fmt::format("--seqlens-q, --seqlens-k: {} is negative", length);
      total += length;
    }
    if (total > std::numeric_limits<std::int32_t>::max())
      return "--seqlens-q, --seqlens-k: too many rows in all";
  }
  problem.batch = static_cast<std::int64_t>(c->seqlens_q.size());
  if (problem.lengths == Lengths::varlen) {
    c->cu_seqlens_q = begins(c->seqlens_q);
    c->cu_seqlens_k = begins(c->seqlens_k);
    problem.total_q = c->cu_seqlens_q.back();
    problem.total_k = c->cu_seqlens_k.back();
    c->seqlens_q.clear();  // the whole of each sequence
    c->seqlens_k.clear();
  }
  return "";
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
  app->add_option("--seed", options->seed,
                  "first random problem; with a problem given, seed of its data")
      ->capture_default_str();
  app->add_option("--count", options->count, "random problems, from --seed upwards")
      ->capture_default_str();
  add_shape_options(*app, &options->problem);
  app->add_option("--seqlens-q", options->seqlens_q, "padded, varlen: rows of each sequence of q")
      ->delimiter(',')
      ->type_name("N,N,...")
      ->group(kProblemGroup);
  app->add_option("--seqlens-k", options->seqlens_k, "padded, varlen: of k; default --seqlens-q")
      ->delimiter(',')
      ->type_name("N,N,...")
      ->group(kProblemGroup);
  add_math_options(*app, &options->problem, nullptr);
  app->add_flag("--dlse", options->dlse, "backward: with a gradient of lse")->group(kProblemGroup);
  std::map<std::string, harness::Data> kinds;
  std::vector<std::string> words;
  for (int i = 0; i < harness::kDataKinds; ++i) {
    const auto data = static_cast<harness::Data>(i);
    words.emplace_back(harness::name_of(data));
    kinds[words.back()] = data;
  }
  app->add_option("--data", options->data,
                  fmt::format("numbers of the tensors: {}", fmt::join(words, "|")))
      ->transform(CLI::CheckedTransformer(kinds).description(""))
      ->type_name("KIND")
      ->group(kProblemGroup);
  add_plan_options(*app, &options->plan, {"cpu", "emulator"});
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
