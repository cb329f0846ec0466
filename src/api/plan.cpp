#include "api/plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "api/names.h"
#include "api/refuse.h"
#include "api/support.h"

namespace strobe::api {
namespace {

struct Candidate {
  const Backend* backend;
  double cost;
};

std::string join(const std::vector<std::string>& items) {
  return fmt::format("{}", fmt::join(items, ", "));
}

// The rows of the device, and of the kernel if one is named.
Status select_rows(const Options& options, std::span<const Backend* const> rows,
                   std::vector<const Backend*>* selected) {
  std::vector<std::string> names;
  for (const Backend* row : rows) {
    if (row->device != options.device) continue;
    names.push_back(row->name);
    if (options.kernel.empty() || options.kernel == row->name) selected->push_back(row);
  }
  if (names.empty()) {
    return unsupported("device", fmt::format("device is {}, but this build has no backend for it. "
                                             "Pass STROBE_DEVICE_CPU, or use a build that has one.",
                                             device_name(options.device)));
  }
  if (selected->empty()) {
    return refuse(
        "kernel", fmt::format("\"{}\"", options.kernel.substr(0, 80)),
        fmt::format("the kernels of device {} are {}", device_name(options.device), join(names)),
        "Pass one of them, or NULL for the cheapest");
  }
  return {};
}

Status check_override_keys(const Backend& backend, const Options& options) {
  for (const auto& entry : options.overrides) {
    const std::string& key = entry.first;
    const auto known = std::find_if(backend.override_keys.begin(), backend.override_keys.end(),
                                    [&](const OverrideKey& k) { return key == k.name; });
    if (known != backend.override_keys.end()) continue;
    std::vector<std::string> names;
    for (const OverrideKey& k : backend.override_keys) names.push_back(k.name);
    return invalid(
        "overrides",
        fmt::format("overrides holds \"{}\", but {} {}. Pass keys of the kernel, and its "
                    "name in `kernel`.",
                    key.substr(0, 80), backend.name,
                    names.empty() ? std::string("has no keys")
                                  : fmt::format("has the keys {}", join(names))));
  }
  return {};
}

// One status out of all refusals. A single one stands as it is.
Status all_refusals(const std::vector<Passed>& passed) {
  if (passed.size() == 1) return passed.front().reason;
  Status status = passed.front().reason;
  status.message.clear();
  for (const Passed& p : passed) {
    // A problem that some backend merely lacks is not an invalid one.
    if (p.reason.code == STROBE_UNSUPPORTED) status.code = STROBE_UNSUPPORTED;
    status.message +=
        fmt::format("{}{}: {}", status.message.empty() ? "" : "\n", p.name, p.reason.message);
  }
  return status;
}

}  // namespace

Status make_plan(const strobe_problem* problem, const strobe_plan_options* options,
                 std::span<const Backend* const> rows, std::unique_ptr<strobe_plan>* plan) {
  auto made = std::make_unique<strobe_plan>();
  STROBE_RETURN_IF_REFUSED(resolve(problem, &made->problem));
  STROBE_RETURN_IF_REFUSED(parse_options(options, &made->options));
  std::vector<const Backend*> selected;
  STROBE_RETURN_IF_REFUSED(select_rows(made->options, rows, &selected));

  std::vector<Candidate> candidates;
  for (const Backend* backend : selected) {
    Status status = check_override_keys(*backend, made->options);
    if (status.ok()) status = backend->supports(made->problem, made->options);
    if (status.ok()) {
      candidates.push_back({backend, backend->cost(made->problem, made->options)});
    } else {
      made->passed.push_back({backend->name, std::move(status)});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.cost < b.cost; });
  for (const Candidate& c : candidates) {
    if (made->kernel != nullptr) {
      made->passed.push_back({c.backend->name, {}, c.cost});
      continue;
    }
    Status status = c.backend->plan(made->problem, made->options, &made->kernel);
    if (status.code == STROBE_OUT_OF_MEMORY || status.code == STROBE_INTERNAL) return status;
    if (status.ok()) {
      made->backend = c.backend;
      made->cost = c.cost;
    } else {
      made->kernel.reset();
      made->passed.push_back({c.backend->name, std::move(status)});
    }
  }
  if (made->kernel == nullptr) return all_refusals(made->passed);
  *plan = std::move(made);
  return {};
}

}  // namespace strobe::api
