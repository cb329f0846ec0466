// strobe_plan: a resolved problem, the backend chosen for it and that backend's recipe. Immutable.
#ifndef STROBE_SRC_API_PLAN_H_
#define STROBE_SRC_API_PLAN_H_

#include <strobe/strobe.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/backend.h"
#include "api/status.h"

namespace strobe::api {

// A backend that was looked at and not taken.
struct Passed {
  std::string name;
  Status reason;  // STROBE_OK: it would have done, at a higher cost
  double cost = 0;
};

}  // namespace strobe::api

struct strobe_plan {
  strobe_problem problem;  // resolved
  strobe::api::Options options;
  const strobe::api::Backend* backend = nullptr;
  double cost = 0;  // estimated nanoseconds
  std::unique_ptr<strobe::api::PlannedKernel> kernel;
  std::vector<strobe::api::Passed> passed;
};

namespace strobe::api {

// The caller's options, checked as far as they concern no backend. Null: all defaults.
Status parse_options(const strobe_plan_options* user, Options* options);

// Chooses among `rows`, which tests replace: of the device's rows that support the problem (or the
// row that options.kernel names), the cheapest whose plan() succeeds. On failure the status has
// each row's refusal, one a line.
Status make_plan(const strobe_problem* problem, const strobe_plan_options* options,
                 std::span<const Backend* const> rows, std::unique_ptr<strobe_plan>* plan);

}  // namespace strobe::api

#endif  // STROBE_SRC_API_PLAN_H_
