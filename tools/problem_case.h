// One problem with data, out of command-line options: for `strobe check` and `strobe emulate`.
#ifndef STROBE_TOOLS_PROBLEM_CASE_H_
#define STROBE_TOOLS_PROBLEM_CASE_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/harness.h"

namespace strobe::tools {

struct CaseOptions {
  Problem problem;
  std::vector<std::int32_t> seqlens_q, seqlens_k;
  bool dlse = false;
  harness::Data data = harness::Data::normal;
  std::uint64_t seed = 0;
};

// Shape and mathematics, lengths of the sequences, --dlse and --data; and --seed, of the data.
void add_case_options(CLI::App& app, CaseOptions* options);

// The case that the options describe, after complete_shape(). Returns what is wrong with them.
std::string make_case(const CaseOptions& options, harness::Case* c);

}  // namespace strobe::tools

#endif  // STROBE_TOOLS_PROBLEM_CASE_H_
