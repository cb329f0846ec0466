// Presets: suites of benchmark cases as data (bench/presets/*.json).
//
//     {"suite": "cpu-fwd", "about": "...", "op": "forward", "cases": [{"head_dim": [64, 128],
//     ...}]}
//
// Fields of a case; a list stands for one case per item, several lists for every combination:
//   head_dim, seqlen   integers
//   mask               "full" or "causal"
//   dtype              "f32" (default), "bf16", "f16"
//   batch, heads, kv_heads   integers; default 1, 1, heads
//   window             keys visible before the diagonal
//   softcap            number
//   alibi              true: slopes per head
//   lengths            varlen: the lengths of the sequences, the longest being seqlen. Not a list
//   of cases data               "normal" (default), "real" (activations of a fixture), "growing"
//   (growing maxima) threads            default 1. More: the case is compared with one thread
//   instead of the FMA loop
#ifndef STROBE_BENCH_PRESET_H_
#define STROBE_BENCH_PRESET_H_

#include <cstdint>
#include <optional>
#include <string>
#include <strobe/strobe.hpp>
#include <variant>
#include <vector>

namespace strobe::bench {

enum class DataKind { normal, real, growing };

struct BenchCase {
  Problem problem;                    // op included; varlen totals filled in
  std::vector<std::int32_t> lengths;  // varlen, else empty
  DataKind data = DataKind::normal;
  int threads = 1;

  // As docs/cli.md says: d64-s2048-causal-bf16 ...
  std::string name() const;
  // Matmul operations of one run on visible (query, key) pairs: 4 D per pair forward, 10 D
  // backward.
  double flops() const;
};

struct Preset {
  std::string suite;
  std::string about;
  std::vector<BenchCase> cases;
};

// The preset, or what is wrong with the text.
std::variant<Preset, std::string> parse_preset(const std::string& json_text);

// The texts of bench/presets, built into the program.
const std::vector<const char*>& embedded_presets();

}  // namespace strobe::bench

#endif  // STROBE_BENCH_PRESET_H_
