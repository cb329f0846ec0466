// What the tests of the CPU backend share: each runs on every SIMD target of this machine.
#ifndef STROBE_TESTS_CPU_CPU_RUN_H_
#define STROBE_TESTS_CPU_CPU_RUN_H_

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cpu/cpu_backend.h"
#include "harness/harness.h"
#include "harness/shapes.h"

namespace strobe::harness {

constexpr std::string_view kSanitizers = STROBE_TEST_SANITIZERS;  // "address,undefined" or empty
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};

inline PlanOptions on_target(const std::string& target, int threads = 1) {
  return {.kernel = "cpu", .overrides = "target=" + target, .threads = threads};
}

// ---- Inputs

inline Case dense(std::int64_t seqlen_q, std::int64_t seqlen_k, std::int64_t head_dim,
                  DType dtype = DType::f32, Op op = Op::forward) {
  Case c;
  c.seed = 11;
  c.problem = {
      .seqlen_q = seqlen_q, .seqlen_k = seqlen_k, .head_dim = head_dim, .dtype = dtype, .op = op};
  return c;
}

inline Inputs inputs_of(const Case& c) {
  Result<Inputs> inputs = make_inputs(c);
  EXPECT_TRUE(inputs) << inputs.status().message();
  return inputs ? *inputs : Inputs();
}

// value(at) for every element.
template <class Value>
void assign(Tensor& t, Value value) {
  for_each(t.size, [&](const Index& at) { t.set(at, value(at)); });
}
inline void assign_all(Tensor& t, double value) {
  for_each(t.size, [&](const Index& at) { t.set(at, value); });
}

// ---- Runs

// Poisoned outputs, then a run; any failure, a damaged guard zone included, fails the test.
inline Outputs run_plan(const Case& c, const Inputs& inputs, const PlanOptions& options) {
  Outputs outputs = make_outputs(c);
  const Result<Plan> plan = make_plan(c.problem, options);
  EXPECT_TRUE(plan) << plan.status().message();
  if (!plan) return outputs;
  const Status status = run(*plan, c, inputs, &outputs);
  EXPECT_TRUE(status) << status.argument() << ": " << status.message();
  return outputs;
}

// The backward pass that follows a forward one: the same problem, its o and lse, and a given dout.
inline Inputs backward_inputs(const Inputs& forward_inputs, const Outputs& forward, Tensor dout) {
  Inputs inputs = forward_inputs;
  inputs.o = forward.o;
  inputs.lse = forward.lse;
  inputs.dout = std::move(dout);
  return inputs;
}

inline void expect_passes(const Case& c, const PlanOptions& options) {
  const CheckReport report = check_case(c, options);
  EXPECT_EQ(report.outcome, Outcome::passed) << report.text();
}

// ---- Comparison

inline std::string text(const Index& at) {
  std::string text = "[";
  for (std::int64_t index : at) text.append(std::to_string(index)).append(" ");
  text.back() = ']';
  return text;
}

inline bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

// The same bits at every index, whatever the strides. -0.0 is not 0.0 here.
inline testing::AssertionResult same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype != b.dtype || a.size != b.size) return testing::AssertionFailure() << "other shapes";
  testing::AssertionResult result = testing::AssertionSuccess();
  for_each(a.size, [&](const Index& at) {
    if (result && !same_bits(a.get(at), b.get(at))) {
      result = testing::AssertionFailure() << text(at) << ": " << a.get(at) << " and " << b.get(at);
    }
  });
  return result;
}

struct NamedOutput {
  const char* name;
  Tensor Outputs::*tensor;
};
constexpr NamedOutput kOutputs[] = {
    {"o", &Outputs::o},           {"lse", &Outputs::lse},     {"dq", &Outputs::dq},
    {"dk", &Outputs::dk},         {"dv", &Outputs::dv},       {"dbias", &Outputs::dbias},
    {"dsinks", &Outputs::dsinks}, {"probs", &Outputs::probs}, {"keep_mask", &Outputs::keep_mask}};

inline testing::AssertionResult same_bits(const Outputs& a, const Outputs& b) {
  for (const auto& [name, tensor] : kOutputs) {
    const testing::AssertionResult result = same_bits(a.*tensor, b.*tensor);
    if (!result) return testing::AssertionFailure() << name << result.message();
  }
  return testing::AssertionSuccess();
}

// Infinite values must be equal; finite ones within `tolerance`, and NaN is never near anything.
inline testing::AssertionResult all_near(const Tensor& t, double value, double tolerance) {
  testing::AssertionResult result = testing::AssertionSuccess();
  for_each(t.size, [&](const Index& at) {
    const double got = t.get(at);
    const bool near = std::isinf(value) ? got == value : std::fabs(got - value) <= tolerance;
    if (result && !near) {
      result = testing::AssertionFailure() << text(at) << ": " << got << ", not " << value;
    }
  });
  return result;
}
inline testing::AssertionResult all_equal(const Tensor& t, double value) {
  return all_near(t, value, 0);
}

inline testing::AssertionResult all_finite(const Outputs& out) {
  for (const auto& [name, tensor] : kOutputs) {
    testing::AssertionResult result = testing::AssertionSuccess();
    for_each((out.*tensor).size, [&](const Index& at) {
      const double got = (out.*tensor).get(at);
      if (result && !std::isfinite(got)) {
        result = testing::AssertionFailure() << name << text(at) << ": " << got;
      }
    });
    if (!result) return result;
  }
  return testing::AssertionSuccess();
}

// ---- The fixture

// The targets that this program tests; under a sanitizer, which is slow, the best one. Some
// compilers have a scalar target beside the others; its tests are a program of their own everywhere
// (CMakeLists.txt).
inline std::vector<std::string> tested_targets() {
  std::vector<std::string> targets = cpu::targets();
  if (targets.size() > 1) std::erase(targets, "scalar");
  if (!kSanitizers.empty()) targets.resize(1);
  return targets;
}

// A test for each SIMD target: TEST_P(Suite, ...) with STROBE_ON_EVERY_TARGET(Suite).
class OnTarget : public testing::TestWithParam<std::string> {
 protected:
  PlanOptions options(int threads = 1) const { return on_target(GetParam(), threads); }
  Outputs run_cpu(const Case& c, const Inputs& inputs) const {
    return run_plan(c, inputs, options());
  }
  void check(const Case& c) const { expect_passes(c, options()); }
};

#define STROBE_ON_EVERY_TARGET(suite)                                   \
  INSTANTIATE_TEST_SUITE_P(                                             \
      Cpu, suite, testing::ValuesIn(strobe::harness::tested_targets()), \
      [](const testing::TestParamInfo<std::string>& target) { return target.param; })

}  // namespace strobe::harness

#endif  // STROBE_TESTS_CPU_CPU_RUN_H_
