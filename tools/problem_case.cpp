#include "problem_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <map>

#include "problem_options.h"

namespace strobe::tools {
namespace {

// Where each sequence of that length begins, if they lie one after the other.
std::vector<std::int32_t> begins(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> begins = {0};
  for (const std::int32_t length : lengths) begins.push_back(begins.back() + length);
  return begins;
}

}  // namespace

void add_case_options(CLI::App& app, CaseOptions* options) {
  app.add_option("--seed", options->seed,
                 "of the data; `check` without a problem: the first random problem")
      ->capture_default_str();
  add_shape_options(app, &options->problem);
  app.add_option("--seqlens-q", options->seqlens_q, "padded, varlen: rows of each sequence of q")
      ->delimiter(',')
      ->type_name("N,N,...")
      ->group(kProblemGroup);
  app.add_option("--seqlens-k", options->seqlens_k, "padded, varlen: of k; default --seqlens-q")
      ->delimiter(',')
      ->type_name("N,N,...")
      ->group(kProblemGroup);
  add_math_options(app, &options->problem, nullptr);
  app.add_flag("--dlse", options->dlse, "backward: with a gradient of lse")->group(kProblemGroup);
  std::map<std::string, harness::Data> kinds;
  std::vector<std::string> words;
  for (int i = 0; i < harness::kDataKinds; ++i) {
    const auto data = static_cast<harness::Data>(i);
    words.emplace_back(harness::name_of(data));
    kinds[words.back()] = data;
  }
  app.add_option("--data", options->data,
                 fmt::format("numbers of the tensors: {}", fmt::join(words, "|")))
      ->transform(CLI::CheckedTransformer(kinds).description(""))
      ->type_name("KIND")
      ->group(kProblemGroup);
}

std::string make_case(const CaseOptions& options, harness::Case* c) {
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

}  // namespace strobe::tools
