#include "problem_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace strobe::tools {
namespace {

template <class E>
using Names = std::vector<std::pair<std::string, E>>;

const Names<DType> kDTypes = {{"f32", DType::f32},       {"bf16", DType::bf16},
                              {"f16", DType::f16},       {"f64", DType::f64},
                              {"f8e4m3", DType::f8e4m3}, {"f8e5m2", DType::f8e5m2}};

// An option whose values are words.
template <class E>
CLI::Option* add_words(CLI::App& app, const std::string& name, E& value, const Names<E>& names,
                       const std::string& help) {
  std::vector<std::string> words;
  for (const auto& [word, item] : names) words.push_back(word);
  return app.add_option(name, value, help)
      ->transform(CLI::CheckedTransformer(names).description(""))
      ->type_name(fmt::format("{}", fmt::join(words, "|")));
}

}  // namespace

void add_math_options(CLI::App& app, Problem* problem, Dropout* dropout) {
  const auto add = [&](CLI::Option* option) { return option->group(kProblemGroup); };
  Band* band = &problem->mask;
  CLI::Option* causal = add(app.add_flag_function(
      "--causal", [band](std::int64_t) { band->right = 0; },
      "key j is visible to query i iff j <= i + offset; the same as --window -1,0"));
  add(app.add_option_function<std::vector<std::int64_t>>(
          "--window",
          [band](const std::vector<std::int64_t>& window) {
            band->left = window[0];
            band->right = window[1];
          },
          "keys visible before and after the diagonal, inclusive counts; -1 = all"))
      ->type_name("LEFT,RIGHT")
      ->delimiter(',')
      ->expected(2)
      ->excludes(causal);
  add(app.add_option("--query-offset", band->offset,
                     "the diagonal of query i is key i + OFFSET; default seqlen_k - seqlen_q"))
      ->type_name("KEYS");
  add(app.add_option("--scale", problem->scale, "factor of q.k; default 1 / sqrt(head_dim)"))
      ->type_name("FACTOR");
  add(app.add_option("--softcap", problem->softcap, "s becomes CAP * tanh(s / CAP); 0 = off"))
      ->type_name("CAP")
      ->capture_default_str();
  add(app.add_option("--dropout", problem->dropout_p,
                     "probability of dropping an element of P, in [0, 1)"))
      ->type_name("P")
      ->capture_default_str();
  if (dropout) {
    add(app.add_option("--dropout-seed", dropout->seed, "key of the dropout pattern"))
        ->capture_default_str();
    add(app.add_option("--dropout-offset", dropout->offset, "counter of the dropout pattern"))
        ->capture_default_str();
  }
  add(add_words<Layout>(app, "--layout", problem->layout,
                        {{"bshd", Layout::bshd}, {"bhsd", Layout::bhsd}},
                        "order of batch, seqlen, heads and head_dim in memory; default bshd"));
  add(app.add_flag("--deterministic", problem->deterministic,
                   "backward gives the same bits every time, on a GPU too"));
}

void add_shape_options(CLI::App& app, Problem* problem) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->group(kProblemGroup);
  };
  add("--batch", problem->batch, "sequences")->capture_default_str();
  add("--heads", problem->heads, "query heads")->capture_default_str();
  add("--kv-heads", problem->kv_heads,
      "key and value heads, a divisor of --heads; default --heads");
  add("--seqlen-q", problem->seqlen_q, "queries per sequence, in rows");
  add("--seqlen-k", problem->seqlen_k, "keys per sequence, in rows; default --seqlen-q");
  add("--head-dim", problem->head_dim, "elements of a row of q and k");
  add("--head-dim-v", problem->head_dim_v, "elements of a row of v and o; default --head-dim");
  add("--total-q", problem->total_q, "varlen: rows of q; default batch * seqlen_q");
  add("--total-k", problem->total_k, "varlen: rows of k and v; default batch * seqlen_k");

  const auto words = [&](const char* name, auto& value, const auto& names, const char* help) {
    add_words(app, name, value, names, help)->group(kProblemGroup);
  };
  words("--dtype", problem->dtype, kDTypes, "element type; default f32");
  words("--op", problem->op, Names<Op>{{"forward", Op::forward}, {"backward", Op::backward}},
        "default forward");
  words("--lengths", problem->lengths,
        Names<Lengths>{
            {"dense", Lengths::dense}, {"padded", Lengths::padded}, {"varlen", Lengths::varlen}},
        "dense: all of one length; padded: in equal slots; varlen: packed one after the other");
  words("--alibi", problem->alibi,
        Names<Alibi>{{"none", Alibi::none},
                     {"per-head", Alibi::per_head},
                     {"per-batch-head", Alibi::per_batch_head}},
        "slopes that lower a score by its distance from the diagonal");
  words("--bias", problem->bias.dtype, kDTypes,
        "a full bias of this element type is added to the scores");
  app.add_flag("--sinks", problem->sinks, "one more logit per head joins the softmax")
      ->group(kProblemGroup);
  app.add_flag_function(
         "--bool-mask", [problem](std::int64_t) { problem->bool_mask.dtype = DType::boolean; },
         "a full boolean mask hides scores")
      ->group(kProblemGroup);
}

void add_plan_options(CLI::App& app, PlanOptions* options,
                      const std::vector<std::string>& devices) {
  constexpr const char* kGroup = "Plan";
  app.add_option("--kernel", options->kernel,
                 "take this kernel instead of the cheapest; `strobe info` lists them")
      ->type_name("NAME")
      ->group(kGroup);
  app.add_option("--overrides", options->overrides,
                 "settings of a kernel, for experiments; see `strobe info`")
      ->type_name("KEY=VALUE,...")
      ->group(kGroup);
  app.add_option("--threads", options->threads, "CPU threads; 0 = STROBE_NUM_THREADS, else all")
      ->capture_default_str()
      ->group(kGroup);
  Names<strobe_device_kind> kinds = {{"cpu", STROBE_DEVICE_CPU},
                                     {"cuda", STROBE_DEVICE_CUDA},
                                     {"emulator", STROBE_DEVICE_EMULATOR}};
  std::erase_if(kinds, [&](const auto& kind) {
    return std::find(devices.begin(), devices.end(), kind.first) == devices.end();
  });
  if (kinds.empty()) return;
  add_words(app, "--device", options->device.kind, kinds, "default cpu")->group(kGroup);
}

void complete_shape(Problem* problem) {
  if (problem->seqlen_k == 0) problem->seqlen_k = problem->seqlen_q;
  if (problem->lengths != Lengths::varlen) return;
  if (problem->total_q == 0) problem->total_q = problem->batch * problem->seqlen_q;
  if (problem->total_k == 0) problem->total_k = problem->batch * problem->seqlen_k;
}

std::string dtype_name(DType dtype) {
  for (const auto& [name, value] : kDTypes) {
    if (value == dtype) return name;
  }
  return "none";
}

std::string command_line_of(const CLI::App& app, const std::vector<std::string>& except) {
  std::string line = "strobe " + app.get_name();
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || std::find(except.begin(), except.end(), name) != except.end())
      continue;
    line += " " + name;
    const bool is_flag = option->get_items_expected_max() == 0;
    if (!is_flag) line += fmt::format(" {}", fmt::join(option->results(), ","));
  }
  return line;
}

}  // namespace strobe::tools
