// parse_options(): strobe_plan_options into Options.
#include <string>
#include <string_view>

#include "api/names.h"
#include "api/plan.h"
#include "api/refuse.h"

namespace strobe::api {
namespace {

constexpr int kMaxThreads = 4096;
constexpr std::size_t kShownChars = 80;  // of a caller's string in a message

std::string quoted(std::string_view text) {
  const bool cut = text.size() > kShownChars;
  return fmt::format("\"{}{}\"", text.substr(0, kShownChars), cut ? "..." : "");
}

Status check_device(const strobe_plan_options& o) {
  if (device_name(o.device) == nullptr) {
    return refuse("device", std::int64_t{o.device}, "that is none of its values",
                  "Pass STROBE_DEVICE_CPU, STROBE_DEVICE_CUDA or STROBE_DEVICE_EMULATOR");
  }
  const bool one_device = o.device != STROBE_DEVICE_CUDA;
  if (o.device_index < 0 || (one_device && o.device_index != 0)) {
    return refuse("device_index", std::int64_t{o.device_index},
                  one_device ? fmt::format("there is one {}, 0", device_name(o.device))
                             : std::string("devices count from 0"),
                  "Pass 0");
  }
  return {};
}

Status check_threads(const strobe_plan_options& o, Options* options) {
  if (o.threads < 0 || o.threads > kMaxThreads) {
    return refuse("threads", std::int64_t{o.threads},
                  fmt::format("it must be from 0 to {}", kMaxThreads),
                  "Pass 0 for STROBE_NUM_THREADS, else every CPU this process may use");
  }
  options->threads = o.threads;
  if (o.executor == nullptr) return {};
  const strobe_executor& executor = *o.executor;
  if (executor.parallel_for == nullptr) {
    return refuse("executor.parallel_for", std::string("NULL"), "an executor runs loops with it",
                  "Pass a function, or NULL for executor");
  }
  if (executor.threads < 1 || executor.threads > kMaxThreads) {
    return refuse("executor.threads", std::int64_t{executor.threads},
                  fmt::format("it must be from 1 to {}", kMaxThreads),
                  "Pass the number of workers, one more than the largest `worker`");
  }
  if (executor.reserved != 0) {
    return refuse("executor.reserved", std::int64_t{executor.reserved}, "it has no meaning yet",
                  "Pass 0");
  }
  if (o.threads != 0 && o.threads != executor.threads) {
    return refuse("threads", std::int64_t{o.threads},
                  fmt::format("the executor has {}", executor.threads), "Pass 0 with an executor");
  }
  options->threads = executor.threads;
  options->executor = executor;
  return {};
}

Status parse_overrides(std::string_view text, std::map<std::string, std::string>* overrides) {
  if (text.empty()) return {};
  std::size_t comma = 0;
  for (std::size_t begin = 0; comma != std::string_view::npos; begin = comma + 1) {
    comma = text.find(',', begin);
    const std::string_view pair =
        text.substr(begin, comma == std::string_view::npos ? comma : comma - begin);
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == pair.size()) {
      return invalid("overrides",
                     fmt::format("overrides holds {}, but each part must be key=value. Pass "
                                 "\"key=value,key=value\" without spaces.",
                                 quoted(pair)));
    }
    const std::string key(pair.substr(0, equals));
    if (!overrides->emplace(key, pair.substr(equals + 1)).second) {
      return invalid("overrides", fmt::format("overrides holds {} twice, but a key has one value. "
                                              "Pass it once.",
                                              quoted(key)));
    }
  }
  return {};
}

}  // namespace

Status parse_options(const strobe_plan_options* user, Options* options) {
  if (user == nullptr) return {};
  strobe_plan_options o;
  strobe_plan_options_init(&o);
  STROBE_RETURN_IF_REFUSED(copy_struct("options", "strobe_plan_options", user, &o));
  STROBE_RETURN_IF_REFUSED(check_device(o));
  options->device = o.device;
  options->device_index = o.device_index;
  STROBE_RETURN_IF_REFUSED(check_threads(o, options));
  if (o.kernel != nullptr) options->kernel = o.kernel;
  if (o.overrides != nullptr) {
    STROBE_RETURN_IF_REFUSED(parse_overrides(o.overrides, &options->overrides));
  }
  return {};
}

}  // namespace strobe::api
