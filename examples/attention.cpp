// Causal grouped-query attention in a few lines: problem, plan, run.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <strobe/strobe.hpp>
#include <vector>

int main() {
  const strobe::Problem problem{.heads = 8,
                                .kv_heads = 2,
                                .seqlen_q = 512,
                                .seqlen_k = 512,
                                .head_dim = 64,
                                .mask = strobe::Band::causal()};
  strobe::Result<strobe::Plan> plan = strobe::make_plan(problem);
  if (!plan) {
    std::fprintf(stderr, "no plan: %s\n", plan.status().message().c_str());
    return EXIT_FAILURE;
  }

  // [batch, seqlen, heads, head_dim]: the default layout.
  std::vector<float> q(512 * 8 * 64), k(512 * 2 * 64), v(k.size()), o(q.size()), lse(8 * 512);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = std::sin(0.37f * static_cast<float>(i));
  for (std::size_t i = 0; i < k.size(); ++i) k[i] = std::cos(0.53f * static_cast<float>(i));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = std::sin(0.71f * static_cast<float>(i));

  strobe::HostWorkspace workspace(*plan);
  const strobe::Status status = plan->run({.q = q.data(),
                                           .k = k.data(),
                                           .v = v.data(),
                                           .o = o.data(),
                                           .lse = lse.data(),
                                           .workspace = workspace});
  if (!status) {
    std::fprintf(stderr, "%s: %s\n", status.argument().c_str(), status.message().c_str());
    return EXIT_FAILURE;
  }

  double sum = 0;
  for (float x : o) sum += x;
  std::printf("sum of o = %.4f, lse of the last query = %.4f\n", sum, lse.back());
  // Query 0 sees key 0 alone, so its output is that key's value.
  return std::abs(o[1] - v[1]) < 1e-6f ? EXIT_SUCCESS : EXIT_FAILURE;
}
