// The demo: exact results on a real model's attention, and time and memory on one long sequence
// against standard attention. Exit code 0 if every error is within its bound.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <strobe/strobe.hpp>
#include <vector>

#include "fixture.h"
#include "long_sequence.h"
#include "standard_attention.h"

namespace strobe::demo {
namespace {

constexpr double kMebibyte = 1024 * 1024;

// What runs now, on one line that is wiped when it is done; only where a person is watching.
class Progress {
 public:
  explicit Progress(const std::string& text) : shown_(isatty(STDERR_FILENO) != 0) {
    if (shown_) std::fprintf(stderr, "%s ...", text.c_str());
  }
  ~Progress() {
    if (shown_) std::fprintf(stderr, "\r\033[K");
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  bool shown_;
};

const char* name_of(DType dtype) {
  return dtype == DType::f32 ? "f32" : dtype == DType::bf16 ? "bf16" : "f16";
}

// The output of one tensor over all layers that is closest to its bound, or beyond it.
struct Worst {
  harness::CheckRow row;
  bool ok = true;

  void add(const harness::CheckRow& other) {
    if (!other.ok) ok = false;
    if (row.tensor.empty() || other.error * row.bound > row.error * other.bound) row = other;
  }
};

// One line of the first table: every layer of the fixture in one dtype under one mask.
bool check_fixture(const std::vector<fixture::Attention>& fixtures, DType dtype, bool causal) {
  Worst o, lse;
  for (const fixture::Attention& attention : fixtures) {
    if (attention.causal != causal) continue;
    const Progress progress(attention.name + " " + name_of(dtype));
    const harness::Case c = fixture::make_case(attention, dtype);
    const harness::Inputs inputs = fixture::make_inputs(attention, dtype);
    Result<Plan> plan = make_plan(c.problem);
    if (!plan) {
      std::printf("%s: %s\n", attention.name.c_str(), plan.status().message().c_str());
      return false;
    }
    harness::Outputs outputs = harness::make_outputs(c);
    const Status status = harness::run(*plan, c, inputs, &outputs);
    if (!status) {
      std::printf("%s: %s\n", attention.name.c_str(), status.message().c_str());
      return false;
    }
    const harness::Naive naive = harness::naive(c, inputs, {});
    for (const harness::CheckRow& row : harness::compare(outputs, attention.expected, naive)) {
      (row.tensor == "o" ? o : lse).add(row);
    }
  }
  const bool ok = o.ok && lse.ok && !o.row.tensor.empty() && !lse.row.tensor.empty();
  std::printf("  %-5s %-7s %10.1e %10.1e %12.1e %10.1e   %s\n", name_of(dtype),
              causal ? "causal" : "full", o.row.error, o.row.bound, lse.row.error, lse.row.bound,
              ok ? "ok" : "WRONG");
  return ok;
}

bool real_activations(const std::string& directory) {
  auto fixtures = fixture::read(directory);
  if (!fixtures) {
    std::printf("%s\n", fixtures.error().message().c_str());
    return false;
  }
  std::printf(
      "Real activations: 6 layers of all-MiniLM-L6-v2, heads of 32, a passage of 256 tokens and a\n"
      "padded batch, against float64 results computed without Strobe; worst over the layers. The\n"
      "rounding of Q, K and V to bf16 or f16 counts as error, in the bound too\n\n"
      "  dtype mask       error O      bound    error LSE      bound\n");
  bool ok = true;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const bool causal : {false, true}) ok &= check_fixture(*fixtures, dtype, causal);
  }
  return ok;
}

// Two lines of the second table.
bool compare_long(const char* program, LongRun run) {
  Measurement standard;
  bool ok = true;
  for (const bool is_standard : {true, false}) {
    run.standard = is_standard;
    const char* who = is_standard ? "standard" : "Strobe";
    std::optional<Measurement> measured;
    std::string error;
    {
      const Progress progress(std::string(who) + " attention");
      measured = measure_in_child(program, run, &error);
    }
    if (!measured) {
      std::printf("  %-7s %-9s %s\n", run.causal ? "causal" : "full", who, error.c_str());
      return false;
    }
    if (is_standard) standard = *measured;
    std::printf("  %-7s %-9s %8.2f s %8.1fx %9.0f MiB %10.1e %10.1e   %s\n",
                run.causal ? "causal" : "full", who, measured->seconds,
                standard.seconds / measured->seconds, measured->peak_bytes / kMebibyte,
                measured->error, measured->bound, measured->ok() ? "ok" : "WRONG");
    ok &= measured->ok();
  }
  return ok;
}

bool long_sequence(const char* program, std::int64_t wanted, int threads) {
  const double available = available_memory();
  const std::int64_t seqlen = seqlen_for_memory(wanted, available);
  const double scores_bytes = 4.0 * static_cast<double>(seqlen) * static_cast<double>(seqlen);
  std::printf(
      "\nOne sequence of %lld tokens, 1 head of %lld, f32, %d threads. Standard attention stores\n"
      "all scores, %.0f MiB (its matrix products: %s); q, k, v and o take %.0f MiB\n",
      static_cast<long long>(seqlen), static_cast<long long>(kLongHeadDim), threads,
      scores_bytes / kMebibyte, choose_gemm().c_str(),
      4 * 4.0 * static_cast<double>(seqlen * kLongHeadDim) / kMebibyte);
  if (seqlen < wanted) {
    std::printf("(%lld tokens were wanted; %.0f MiB of memory are free)\n",
                static_cast<long long>(wanted), available / kMebibyte);
  }
  std::printf("\n  mask    attention     time  speed-up   peak memory      error      bound\n");
  bool ok = true;
  for (const bool causal : {true, false}) {
    ok &= compare_long(program, {.seqlen = seqlen, .causal = causal, .threads = threads});
  }
  return ok;
}

// Threads that a plan for the long sequence uses unless told otherwise.
int default_threads(std::int64_t seqlen) {
  Result<Plan> plan = make_plan({.seqlen_q = seqlen, .seqlen_k = seqlen, .head_dim = kLongHeadDim});
  return plan ? plan->facts().threads : 1;
}

int main(int argc, char** argv) {
  std::string directory = STROBE_MINILM_FIXTURE, child, mask = "causal";
  std::int64_t seqlen = 32768;
  int threads = 0;
  CLI::App app("Strobe against float64 and against standard attention");
  app.add_option("fixture", directory, "Directory of the fixture")->capture_default_str();
  app.add_option("--length", seqlen, "Tokens of the long sequence")
      ->check(CLI::Range(32, 1 << 17))
      ->capture_default_str();
  app.add_option("--threads", threads, "Threads of both; 0: as Strobe chooses")
      ->check(CLI::Range(0, 1024));
  app.add_option("--child", child)->group("");  // how the program calls itself
  app.add_option("--mask", mask)->group("");
  CLI11_PARSE(app, argc, argv);
  seqlen = seqlen / 32 * 32;
  if (threads == 0) threads = default_threads(seqlen);

  if (!child.empty()) {
    return child_main({.seqlen = seqlen,
                       .causal = mask == "causal",
                       .standard = child == "standard",
                       .threads = threads});
  }
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  std::printf("Strobe %s\n\n", version().c_str());
  bool ok = real_activations(directory);
  ok &= long_sequence(argv[0], seqlen, threads);
  std::printf("\n%s\n",
              ok ? "All errors are within their bounds." : "FAILED: see the lines above.");
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace strobe::demo

int main(int argc, char** argv) { return strobe::demo::main(argc, argv); }
