// strobe bench: the suites of bench/presets, each case measured against its peer in this process.
#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <sstream>

#include "bench/fma_peak.h"
#include "bench/measure.h"
#include "bench/preset.h"
#include "bench/results.h"
#include "bench/workload.h"
#include "commands.h"
#include "problem_options.h"

namespace strobe::tools {
namespace {

using bench::BenchCase;
using bench::Preset;

enum class Format { table, csv, jsonl };

struct Options {
  std::string preset;  // name, or path of a .json file
  std::string suite;   // empty: the preset's
  std::string filter;
  std::string fixture = "tests/fixtures/minilm/passage.safetensors";
  std::string results;
  std::string commit;
  PlanOptions plan;
  int repeats = 7;
  int rounds = 1;
  bool list = false, csv = false, jsonl = false;

  Format format() const { return csv ? Format::csv : jsonl ? Format::jsonl : Format::table; }
};

// A case and its samples so far.
struct Row {
  std::string name, metric, peer, target;
  bench::Samples samples;
  std::string fault;  // why it was left out

  double value() const {
    return metric == "scaling" ? samples.ratio_of_best() : samples.best_a() * 1e-9;
  }
};

// Several threads are throttled after some 100 ms on small virtual machines: short bursts, long
// pauses.
constexpr double kBurstSeconds = 0.04;
constexpr double kPauseSeconds = 0.2;

// The preset of that name or path; empty suite: *fault says why not.
Preset find_preset(const std::string& name, std::string* fault) {
  std::string names;
  std::vector<std::string> texts;
  if (name.ends_with(".json")) {
    std::ifstream file(name);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file) {
      *fault = fmt::format("--preset: {} cannot be read", name);
      return {};
    }
    texts.push_back(text.str());
  } else {
    for (const char* text : bench::embedded_presets()) texts.emplace_back(text);
  }
  for (const std::string& text : texts) {
    auto parsed = bench::parse_preset(text);
    if (const auto* problem = std::get_if<std::string>(&parsed)) {
      *fault = fmt::format("--preset: {}: {}", name, *problem);
      return {};
    }
    Preset& preset = std::get<Preset>(parsed);
    if (preset.suite == name || name.ends_with(".json")) return std::move(preset);
    names += " " + preset.suite;
  }
  *fault =
      fmt::format("--preset: there is no '{}'; choose of:{}, or give a .json file", name, names);
  return {};
}

int list_presets() {
  for (const char* text : bench::embedded_presets()) {
    const auto parsed = bench::parse_preset(text);
    if (const auto* preset = std::get_if<Preset>(&parsed)) {
      fmt::print("{:<12} {:>3} cases  {}\n", preset->suite, preset->cases.size(), preset->about);
    }
  }
  return kOk;
}

// `calls` runs of a workload, for measure().
bench::Work work_of(const bench::Workload& workload, double flops, Status* failure) {
  return [&workload, flops, failure](int calls) {
    for (int i = 0; i < calls; ++i) {
      if (Status status = workload.run(); !status.ok()) *failure = status;
    }
    return flops * calls;
  };
}

// Adds one round of samples of a case to its row. Returns what went wrong.
std::string measure_case(const BenchCase& bench_case, const Options& options, Row* row) {
  PlanOptions plan = options.plan;
  plan.threads = bench_case.threads;
  auto made = bench::Workload::make(bench_case, plan, options.fixture);
  if (const auto* fault = std::get_if<std::string>(&made)) return *fault;
  const auto workload = std::move(std::get<0>(made));

  Status failure;
  const double flops = bench_case.flops();
  const bench::Work kernel = work_of(*workload, flops, &failure);
  bench::Contest contest;
  contest.repeats = options.repeats;
  bench::Samples& samples = row->samples;
  row->target = bench::target_of(workload->plan());
  if (bench_case.threads > 1) {
    contest.clock = bench::Clock::wall;
    contest.sample_seconds = kBurstSeconds;
    contest.pause_seconds = kPauseSeconds;
    plan.threads = 1;
    auto one = bench::Workload::make(bench_case, plan, options.fixture);
    if (const auto* fault = std::get_if<std::string>(&one)) return *fault;
    samples += bench::measure(kernel, work_of(*std::get<0>(one), flops, &failure), contest);
    row->metric = "scaling";
  } else {
    const bench::FmaTarget* target = bench::find_fma_target(row->target);
    if (!target) return fmt::format("there is no FMA loop for the target {}", row->target);
    if (row->target.empty()) row->target = target->name;
    constexpr std::int64_t kIterations = 1 << 16;
    const bench::Work peak = [&](int calls) { return target->run(kIterations * calls); };
    samples += bench::measure(kernel, peak, contest);
    row->metric = "gflops";
    row->peer = "fma_peak";
  }
  return failure.ok() ? "" : failure.message();
}

bench::ResultLine to_result(const Row& row, const Options& options, const Preset& preset) {
  bench::ResultLine line;
  line.suite = options.suite.empty() ? preset.suite : options.suite;
  line.bench_case = row.name;
  line.metric = row.metric;
  line.value = row.value();
  line.peer = row.peer;
  line.ratio = row.samples.ratio_of_best();
  line.machine = row.target.empty() ? bench::cpu_model()
                                    : fmt::format("{}, {}", bench::cpu_model(), row.target);
  line.clock_mhz = bench::cpu_clock_mhz();
  line.preset = preset.suite;
  line.commit = options.commit;
  line.date = bench::today();
  return line;
}

void print_header(Format format) {
  if (format == Format::csv)
    fmt::print("case,metric,value,peer,ratio_of_best,median_ratio,target\n");
  if (format == Format::table) {
    fmt::print("{:<34} {:>8} {:>9}  {:<9} {:>6} {:>7}\n", "case", "metric", "value", "peer",
               "ratio", "median");
  }
}

void print_row(const Row& row, const bench::ResultLine& line, Format format) {
  const std::string peer = row.peer.empty() ? "1 thread" : row.peer;
  if (format == Format::jsonl) fmt::print("{}\n", line.json());
  if (format == Format::csv) {
    fmt::print("{},{},{:.2f},{},{:.3f},{:.3f},{}\n", row.name, row.metric, row.value(), peer,
               row.samples.ratio_of_best(), row.samples.median_ratio(), row.target);
  }
  if (format == Format::table) {
    fmt::print("{:<34} {:>8} {:>9.2f}  {:<9} {:>6.3f} {:>7.3f}\n", row.name, row.metric,
               row.value(), peer, row.samples.ratio_of_best(), row.samples.median_ratio());
  }
  std::fflush(stdout);
}

int run_bench(const CLI::App& app, Options& options) {
  if (options.list) return list_presets();
  std::string fault;
  Preset preset = find_preset(options.preset, &fault);
  if (!fault.empty()) return report(app, kUsage, fault);
  if (options.commit.empty()) options.commit = bench::git_commit();

  std::vector<BenchCase> cases;
  for (BenchCase& bench_case : preset.cases) {
    if (options.plan.threads > 0) bench_case.threads = options.plan.threads;
    if (bench_case.name().find(options.filter) != std::string::npos) cases.push_back(bench_case);
  }
  if (cases.empty())
    return report(app, kUsage, fmt::format("--filter: no case holds '{}'", options.filter));

  std::vector<Row> rows(cases.size());
  std::vector<bench::ResultLine> lines;
  std::size_t failed = 0;
  print_header(options.format());
  for (int round = 1; round <= options.rounds; ++round) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      Row& row = rows[i];
      if (!row.fault.empty()) continue;
      row.name = cases[i].name();
      {
        Progress progress(fmt::format("bench, round {} of {}", round, options.rounds));
        progress.show(i + 1, cases.size(), row.name);
        row.fault = measure_case(cases[i], options, &row);
      }
      if (!row.fault.empty()) {
        ++failed;
        report(app, kFailed, fmt::format("{}: left out: {}", row.name, row.fault));
      } else if (round == options.rounds) {
        lines.push_back(to_result(row, options, preset));
        print_row(row, lines.back(), options.format());
      }
    }
  }
  if (!options.results.empty()) {
    if (const auto error = bench::merge_results(options.results, lines)) {
      return report(app, kFailed, "--results: " + *error);
    }
  }
  return failed == 0 ? kOk : kFailed;
}

}  // namespace

