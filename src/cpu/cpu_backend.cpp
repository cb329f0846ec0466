#include "cpu/cpu_backend.h"

namespace strobe::cpu {
namespace {

api::Status supports(const strobe_problem&, const api::Options&) {
  return api::unsupported("kernel", "cpu: not built yet. Use kernel = \"reference\".");
}
double cost(const strobe_problem&, const api::Options&) { return 0; }
api::Status plan(const strobe_problem& problem, const api::Options& options,
                 std::unique_ptr<api::PlannedKernel>*) {
  return supports(problem, options);
}

}  // namespace

std::vector<std::string> targets() { return {"scalar"}; }

const api::Backend kBackend = {"cpu", STROBE_DEVICE_CPU, {}, "SIMD on the host", supports, cost,
                               plan};

}  // namespace strobe::cpu
