// What a backend is: one row {name, device, supports, plan, cost}. The registry tries the rows of
// the plan's device by cost and keeps every refusal. A backend sees only resolved problems: valid,
// all strides filled in, with no STROBE_AUTO left but query_offset of padded and varlen problems
// (support.h has the details). run() sees only checked arguments.
#ifndef STROBE_SRC_API_BACKEND_H_
#define STROBE_SRC_API_BACKEND_H_

#include <strobe/strobe.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/status.h"

namespace strobe::api {

// PlanOptions, parsed.
struct Options {
  strobe_device_kind device = STROBE_DEVICE_CPU;
  int device_index = 0;
  int threads = 0;                               // 0: the backend's default
  std::string kernel;                            // empty: the cheapest
  std::map<std::string, std::string> overrides;  // only keys that the backend lists
  std::optional<strobe_executor> executor;
};

// "name: value" lines of a plan's explanation, in order.
using Facts = std::vector<std::pair<std::string, std::string>>;

// A backend's part of a plan: immutable, safe to run from many threads at once.
class PlannedKernel {
 public:
  virtual ~PlannedKernel() = default;
  virtual std::size_t workspace_bytes() const = 0;  // 0 or a multiple of 256
  virtual int threads() const = 0;                  // 0 on a GPU
  virtual Facts facts() const = 0;                  // tiles, target, schedule, split ...
  virtual Status run(const strobe_run_args& args, void* stream) const = 0;
  // JSON of what the last run() to end has measured, for explain; empty: nothing. The emulator's
  // hazards and counts. All else about a plan is immutable.
  virtual std::string last_run() const { return {}; }
};

// One key that PlanOptions.overrides may hold for a backend.
struct OverrideKey {
  const char* name;
  const char* values;  // for people: "avx3 | avx2 | sse4 | scalar"
};

struct Backend {
  const char* name;
  strobe_device_kind device;
  std::span<const OverrideKey> override_keys;
  const char* note;  // for explain and info: what it is; "unverified on hardware" where that is so

  // OK, or why not, naming the argument, its value, the limit and the remedy.
  Status (*supports)(const strobe_problem& problem, const Options& options);
  // Relative cost on this device, in nanoseconds, of a problem that it supports. The lowest wins.
  double (*cost)(const strobe_problem& problem, const Options& options);
  // Override values that make no sense are refused here.
  Status (*plan)(const strobe_problem& problem, const Options& options,
                 std::unique_ptr<PlannedKernel>* planned);
};

// Every backend built into this library.
std::span<const Backend* const> backends();

}  // namespace strobe::api

#endif  // STROBE_SRC_API_BACKEND_H_