Command add_bench(CLI::App& parent) {
  CLI::App* app =
      parent.add_subcommand("bench", "Measure the cases of a suite against their peers.");
  auto options = std::make_shared<Options>();
  CLI::Option* list = app->add_flag("--list", options->list, "print the presets and stop");
  app->add_option("--preset", options->preset,
                  "suite of bench/presets, or the path of a .json file like those")
      ->type_name("NAME")
      ->excludes(list);
  app->add_option("--filter", options->filter, "only cases whose name holds this")
      ->type_name("TEXT");
  app->add_option("--repeats", options->repeats, "pairs of samples per case and round")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app->add_option("--rounds", options->rounds,
                  "times to go through all cases: on a machine with neighbours, samples far apart "
                  "in time find a quiet moment")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  CLI::Option* csv = app->add_flag("--csv", options->csv, "print comma-separated values");
  app->add_flag("--jsonl", options->jsonl, "print result lines, as in bench/results")
      ->excludes(csv);
  app->add_option("--results", options->results,
                  "put the results into this .jsonl file, replacing the same cases")
      ->type_name("FILE");
  app->add_option("--suite", options->suite, "suite that result lines name; default the preset's")
      ->type_name("NAME");
  app->add_option("--commit", options->commit, "commit that result lines name; default from git")
      ->type_name("HASH");
  app->add_option("--fixture", options->fixture, "tensors of the cases named -real")
      ->type_name("FILE")
      ->capture_default_str();
  add_plan_options(*app, &options->plan, {"cpu"});
  app->footer(
      "Speed counts the matmul operations on visible (query, key) pairs: 4 * head_dim per pair "
      "forward, 10 * "
      "head_dim backward, in 1e9 per second (gflops). The peer of one thread is fma_peak, a loop "
      "of "
      "multiply-adds in registers on the same SIMD target, measured in turns with the kernel; that "
      "of several "
      "threads is one thread (scaling). ratio: our best over the peer's best; median: of the "
      "ratios of "
      "neighbouring samples. Without --threads each case has its own, mostly 1.\n\n"
      "Examples:\n"
      "  strobe bench --list\n"
      "  strobe bench --preset cpu-fwd --filter d64\n"
      "  strobe bench --preset cpu-bwd --overrides target=avx2 --results "
      "bench/results/cpu-bwd.jsonl");
  return {app, [app, options] {
            if (!options->list && options->preset.empty()) {
              return report(*app, kUsage, "--preset: not given; --list prints what there is");
            }
            return run_bench(*app, *options);
          }};
}

}  // namespace strobe::tools
