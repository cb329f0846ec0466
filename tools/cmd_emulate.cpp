// strobe emulate: one problem on the emulated GPU: hazards, error, and the counts of its work.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "harness/harness.h"
#include "problem_case.h"
#include "problem_options.h"

namespace strobe::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  CaseOptions one;
  PlanOptions plan;
  std::string format = "text";
};

std::string human(double value) {
  constexpr const char* kUnits[] = {"", " k", " M", " G", " T", " P"};
  std::size_t unit = 0;
  for (; value >= 10000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return unit == 0 ? fmt::format("{:.6g}", value) : fmt::format("{:.4g}{}", value, kUnits[unit]);
}

void print_row(const std::string& name, const std::string& value) {
  fmt::print("  {:<22}{:>14}\n", name, value);
}

void print_hazards(const Json& run) {
  const Json& hazards = run.at("hazards");
  fmt::print("hazards: {}\n", hazards.empty() ? "none" : fmt::format("{}", hazards.size()));
  for (const Json& h : hazards) {
    fmt::print("  {}: CTA {} thread {} at {}:{}\n    {}\n", h.at("kind").get<std::string>(),
               h.at("cta").get<int>(), h.at("thread").get<int>(), h.at("file").get<std::string>(),
               h.at("line").get<int>(), h.at("message").get<std::string>());
  }
}

void print_counts(const Json& run) {
  fmt::print("device memory, bytes    {:>14}{:>14}{:>14}\n", "read", "written", "reduced");
  for (const Json& t : run.at("tensors")) {
    fmt::print("  {:<22}{:>14}{:>14}{:>14}\n", t.at("name").get<std::string>(),
               human(t.at("bytes_read").get<double>()), human(t.at("bytes_written").get<double>()),
               human(t.at("bytes_reduced").get<double>()));
  }
  const Json& counters = run.at("counters");
  fmt::print("counts\n");
  for (const auto& [name, value] : counters.items()) {
    if (name != "ops") print_row(name, human(value.get<double>()));
  }
  fmt::print("operations outside matrix products\n");
  for (const auto& [name, value] : counters.at("ops").items()) {
    print_row(name, human(value.get<double>()));
  }
  fmt::print("cycles of each unit alone, {} at {:.4g} GHz, every SM busy\n",
             run.at("machine").get<std::string>(), run.at("clock_hz").get<double>() / 1e9);
  for (const auto& [unit, cycles] : run.at("cycles").items()) {
    print_row(unit, human(cycles.get<double>()));
  }
}

Json errors_json(const std::vector<harness::CheckRow>& rows) {
  Json errors = Json::array();
  for (const harness::CheckRow& row : rows) {
    errors.push_back({{"tensor", row.tensor},
                      {"ok", row.ok},
                      {"error", row.error},
                      {"bound", row.bound},
                      {"fault", row.fault}});
  }
  return errors;
}

int emulate(const CLI::App& app, Options& options) {
  for (const char* name : {"--seqlen-q", "--head-dim"}) {
    if (app.get_option(name)->count() == 0)
      return report(app, kUsage, fmt::format("{}: not given", name));
  }
  complete_shape(&options.one.problem);
  harness::Case c;
  if (const std::string fault = make_case(options.one, &c); !fault.empty())
    return report(app, kUsage, fault);
  options.plan.device = Device::emulator();
  const Result<Plan> plan = make_plan(c.problem, options.plan);
  if (!plan) return report(app, plan.status());
  const harness::CheckReport checked = harness::check_case(c, *plan, options.plan.device);
  const Json explained = Json::parse(plan->explain(STROBE_JSON), nullptr, false);
  if (explained.is_discarded() || !explained.contains("last_run"))
    return report(app, checked.status);
  const Json& run = explained.at("last_run");
  const bool clean = run.at("hazards").empty();
  if (options.format == "json") {
    Json json = {{"case", checked.description},
                 {"kernel", explained.at("plan").at("backend")},
                 {"facts", explained.at("plan").at("facts")},
                 {"outputs", errors_json(checked.rows)}};
    json.update(run);
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}", clean ? checked.text() : checked.description + "\n");
    for (const auto& [name, value] : explained.at("plan").at("facts").items()) {
      fmt::print("  {}: {}\n", name, value.get<std::string>());
    }
    print_hazards(run);
    if (clean) print_counts(run);
  }
  return clean && checked.outcome == harness::Outcome::passed ? kOk : kOutOfBound;
}

}  // namespace

Command add_emulate(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "emulate", "Run a problem on the emulated GPU: hazards, error and counts of its work.");
  auto options = std::make_shared<Options>();
  add_case_options(*app, &options->one);
  add_plan_options(*app, &options->plan, {});
  app->add_option("--format", options->format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app->footer(
      "Exit code: 0 no hazard and within the error bound, 1 not so, 2 wrong use.\n\n"
      "Examples:\n"
      "  strobe emulate --seqlen-q 256 --head-dim 64 --heads 2 --dtype bf16 --causal\n"
      "  strobe emulate --seqlen-q 129 --head-dim 128 --dtype f16 --overrides landing=late,seed=7\n"
      "  strobe emulate --seqlen-q 512 --head-dim 64 --dtype bf16 --format json");
  return {app, [app, options] { return emulate(*app, *options); }};
}

}  // namespace strobe::tools
