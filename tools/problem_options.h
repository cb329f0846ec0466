// Command-line options that describe a Problem and where it is planned, shared by the subcommands.
#ifndef STROBE_TOOLS_PROBLEM_OPTIONS_H_
#define STROBE_TOOLS_PROBLEM_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <strobe/strobe.hpp>
#include <vector>

namespace strobe::tools {

struct Dropout {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
};

// What is computed: --causal --window --query-offset --scale --softcap --dropout --layout ... With
// a place to put them, also the seed and offset of dropout, which a run takes.
void add_math_options(CLI::App& app, Problem* problem, Dropout* dropout);

// What only tensors would tell otherwise: --batch --heads --seqlen-q --head-dim --dtype --alibi
// --sinks ...
void add_shape_options(CLI::App& app, Problem* problem);

// Where and how: --kernel --overrides --threads, and --device out of `devices`, if there are any.
void add_plan_options(CLI::App& app, PlanOptions* options, const std::vector<std::string>& devices);

// Fills in what the options leave to their neighbours: seqlen_k from seqlen_q, the totals of
// varlen.
void complete_shape(Problem* problem);

// "f32", "bf16" ... as --dtype spells it; "none" where there is no such option.
std::string dtype_name(DType dtype);

// The line "strobe COMMAND --option value ..." as it was given, without the options in `except`.
std::string command_line_of(const CLI::App& app, const std::vector<std::string>& except = {});

// Group under which the options of add_math_options and add_shape_options stand.
inline constexpr const char* kProblemGroup = "Problem";

}  // namespace strobe::tools

#endif  // STROBE_TOOLS_PROBLEM_OPTIONS_H_
