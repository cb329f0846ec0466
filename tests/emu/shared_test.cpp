// Planted bugs in shared memory: races, copies, bounds.
#include <cstdint>

#include "planted.h"

namespace strobe::STROBE_TARGET {
namespace {

using emu::HazardKind;
using planted::Args;
using planted::Shape;

u32 word(u32 i) { return isa::shared_base() + 4 * i; }

// ---- Threads -----------------------------------------------------------------------------------

template <bool kBroken>
void read_after_write(const Args& p) {
  const u32 t = isa::thread_id();
  AT(0), isa::st_shared(word(t), t);
  if (!kBroken) isa::cta_sync();
  AT(1), isa::st_global(p.out + t, isa::ld_shared<u32>(word((t + 32) % 64)));
}
TEST(EmuShared, MissingCtaSyncBeforeRead) {
  // Whoever reads first finds nothing yet or an unordered write.
  for (const emu::Landing landing : planted::kLandings) {
    for (std::uint64_t seed = 0; seed < planted::kSeeds; ++seed) {
      const auto report = planted::run(read_after_write<true>, {}, seed, landing).report;
      ASSERT_FALSE(report.clean());
      const auto& h = report.hazards.front();
      EXPECT_EQ(h.here.line, planted::marks[1]);
      if (h.kind == HazardKind::kUninitialised) continue;
      planted::expect_report(report, {HazardKind::kRace, {0, 1}, {"read after a write by CTA 0"}},
                             "_test.cpp");
    }
  }
  planted::expect_clean(read_after_write<false>, {});
}

template <bool kBroken>
void write_after_read(const Args& p) {
  const u32 t = isa::thread_id();
  isa::st_shared(word(t), t);
  isa::cta_sync();
  AT(0), isa::st_global(p.out + t, isa::ld_shared<u32>(word((t + 32) % 64)));
  if (!kBroken) isa::cta_sync();
  AT(1), isa::st_shared(word(t), t + 1);
}
TEST(EmuShared, MissingCtaSyncBeforeOverwrite) {
  EXPECT_CAUGHT(write_after_read, Shape{}, HazardKind::kRace, {0, 1},
                {"shared byte", "nothing orders the two", "thread"});
}

template <bool kBroken>
void write_after_write(const Args&) {
  const u32 t = isa::thread_id();
  if (t == 0) AT(0), isa::st_shared(word(5), t);
  if (!kBroken) isa::cta_sync();
  if (t == 40) AT(1), isa::st_shared(word(5), t);
}
TEST(EmuShared, TwoWriters) {
  EXPECT_CAUGHT(write_after_write, Shape{}, HazardKind::kRace, {0, 1},
                {"shared byte 20: write after a write"});
}

template <bool kBroken>
void between_lanes(const Args& p) {
  const u32 t = isa::thread_id();
  isa::st_shared(word(t), t);
  isa::warp_sync();
  AT(0), isa::st_global(p.out + t, isa::ld_shared<u32>(word(t ^ 1)));
  if (!kBroken) isa::warp_sync();
  if (kBroken) isa::shfl_xor(t, 1);  // brings lanes together, but orders no memory
  AT(1), isa::st_shared(word(t), t);
}
TEST(EmuShared, MissingWarpSync) {
  EXPECT_CAUGHT(between_lanes, Shape{}, HazardKind::kRace, {0, 1}, {"write after a read"});
}

// All lanes read one word; lane 0 alone overwrites it. Each of the 31 others must be ordered.
template <bool kBroken>
void broadcast(const Args& p) {
  const u32 t = isa::thread_id();
  if (t == 0) isa::st_shared(word(0), t);
  isa::warp_sync();
  AT(0), isa::st_global(p.out + t, isa::ld_shared<u32>(word(0)));
  // Lane 31 is left out of the barrier.
  if (kBroken && t != 31) isa::warp_sync(0x7FFFFFFFu);
  if (!kBroken) isa::warp_sync();
  if (t == 0) AT(1), isa::st_shared(word(0), t);
}
TEST(EmuShared, OneReaderOfAWarpUnordered) {
  Shape shape;
  shape.threads = 32;
  planted::expect_clean(broadcast<false>, shape);
  for (std::uint64_t seed = 0; seed < 2 * planted::kSeeds; ++seed) {
    const auto r = planted::run(broadcast<true>, shape, seed, emu::Landing::kRandom);
    planted::expect_report(r.report, {HazardKind::kRace, {0, 1}, {"thread 31 "}}, "_test.cpp");
  }
}

// Half warps that synchronise among themselves only.
template <bool kBroken>
void half_warps(const Args& p) {
  const u32 t = isa::thread_id();
  const u32 mask = t % 32 < 16 ? 0x0000FFFFu : 0xFFFF0000u;
  isa::st_shared(word(t), t);
  isa::warp_sync();
  AT(0), isa::st_global(p.out + t, isa::ld_shared<u32>(word(kBroken ? t ^ 16 : t ^ 1)));
  isa::warp_sync(mask);
  AT(1), isa::st_shared(word(t), t);
}
TEST(EmuShared, WarpSyncOfTheWrongLanes) {
  EXPECT_CAUGHT(half_warps, Shape{}, HazardKind::kRace, {0, 1}, {"write after a read"});
}

void bytes_of_a_word(const Args&) {
  const u32 t = isa::thread_id();
  isa::st_shared(isa::shared_base() + t, static_cast<u8>(t));
}
TEST(EmuShared, NeighbouringBytesAreApart) { planted::expect_clean(bytes_of_a_word, {}); }

// ---- cp.async ----------------------------------------------------------------------------------

void copy_word(const Args& p, u32 to, u32 from) {
  isa::cp_async_small<4>(word(to), p.in + from, true);
}

template <bool kBroken>
void wait_for_copy(const Args& p) {
  const u32 t = isa::thread_id();
  isa::st_shared(word(t), 7u);
  AT(0), isa::cp_async_small<4>(word(t), p.in + t, true);
  isa::cp_async_commit();
  if (!kBroken) isa::cp_async_wait<0>();
  AT(1), isa::st_global(p.out + t, isa::ld_shared<u32>(word(t)));
  isa::cp_async_wait<0>();
}
TEST(EmuShared, MissingWait) {
  EXPECT_CAUGHT(wait_for_copy, Shape{}, HazardKind::kRace, {0, 1},
                {"read after a write by cp.async of CTA 0 thread"});
}
TEST(EmuShared, MissingWaitShowsInValuesWhenLandingLate) {
  Shape shape;
  shape.go_on = true;
  const auto late = planted::run(wait_for_copy<true>, shape, 1, emu::Landing::kLate);
  const auto immediate = planted::run(wait_for_copy<true>, shape, 1, emu::Landing::kImmediate);
  EXPECT_FALSE(late.report.clean());
  EXPECT_FALSE(immediate.report.clean());
  for (u32 t = 0; t < 64; ++t) {
    EXPECT_EQ(late.out[t], 7u);
    EXPECT_EQ(immediate.out[t], 100 + t);
  }
}

template <bool kBroken>
void commit_copy(const Args& p) {
  const u32 t = isa::thread_id();
  AT(0), isa::cp_async_small<4>(word(t), p.in + t, true);
  if (!kBroken) isa::cp_async_commit();
  isa::cp_async_wait<0>();
  AT(1), isa::st_global(p.out + t, isa::ld_shared<u32>(word(t)));
}
TEST(EmuShared, MissingCommit) {
  EXPECT_CAUGHT(commit_copy, Shape{}, HazardKind::kRace, {0, 1}, {"cp.async"});
}

// Waiting leaves the newest group pending: the one that is read.
template <bool kBroken>
void wait_for_too_few(const Args& p) {
  const u32 t = isa::thread_id();
  copy_word(p, t, t);
  isa::cp_async_commit();
  AT(0), isa::cp_async_small<4>(word(64 + t), p.in + t, true);
  isa::cp_async_commit();
  isa::cp_async_wait<1>();
  isa::st_global(p.out + t, isa::ld_shared<u32>(word(t)));
  if (!kBroken) isa::cp_async_wait<0>();
  AT(1), isa::st_global(p.out + 64 + t, isa::ld_shared<u32>(word(64 + t)));
  isa::cp_async_wait<0>();
}
TEST(EmuShared, WaitLeavesTheGroupThatIsRead) {
  EXPECT_CAUGHT(wait_for_too_few, Shape{}, HazardKind::kRace, {0, 1}, {"cp.async"});
}

template <bool kBroken>
void share_copy(const Args& p) {
  const u32 t = isa::thread_id();
  isa::st_shared(word(t), 0u);
  isa::cta_sync();
  AT(0), isa::cp_async_small<4>(word(t), p.in + t, true);
  isa::cp_async_commit();
  if (kBroken) isa::cta_sync();
  isa::cp_async_wait<0>();  // of this thread's copies alone
  if (!kBroken) isa::cta_sync();
  AT(1), isa::st_global(p.out + t, isa::ld_shared<u32>(word(t ^ 32)));
}
TEST(EmuShared, WaitWithoutBarrier) {
  EXPECT_CAUGHT(share_copy, Shape{}, HazardKind::kRace, {0, 1}, {"cp.async"});
}

template <bool kBroken>
void never_waited(const Args& p) {
  AT(0), isa::cp_async_small<4>(word(isa::thread_id()), p.in, true);
  isa::cp_async_commit();
  if (!kBroken) isa::cp_async_wait<0>();
}
TEST(EmuShared, CopiesNeverWaitedFor) {
  EXPECT_CAUGHT(never_waited, Shape{}, HazardKind::kLeak, {0}, {"cp.async", "thread"});
}

// A ring of two stages: the next copy may go into a stage only when all have read it.
template <bool kBroken>
void ring(const Args& p) {
  const u32 t = isa::thread_id();
  copy_word(p, t, t);
  isa::cp_async_commit();
  u32 sum = 0;
  for (u32 i = 0; i < 4; ++i) {
    const u32 stage = i % 2 * 64, next = (i + 1) % 2 * 64;
    AT(0), isa::cp_async_small<4>(word(next + t), p.in + t, true);
    isa::cp_async_commit();
    isa::cp_async_wait<1>();
    isa::cta_sync();
    AT(1), sum += isa::ld_shared<u32>(word(stage + (t + 32) % 64));
    if (!kBroken) isa::cta_sync();
  }
  isa::cp_async_wait<0>();
  isa::st_global(p.out + t, sum);
}
TEST(EmuShared, StageOverwrittenWhileRead) {
  EXPECT_CAUGHT(ring, Shape{}, HazardKind::kRace, {0, 1}, {"shared byte"});
}

void zero_fill(const Args& p) {
  const u32 t = isa::thread_id();
  isa::cp_async_small<4>(word(t), p.in - 1000000, false);  // not read
  isa::cp_async_commit();
  isa::cp_async_wait<0>();
  isa::st_global(p.out + t, isa::ld_shared<u32>(word(t)));
}
TEST(EmuShared, InvalidCopiesGiveZeros) {
  planted::expect_clean(zero_fill, {});
  const auto r = planted::run(zero_fill, {}, 1, emu::Landing::kLate);
  for (u32 t = 0; t < 64; ++t) EXPECT_EQ(r.out[t], 0u);
}

// ---- Bounds, alignment, poison -----------------------------------------------------------------

template <bool kBroken>
void past_the_end(const Args&) {
  AT(0), isa::st_shared(word(isa::thread_id() + (kBroken ? 193 : 192)), 1u);
}
TEST(EmuShared, PastTheEnd) {
  EXPECT_CAUGHT(past_the_end, Shape{}, HazardKind::kOutOfBounds, {0},
                {"shared byte 1024 of 1024", "thread 63"});
}

template <bool kBroken>
void before_the_start(const Args&) {
  const u32 t = isa::thread_id();
  AT(0), isa::st_shared(word(t) - (kBroken ? 4 : 0), 1u);
}
TEST(EmuShared, BeforeTheStart) {
  EXPECT_CAUGHT(before_the_start, Shape{}, HazardKind::kOutOfBounds, {0},
                {"shared byte -4 of 1024", "thread 0 "});
}

template <bool kBroken>
void copy_past_the_end(const Args& p) {
  const u32 t = isa::thread_id();
  AT(0), isa::cp_async_16(word(4 * (t + (kBroken ? 1 : 0))), p.in, true);
  isa::cp_async_commit();
  isa::cp_async_wait<0>();
}
TEST(EmuShared, CopyPastTheEnd) {
  EXPECT_CAUGHT(copy_past_the_end, Shape{}, HazardKind::kOutOfBounds, {0},
                {"shared byte 1024 of 1024", "thread 63"});
}

template <bool kBroken>
void misaligned_store(const Args&) {
  AT(0), isa::st_shared(word(4 * isa::thread_id()) + (kBroken ? 4 : 0), u32x4{});
}
template <bool kBroken>
void misaligned_load(const Args& p) {
  const u32 t = isa::thread_id();
  isa::st_shared(word(4 * t), u32x4{});
  AT(0), isa::st_global(p.out + t, isa::ld_shared<u32>(word(4 * t) + (kBroken ? 2 : 0)));
}
template <bool kBroken>
void misaligned_copy_to(const Args& p) {
  AT(0), isa::cp_async_16(word(4 * isa::thread_id() + (kBroken ? 1 : 0)), p.in, true);
  isa::cp_async_commit();
  isa::cp_async_wait<0>();
}
template <bool kBroken>
void misaligned_copy_from(const Args& p) {
  AT(0), isa::cp_async_16(word(4 * isa::thread_id()), p.in + (kBroken ? 1 : 0), true);
  isa::cp_async_commit();
  isa::cp_async_wait<0>();
}
template <bool kBroken>
void misaligned_row(const Args& p) {
  const u32 t = isa::thread_id();
  isa::st_shared(word(4 * t), u32x4{});
  isa::warp_sync();
  u32x4 x;
  AT(0), x = isa::ldmatrix_x4(word(4 * t) + (kBroken && t == 9 ? 8 : 0));
  isa::st_global(p.out + t, x[0]);
}
TEST(EmuShared, Misaligned) {
  Shape shape;
  shape.shared = 2048;
  EXPECT_CAUGHT(misaligned_store, shape, HazardKind::kMisaligned, {0}, {"no multiple of 16"});
  EXPECT_CAUGHT(misaligned_load, shape, HazardKind::kMisaligned, {0}, {"no multiple of 4"});
  EXPECT_CAUGHT(misaligned_copy_to, shape, HazardKind::kMisaligned, {0}, {"shared address"});
  EXPECT_CAUGHT(misaligned_copy_from, shape, HazardKind::kMisaligned, {0}, {"global address"});
  // The lane whose row it is, not the lane that came last.
  EXPECT_CAUGHT(misaligned_row, shape, HazardKind::kMisaligned, {0}, {"thread 9 "});
}

template <bool kBroken>
void uninitialised(const Args& p) {
  const u32 t = isa::thread_id();
  isa::st_shared(word(4 * t), t);
  isa::st_shared(word(4 * t + 1), t);
  isa::st_shared(word(4 * t + 2), t);
  if (!kBroken || t != 17) isa::st_shared(word(4 * t + 3), t);
  AT(0), isa::st_global(p.out + t, isa::ld_shared<u32x4>(word(4 * t))[0]);
}
TEST(EmuShared, Uninitialised) {
  EXPECT_CAUGHT(uninitialised, Shape{}, HazardKind::kUninitialised, {0},
                {"shared bytes 272 to 287", "thread 17 "});
}

void nothing(const Args&) {}
TEST(EmuShared, OverTheLimits) {
  Shape shape;
  shape.shared = emu::kMaxSharedBytes;
  EXPECT_TRUE(planted::run(nothing, shape, 1, emu::Landing::kLate).report.clean());
  shape.shared += 16;
  auto report = planted::run(nothing, shape, 1, emu::Landing::kLate).report;
  planted::expect_report(report, {HazardKind::kLimit, {}, {"232464 bytes of shared memory"}}, "");
  shape.shared = 0;
  shape.threads = 1025;
  report = planted::run(nothing, shape, 1, emu::Landing::kLate).report;
  planted::expect_report(report, {HazardKind::kLimit, {}, {"1025 threads"}}, "");
}

}  // namespace
}  // namespace strobe::STROBE_TARGET
