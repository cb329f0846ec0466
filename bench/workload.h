// A benchmark case made ready to run: plan, tensors, workspace.
#ifndef STROBE_BENCH_WORKLOAD_H_
#define STROBE_BENCH_WORKLOAD_H_

#include <memory>
#include <string>
#include <strobe/strobe.hpp>
#include <variant>

#include "bench/preset.h"
#include "harness/harness.h"

namespace strobe::bench {

class Workload {
 public:
  // fixture: path of the .safetensors file whose tensors layer<i>.q, .k, .v serve DataKind::real.
  // Runs everything once. Returns what is wrong where that fails.
  static std::variant<std::unique_ptr<Workload>, std::string> make(const BenchCase& bench_case,
                                                                   const PlanOptions& options,
                                                                   const std::string& fixture);

  Status run() const { return plan_->run(*args_); }
  const Plan& plan() const { return *plan_; }

 private:
  Workload() = default;
  std::string prepare(const BenchCase& bench_case, const PlanOptions& options,
                      const std::string& fixture);

  harness::Case case_;
  harness::Inputs inputs_;
  harness::Outputs outputs_;
  std::unique_ptr<harness::Args> args_;
  std::unique_ptr<HostWorkspace> workspace_;
  std::unique_ptr<Plan> plan_;
};

// The SIMD target that a plan says it uses, "" where it says nothing.
std::string target_of(const Plan& plan);

}  // namespace strobe::bench

#endif  // STROBE_BENCH_WORKLOAD_H_
