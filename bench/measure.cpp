#include "bench/measure.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <thread>

namespace strobe::bench {
namespace {

double now_seconds(Clock clock) {
  timespec time{};
  clock_gettime(clock == Clock::thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Seconds that work(calls) takes; *operations: what it did.
double time_of(const Work& work, int calls, Clock clock, double* operations) {
  const double start = now_seconds(clock);
  *operations = work(calls);
  return now_seconds(clock) - start;
}

// Calls that fill a sample.
int calls_per_sample(const Work& work, const Contest& contest) {
  double operations = 0;
  for (int calls = 1;; calls *= 2) {
    const double seconds = time_of(work, calls, contest.clock, &operations);
    if (seconds >= contest.sample_seconds / 2 || calls >= (1 << 28)) {
      const double wanted = calls * contest.sample_seconds / std::max(seconds, 1e-9);
      return std::max(1, static_cast<int>(std::ceil(std::min(wanted, 1e9))));
    }
  }
}

}  // namespace

Samples& Samples::operator+=(const Samples& more) {
  a.insert(a.end(), more.a.begin(), more.a.end());
  b.insert(b.end(), more.b.begin(), more.b.end());
  return *this;
}

double Samples::best_a() const { return *std::max_element(a.begin(), a.end()); }
double Samples::best_b() const { return *std::max_element(b.begin(), b.end()); }

double Samples::median_ratio() const {
  std::vector<double> ratios(a.size());
  std::transform(a.begin(), a.end(), b.begin(), ratios.begin(),
                 [](double x, double y) { return x / y; });
  const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
  std::nth_element(ratios.begin(), middle, ratios.end());
  return *middle;
}

Samples measure(const Work& a, const Work& b, const Contest& contest) {
  const int calls_a = calls_per_sample(a, contest);
  const int calls_b = calls_per_sample(b, contest);
  const auto sample = [&](const Work& work, int calls) {
    if (contest.pause_seconds > 0) {
      std::this_thread::sleep_for(std::chrono::duration<double>(contest.pause_seconds));
    }
    double operations = 0;
    const double seconds = time_of(work, calls, contest.clock, &operations);
    return operations / seconds;
  };
  Samples samples;
  for (int i = 0; i < contest.repeats; ++i) {
    samples.a.push_back(sample(a, calls_a));
    samples.b.push_back(sample(b, calls_b));
  }
  return samples;
}

}  // namespace strobe::bench
