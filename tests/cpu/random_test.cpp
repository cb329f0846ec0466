// Cases drawn from everything that strobe.h can say, against the float64 reference.
#include <cstdint>
#include <cstdlib>

#include "cpu_run.h"

namespace strobe::harness {
namespace {

class RandomCases : public OnTarget {
 protected:
  // All seeds on the best target, fewer on the others, which share all but the vectors with it.
  std::uint64_t seeds() const {
    if (!kSanitizers.empty()) return 12;
    if (std::getenv("STROBE_SLOW")) return 2000;
    return GetParam() == tested_targets().front() && GetParam() != "scalar" ? 150 : 40;
  }
};

TEST_P(RandomCases, AgreeWithTheReference) {
  for (std::uint64_t seed = 0; seed < seeds(); ++seed) check(random_case(seed));
}

// Small tiles, so that every boundary between blocks, chunks and tiles is met.
TEST_P(RandomCases, AgreeInSmallTiles) {
  for (std::uint64_t seed = 3000; seed < 3000 + seeds() / 4; ++seed) {
    PlanOptions tiled = options(2);
    tiled.overrides +=
        seed % 2 ? ",q_tile=64,kv_block=12,kv_chunk=12" : ",q_tile=128,kv_block=36,kv_chunk=72";
    expect_passes(random_case(seed), tiled);
  }
}

STROBE_ON_EVERY_TARGET(RandomCases);

}  // namespace
}  // namespace strobe::harness
