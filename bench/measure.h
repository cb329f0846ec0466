// Timing of two things against each other.
#ifndef STROBE_BENCH_MEASURE_H_
#define STROBE_BENCH_MEASURE_H_

#include <functional>
#include <vector>

namespace strobe::bench {

enum class Clock {
  thread,  // CPU time of the calling thread: what neighbours steal does not count. One thread only
  wall
};

// Does some work `calls` times and returns the operations done.
using Work = std::function<double(int calls)>;

struct Contest {
  Clock clock = Clock::thread;
  int repeats = 7;               // pairs A B
  double sample_seconds = 0.03;  // least length of a sample: what the calls are counted for
  double pause_seconds = 0;      // sleep before each sample
};

// Operations per second of each sample, in order: a[i] and b[i] were measured one after the other.
struct Samples {
  std::vector<double> a, b;

  Samples& operator+=(const Samples& more);

  double best_a() const;
  double best_b() const;
  double ratio_of_best() const { return best_a() / best_b(); }
  double median_ratio() const;  // of a[i] / b[i]
};

// Measures A B A B ... A warm-up of both comes first and counts the calls per sample.
Samples measure(const Work& a, const Work& b, const Contest& contest);

}  // namespace strobe::bench

#endif  // STROBE_BENCH_MEASURE_H_
