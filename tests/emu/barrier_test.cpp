// Planted bugs in barriers and collectives: deadlocks, wrong counts, diverging lanes.
#include <cstdint>

#include "planted.h"

namespace strobe::STROBE_TARGET {
namespace {

using emu::HazardKind;
using planted::Args;
using planted::Shape;

template <bool kBroken>
void too_few(const Args&) {
  if (!kBroken || isa::thread_id() < 32) AT(0), isa::barrier_sync(1, 64);
}
TEST(EmuBarrier, TooFewArrivals) {
  EXPECT_CAUGHT(too_few, Shape{}, HazardKind::kDeadlock, {0},
                {"CTA 0 threads 0 to 31: waits for barrier 1", "threads 32 to 63: ended"});
}

template <bool kBroken>
void crossed(const Args&) {
  const bool first = isa::thread_id() < 32;
  if (first || !kBroken) {
    AT(0), isa::barrier_sync(1, 64);
    isa::barrier_sync(2, 64);
  } else {
    AT(1), isa::barrier_sync(2, 64);
    isa::barrier_sync(1, 64);
  }
}
TEST(EmuBarrier, TwoCrossed) {
  EXPECT_CAUGHT(crossed, Shape{}, HazardKind::kDeadlock, {0, 1},
                {"threads 0 to 31: waits for barrier 1", "threads 32 to 63: waits for barrier 2"});
}

template <bool kBroken>
void counts_differ(const Args&) {
  if (isa::thread_id() < 32) {
    AT(0), isa::barrier_sync(3, 96);
  } else {
    AT(1), isa::barrier_sync(3, kBroken ? 64 : 96);
  }
}
TEST(EmuBarrier, CountsDiffer) {
  Shape shape;
  shape.threads = 96;
  planted::expect_clean(counts_differ<false>, shape);
  for (std::uint64_t seed = 0; seed < planted::kSeeds; ++seed) {
    const auto report =
        planted::run(counts_differ<true>, shape, seed, emu::Landing::kRandom).report;
    ASSERT_FALSE(report.clean());
    // Those who agree may pass before the others come; then these wait for ever.
    if (report.hazards.front().kind == HazardKind::kDeadlock) continue;
    planted::expect_report(report, {HazardKind::kBarrier, {0, 1}, {"barrier 3", "64", "96"}},
                           "_test.cpp");
  }
}

template <bool kBroken>
void bad_count(const Args&) {
  AT(0), isa::barrier_sync(3, kBroken ? 48 : 64);
}
template <bool kBroken>
void bad_id(const Args&) {
  AT(0), isa::barrier_sync(kBroken ? 16 : 15, 64);
}
TEST(EmuBarrier, BadArguments) {
  EXPECT_CAUGHT(bad_count, Shape{}, HazardKind::kBarrier, {0}, {"barrier 3 of 48 threads"});
  EXPECT_CAUGHT(bad_id, Shape{}, HazardKind::kBarrier, {0}, {"barrier 16"});
}

template <bool kBroken>
void leftover(const Args&) {
  if (isa::thread_id() < 32) {
    AT(0), isa::barrier_arrive(2, 64);
  } else if (!kBroken) {
    isa::barrier_sync(2, 64);
  }
}
TEST(EmuBarrier, LeftoverArrivals) {
  EXPECT_CAUGHT(leftover, Shape{}, HazardKind::kLeak, {0},
                {"barrier 2 still holds 32 of 64 arrivals"});
}

// Arriving releases, syncing acquires; the reverse does not hold.
template <bool kBroken>
void one_way(const Args& p) {
  const u32 t = isa::thread_id();
  const u32 at = isa::shared_base() + 4 * (t % 32);
  if (t < 32) {
    if (!kBroken) isa::st_shared(at, t);
    isa::barrier_arrive(1, 64);
    if (kBroken) AT(0), isa::st_shared(at, t);
  } else {
    isa::barrier_sync(1, 64);
    AT(1), isa::st_global(p.out + t, isa::ld_shared<u32>(at));
  }
}
TEST(EmuBarrier, WriteAfterArrival) {
  planted::expect_clean(one_way<false>, {});
  for (std::uint64_t seed = 0; seed < planted::kSeeds; ++seed) {
    const auto r = planted::run(one_way<true>, {}, seed, emu::Landing::kRandom);
    ASSERT_FALSE(r.report.clean());
    const auto kind = r.report.hazards.front().kind;
    EXPECT_TRUE(kind == HazardKind::kRace || kind == HazardKind::kUninitialised);
  }
}

template <bool kBroken>
void ends_early(const Args&) {
  if (kBroken && isa::thread_id() == 7) return;
  AT(0), isa::cta_sync();
}
TEST(EmuBarrier, ThreadEndsBeforeIt) {
  EXPECT_CAUGHT(ends_early, Shape{}, HazardKind::kDeadlock, {0},
                {"threads 0 to 6: waits for barrier 0", "threads 7 to 7: ended",
                 "threads 8 to 63: waits for barrier 0"});
}

// ---- Collectives -------------------------------------------------------------------------------

template <bool kBroken>
void two_places(const Args&) {
  const u32 t = isa::thread_id();
  if (kBroken && t % 32 >= 16) {
    AT(0), isa::shfl_xor(t, 1);
  } else {
    AT(1), isa::shfl_xor(t, 1);
  }
}
template <bool kBroken>
void two_operations(const Args&) {
  const u32 t = isa::thread_id();
  if (kBroken && t % 32 == 3) {
    AT(0), isa::vote_any(true);
  } else {
    AT(1), isa::shfl_xor(t, 1);
  }
}
TEST(EmuCollective, Divergence) {
  EXPECT_CAUGHT(two_places, Shape{}, HazardKind::kDivergence, {0, 1}, {"shuffle", "warp "});
  EXPECT_CAUGHT(two_operations, Shape{}, HazardKind::kDivergence, {0, 1}, {"shuffle", "vote"});
}

template <bool kBroken>
void lane_leaves(const Args&) {
  const u32 t = isa::thread_id();
  if (kBroken && t == 45) return;
  AT(0), isa::shfl_xor(t, 1);
}
TEST(EmuCollective, LaneHasEnded) {
  EXPECT_CAUGHT(lane_leaves, Shape{}, HazardKind::kDivergence, {0}, {"shuffle", "warp 1"});
}

template <bool kBroken>
void outside_mask(const Args&) {
  const u32 t = isa::thread_id() % 32;
  AT(0), isa::warp_sync(kBroken || t < 16 ? 0x0000FFFFu : 0xFFFF0000u);
}
TEST(EmuCollective, LaneOutsideItsMask) {
  planted::expect_clean(outside_mask<false>, {});
  for (std::uint64_t seed = 0; seed < planted::kSeeds; ++seed) {
    const auto r = planted::run(outside_mask<true>, {}, seed, emu::Landing::kRandom);
    planted::expect_report(r.report, {HazardKind::kDivergence, {0}, {"not in its own mask"}},
                           "_test.cpp");
  }
}

template <bool kBroken>
void not_whole(const Args& p) {
  const u32x4 a = {};
  f32 d[4] = {};
  if (isa::thread_id() < 32 || kBroken) AT(0), isa::mma_m16n8k16<bf16>(d, a, 0, 0);
  isa::st_global(p.sum, d[0]);
}
TEST(EmuCollective, WarpOfFewerThan32) {
  Shape shape;
  shape.threads = 40;
  // The correct form writes one word from many threads, so it is not asked to be clean.
  const auto r = planted::run(not_whole<true>, shape, 1, emu::Landing::kRandom);
  ASSERT_FALSE(r.report.clean());
  shape.threads = 8;
  planted::expect_report(planted::run(not_whole<true>, shape, 1, emu::Landing::kRandom).report,
                         {HazardKind::kDivergence, {0}, {"mma.sync bf16: warp 0 has no 32 lanes"}},
                         "_test.cpp");
}

}  // namespace
}  // namespace strobe::STROBE_TARGET
