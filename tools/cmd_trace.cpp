// strobe trace: the online softmax of one row, block by block. docs/trace.md explains its output.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "commands.h"

namespace strobe::tools {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Options of the command; the defaults are the worked example of docs/trace.md. The second block
// raises the maximum, so that what was accumulated before must be rescaled; the third does not.
struct Options {
  std::vector<double> scores = {1, 2, 4, 3, 3, 0};
  std::vector<double> values;  // one per score; empty: 1, 2, 3 ...
  std::size_t block = 2;
};

// exp(from - to), the factor that moves a sum from one reference maximum to another. While no score
// but -inf was seen, both are -inf and the sums are 0 whatever the factor: exp(-inf + inf) would be
// NaN.
double rescale_factor(double from, double to) { return from == -kInf ? 0 : std::exp(from - to); }

struct Row {
  double m = -kInf;  // largest score so far
  double l = 0;      // sum of exp(score - m)
  double o = 0;      // sum of exp(score - m) * value
};

// "a + b + c" of numbers.
std::string sum_text(const std::vector<double>& terms) {
  std::vector<std::string> texts;
  for (const double term : terms) texts.push_back(fmt::format("{:.5g}", term));
  return fmt::format("{}", fmt::join(texts, " + "));
}

// One block of the recurrence, printed.
void step(std::span<const double> scores, std::span<const double> values, std::size_t number,
          Row* row) {
  const Row old = *row;
  row->m = std::max(old.m, *std::max_element(scores.begin(), scores.end()));
  const double rescale = rescale_factor(old.m, row->m);
  std::vector<double> p, pv;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    p.push_back(rescale_factor(scores[j], row->m));
    pv.push_back(p.back() * values[j]);
  }
  row->l = rescale * old.l;
  row->o = rescale * old.o;
  for (const double x : p) row->l += x;
  for (const double x : pv) row->o += x;

  fmt::print("\nblock {}: scores {:.5g}, values {:.5g}\n", number, fmt::join(scores, " "),
             fmt::join(values, " "));
  fmt::print("  m       = max({:.5g}, {:.5g}) = {:.5g}\n", old.m, fmt::join(scores, ", "), row->m);
  if (row->m == -kInf) {
    fmt::print("  rescale = 0 (every key so far is masked)\n");
  } else {
    fmt::print("  rescale = exp({:.5g} - {:.5g}) = {:.5g}\n", old.m, row->m, rescale);
  }
  fmt::print("  p       = exp(score - m) = {:.5g}\n", fmt::join(p, " "));
  fmt::print("  l       = {:.5g} * {:.5g} + {} = {:.5g}\n", rescale, old.l, sum_text(p), row->l);
  fmt::print("  O       = {:.5g} * {:.5g} + {} = {:.5g}\n", rescale, old.o, sum_text(pv), row->o);
}

// Softmax over the whole row at once: {O, LSE}.
std::pair<double, double> direct(const Options& options) {
  const double m = *std::max_element(options.scores.begin(), options.scores.end());
  double l = 0, o = 0;
  for (std::size_t j = 0; j < options.scores.size(); ++j) {
    const double p = rescale_factor(options.scores[j], m);
    l += p;
    o += p * options.values[j];
  }
  return l == 0 ? std::pair(0.0, -kInf) : std::pair(o / l, m + std::log(l));
}

// The power of ten that |a - b| / max(1, |b|) stays below, not less than 1e-15: so the text is the
// same whatever the last bit of the machine's exp().
double agreement(double a, double b) {
  if (a == b) return 1e-15;
  const double error = std::abs(a - b) / std::max(1.0, std::abs(b));
  return std::max(1e-15, std::pow(10, std::ceil(std::log10(error))));
}

int trace(const CLI::App& app, Options& options) {
  if (options.values.empty()) {
    for (std::size_t j = 0; j < options.scores.size(); ++j) options.values.push_back(1.0 + j);
  }
  if (options.values.size() != options.scores.size()) {
    return report(app, kUsage,
                  fmt::format("--values: {} values for {} scores; give one value per score",
                              options.values.size(), options.scores.size()));
  }
  for (const double score : options.scores) {
    if (std::isnan(score) || score == kInf) {
      return report(
          app, kUsage,
          fmt::format("--scores: {} has no softmax; give numbers, or -inf for a masked key",
                      score));
    }
  }

  Row row;
  fmt::print("start\n  m = {}, l = {}, O = {}\n", row.m, row.l, row.o);
  const std::span<const double> scores = options.scores, values = options.values;
  for (std::size_t j = 0; j < scores.size(); j += options.block) {
    const std::size_t count = std::min(options.block, scores.size() - j);
    step(scores.subspan(j, count), values.subspan(j, count), j / options.block + 1, &row);
  }
  const bool empty = row.l == 0;  // every key masked: O = 0, LSE = -inf by convention
  const double o = empty ? 0 : row.o / row.l;
  const double lse = empty ? -kInf : row.m + std::log(row.l);
  const auto [direct_o, direct_lse] = direct(options);
  fmt::print("\nend\n");
  fmt::print("  O   = {:.5g} / {:.5g} = {:.10g}\n", row.o, row.l, o);
  fmt::print("  LSE = {:.5g} + log({:.5g}) = {:.10g}\n", row.m, row.l, lse);
  fmt::print("\nsoftmax of the whole row at once\n");
  fmt::print("  O   = {:.10g}, equal within {:.0e}\n", direct_o, agreement(o, direct_o));
  fmt::print("  LSE = {:.10g}, equal within {:.0e}\n", direct_lse, agreement(lse, direct_lse));
  return kOk;
}

}  // namespace

Command add_trace(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "trace", "Print the online softmax of one row of scores, block by block.");
  auto options = std::make_shared<Options>();
  app->add_option("--scores", options->scores,
                  "scores of one query; -inf = a masked key; default 1,2,4,3,3,0")
      ->type_name("S,S,...")
      ->delimiter(',');
  app->add_option("--values", options->values, "value of each key, one number; default 1,2,3 ...")
      ->type_name("V,V,...")
      ->delimiter(',');
  app->add_option("--block", options->block, "keys per block")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app->footer(
      "Examples:\n"
      "  strobe trace\n"
      "  strobe trace --scores -inf,-inf,5,1 --block 2     the first block is masked\n"
      "docs/trace.md explains the output of the first.");
  return {app, [app, options] { return trace(*app, *options); }};
}

}  // namespace strobe::tools
