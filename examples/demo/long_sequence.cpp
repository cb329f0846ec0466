#include "long_sequence.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <strobe/strobe.hpp>
#include <vector>

#include "standard_attention.h"

namespace strobe::demo {
namespace {

constexpr std::int64_t kDim = kLongHeadDim;
constexpr int kSampledRows = 32;

struct Inputs {
  std::vector<float> q, k, v;  // [seqlen, kDim]
};

Inputs make_inputs(std::int64_t seqlen) {
  std::mt19937_64 random(20220527);
  std::normal_distribution<float> normal;
  Inputs inputs;
  for (std::vector<float>* x : {&inputs.q, &inputs.k, &inputs.v}) {
    x->resize(static_cast<std::size_t>(seqlen * kDim));
    for (float& value : *x) value = normal(random);
  }
  return inputs;
}

// Attention of one row, done plainly in T.
template <class T>
std::vector<T> attention_row(const Inputs& inputs, std::int64_t i, std::int64_t keys) {
  const T scale = 1 / std::sqrt(T{kDim});
  std::vector<T> p(static_cast<std::size_t>(keys));
  T top = -std::numeric_limits<T>::infinity(), sum = 0;
  for (std::int64_t j = 0; j < keys; ++j) {
    T s = 0;
    for (std::int64_t c = 0; c < kDim; ++c) {
      s += T{inputs.q[i * kDim + c]} * T{inputs.k[j * kDim + c]};
    }
    p[j] = scale * s;
    top = std::max(top, p[j]);
  }
  for (T& x : p) sum += x = std::exp(x - top);
  std::vector<T> o(kDim);
  for (std::int64_t j = 0; j < keys; ++j) {
    for (std::int64_t c = 0; c < kDim; ++c) o[c] += p[j] / sum * T{inputs.v[j * kDim + c]};
  }
  return o;
}

// Fills in error and bound from rows spread over the sequence, its first and last included.
void compare(const LongRun& run, const Inputs& inputs, const std::vector<float>& o,
             Measurement* result) {
  double naive_error = 0, largest = 0;
  for (int n = 0; n < kSampledRows; ++n) {
    const std::int64_t i = (run.seqlen - 1) * n / (kSampledRows - 1);
    const std::int64_t keys = run.causal ? i + 1 : run.seqlen;
    const std::vector<double> reference = attention_row<double>(inputs, i, keys);
    const std::vector<float> naive = attention_row<float>(inputs, i, keys);
    for (std::int64_t c = 0; c < kDim; ++c) {
      const double error = std::abs(o[i * kDim + c] - reference[c]);
      if (!(error <= result->error)) result->error = error;  // NaN counts
      naive_error = std::max(naive_error, std::abs(naive[c] - reference[c]));
      largest = std::max(largest, std::abs(reference[c]));
    }
  }
  result->bound = 2 * naive_error + 4 * std::numeric_limits<float>::epsilon() * largest;
}

// The best of at least two runs, more while they are short.
double best_seconds(const std::function<void()>& f) {
  using Clock = std::chrono::steady_clock;
  double best = std::numeric_limits<double>::infinity(), total = 0;
  for (int n = 0; n < 2 || (n < 5 && total < 2); ++n) {
    const Clock::time_point start = Clock::now();
    f();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

double run_standard(const LongRun& run, const Inputs& inputs, std::vector<float>* o) {
  // Not a vector: its zeroing would be memory traffic that standard attention does not need.
  const auto elements = static_cast<std::size_t>(run.seqlen) * static_cast<std::size_t>(run.seqlen);
  std::unique_ptr<float[]> scores(new float[elements]);
  return best_seconds([&] {
    standard_attention(run.seqlen, kDim, run.causal, run.threads, inputs.q.data(), inputs.k.data(),
                       inputs.v.data(), scores.get(), o->data());
  });
}

// On failure *status says why.
double run_strobe(const LongRun& run, const Inputs& inputs, std::vector<float>* o, Status* status) {
  const Problem problem{.seqlen_q = run.seqlen,
                        .seqlen_k = run.seqlen,
                        .head_dim = kDim,
                        .mask = run.causal ? Band::causal() : Band::full()};
  Result<Plan> plan = make_plan(problem, {.threads = run.threads});
  *status = plan.status();
  if (!plan) return 0;
  HostWorkspace workspace(*plan);
  return best_seconds([&] {
    const Status ran = plan->run({.q = inputs.q.data(),
                                  .k = inputs.k.data(),
                                  .v = inputs.v.data(),
                                  .o = o->data(),
                                  .workspace = workspace});
    if (!ran) *status = ran;
  });
}

}  // namespace

int child_main(const LongRun& run) {
  const Inputs inputs = make_inputs(run.seqlen);
  std::vector<float> o(inputs.q.size(), std::nanf(""));
  Measurement result;
  Status status;
  result.seconds =
      run.standard ? run_standard(run, inputs, &o) : run_strobe(run, inputs, &o, &status);
  if (!status) {
    std::fprintf(stderr, "%s: %s\n", status.argument().c_str(), status.message().c_str());
    return EXIT_FAILURE;
  }
  compare(run, inputs, o, &result);
  return std::fwrite(&result, sizeof(result), 1, stdout) == 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace strobe::demo
