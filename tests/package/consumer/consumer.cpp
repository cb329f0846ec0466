// One query over two equal keys: the output is the mean of the two values.
#include <cstdio>
#include <strobe/strobe.hpp>

int main() {
  const strobe::Problem problem{.seqlen_q = 1, .seqlen_k = 2, .head_dim = 4};
  const auto plan = strobe::make_plan(problem);
  if (!plan) {
    std::fprintf(stderr, "%s\n", plan.status().message().c_str());
    return 1;
  }
  alignas(16) const float q[4] = {1, 2, 3, 4};
  alignas(16) const float k[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  alignas(16) const float v[8] = {0, 2, 4, 6, 2, 4, 6, 8};
  alignas(16) float o[4] = {};
  const strobe::HostWorkspace workspace(*plan);
  const auto status = plan->run({.q = q, .k = k, .v = v, .o = o, .workspace = workspace});
  if (!status) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    return 1;
  }
  std::printf("strobe %s: %g %g %g %g\n", strobe::version().c_str(), o[0], o[1], o[2], o[3]);
  return o[0] == 1 && o[1] == 3 && o[2] == 5 && o[3] == 7 ? 0 : 1;
}
