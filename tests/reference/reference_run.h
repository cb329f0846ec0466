// What the tests of the reference share.
#ifndef STROBE_TESTS_REFERENCE_REFERENCE_RUN_H_
#define STROBE_TESTS_REFERENCE_REFERENCE_RUN_H_

#include <gtest/gtest.h>

#include "harness/harness.h"

namespace strobe::harness {

inline Outputs run_reference(const Case& c, const Inputs& inputs) {
  Outputs outputs = make_outputs(c);
  const Result<Plan> plan = make_plan(c.problem, {.kernel = "reference"});
  EXPECT_TRUE(plan) << plan.status().message();
  if (!plan) return outputs;
  const Status status = run(*plan, c, inputs, &outputs);
  EXPECT_TRUE(status) << status.argument() << ": " << status.message();
  return outputs;
}

inline Inputs inputs_of(const Case& c) {
  Result<Inputs> inputs = make_inputs(c);
  EXPECT_TRUE(inputs) << inputs.status().message();
  return inputs ? *inputs : Inputs();
}

// value(at) for every element of a contiguous or strided tensor.
template <class Value>
void assign(Tensor& t, Value value) {
  Index at;
  for (at[0] = 0; at[0] < t.size[0]; ++at[0]) {
    for (at[1] = 0; at[1] < t.size[1]; ++at[1]) {
      for (at[2] = 0; at[2] < t.size[2]; ++at[2]) {
        for (at[3] = 0; at[3] < t.size[3]; ++at[3]) t.set(at, value(at));
      }
    }
  }
}

inline void assign_all(Tensor& t, double value) {
  assign(t, [value](const Index&) { return value; });
}

template <class Use>
void for_each_index(const Tensor& t, Use use) {
  Tensor copy(DType::boolean, t.size);
  assign(copy, [&use](const Index& at) {
    use(at);
    return 0;
  });
}

}  // namespace strobe::harness

#endif  // STROBE_TESTS_REFERENCE_REFERENCE_RUN_H_
