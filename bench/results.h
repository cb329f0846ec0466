// Results: one JSON line per case and metric, in bench/results/SUITE.jsonl (docs/cli.md says what
// each field means).
#ifndef STROBE_BENCH_RESULTS_H_
#define STROBE_BENCH_RESULTS_H_

#include <optional>
#include <string>
#include <vector>

namespace strobe::bench {

struct ResultLine {
  std::string suite;
  std::string bench_case;
  std::string metric;  // "gflops", "scaling"
  double value = 0;
  std::string peer;  // empty: no ratio
  double ratio = 0;  // our speed over the peer's, best of each
  std::string machine;
  std::optional<int> clock_mhz;
  std::string preset;
  std::string commit;
  std::string date;  // YYYY-MM-DD

  std::string json() const;  // without the end of the line
};

// Replaces the lines of the same case and metric in a file, in place, and appends the others.
// Returns what went wrong; the file is then as it was.
std::optional<std::string> merge_results(const std::string& path,
                                         const std::vector<ResultLine>& lines);

// What this machine calls itself, "" where unknown.
std::string cpu_model();
std::optional<int> cpu_clock_mhz();
// Short hash of the checkout in the working folder, with "+" after it where files differ from it;
// "" outside.
std::string git_commit();
std::string today();  // UTC

}  // namespace strobe::bench

#endif  // STROBE_BENCH_RESULTS_H_
