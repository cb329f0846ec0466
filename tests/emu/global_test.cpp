// Planted bugs in device memory: bounds, races between CTAs, atomics and what they order.
#include <cstdint>

#include "planted.h"

namespace strobe::STROBE_TARGET {
namespace {

using emu::HazardKind;
using planted::Args;
using planted::Shape;

Shape ctas(u32 grid, bool together = false) {
  Shape shape;
  shape.grid = grid;
  shape.together = together;
  return shape;
}

// ---- Bounds, alignment, poison
// -------------------------------------------------------------------

template <bool kBroken>
void read_past(const Args& p) {
  const u32 t = isa::thread_id();
  AT(0), isa::st_global(p.sum + (t & 15) * 0, 0.0f * isa::ld_global(p.sum + (kBroken ? 16 : 15)));
}
template <bool kBroken>
void write_past(const Args& p) {
  AT(0), isa::st_global(p.out + isa::thread_id() + (kBroken ? 193 : 192), 1u);
}
template <bool kBroken>
void write_before(const Args& p) {
  const u32 t = isa::thread_id();
  AT(0), isa::st_global(p.state + t % 16 + 16 * (t / 16) - (kBroken ? 1 : 0), 1u);
}
template <bool kBroken>
void straddle(const Args& p) {
  const auto* at = reinterpret_cast<const u32x4*>(p.in + (kBroken ? 252 : 248));
  const u32 t = isa::thread_id();
  AT(0), isa::st_global(p.out + t, isa::ld_global(at)[0]);
}
TEST(EmuGlobal, OutOfBounds) {
  Shape shape;
  shape.threads = 1;
  EXPECT_CAUGHT(read_past, shape, HazardKind::kOutOfBounds, {0},
                {"byte 64 of sum, which has 64 bytes"});
  EXPECT_CAUGHT(write_past, Shape{}, HazardKind::kOutOfBounds, {0},
                {"byte 1024 of out, which has 1024 bytes", "thread 63"});
  shape.threads = 16;
  EXPECT_CAUGHT(write_before, shape, HazardKind::kOutOfBounds, {0}, {"byte -4 of state"});
}
// `in` of 254 words ends where `out` begins: 16 bytes across the two belong to neither.
TEST(EmuGlobal, AcrossNeighbours) {
  Shape shape;
  shape.in = 254;
  const auto misaligned_tensor = planted::run(straddle<false>, shape, 1, emu::Landing::kLate);
  EXPECT_TRUE(misaligned_tensor.report.clean()) << misaligned_tensor.report.text();
  planted::expect_report(planted::run(straddle<true>, shape, 1, emu::Landing::kLate).report,
                         {HazardKind::kOutOfBounds, {0}, {"byte 1008 of in"}}, "_test.cpp");
}

template <bool kBroken>
void misaligned_load(const Args& p) {
  const auto at = reinterpret_cast<std::uintptr_t>(p.in) + (kBroken ? 4 : 0);
  AT(0), isa::st_global(p.out + isa::thread_id(),
                        isa::ld_global(reinterpret_cast<const u32x4*>(at))[0]);
}
template <bool kBroken>
void misaligned_store(const Args& p) {
  const auto at =
      reinterpret_cast<std::uintptr_t>(p.out + 2 * isa::thread_id()) + (kBroken ? 2 : 0);
  AT(0), isa::st_global(reinterpret_cast<u32*>(at), 1u);
}
TEST(EmuGlobal, Misaligned) {
  EXPECT_CAUGHT(misaligned_store, Shape{}, HazardKind::kMisaligned, {0}, {"no multiple of 4"});
  const auto r = planted::run(misaligned_load<true>, {}, 1, emu::Landing::kLate);
  planted::expect_report(r.report, {HazardKind::kMisaligned, {}, {"no multiple of 16"}}, "");
  planted::expect_clean(misaligned_load<false>, {});
}

template <bool kBroken>
void uninitialised(const Args& p) {
  const u32 t = isa::thread_id();
  if (!kBroken || t != 9) isa::st_global(p.out + t, t);
  AT(0), isa::st_global(p.out + 64 + t, isa::ld_global(p.out + t));
}
TEST(EmuGlobal, UninitialisedRead) {
  EXPECT_CAUGHT(uninitialised, Shape{}, HazardKind::kUninitialised, {0},
                {"byte 36 of out", "thread 9 "});
}

template <bool kBroken>
void write_input(const Args& p) {
  u32* to = kBroken ? const_cast<u32*>(p.in) : p.out;
  AT(0), isa::st_global(to + isa::thread_id(), 1u);
}
TEST(EmuGlobal, WriteToInput) {
  EXPECT_CAUGHT(write_input, Shape{}, HazardKind::kRace, {0}, {"write to input in"});
}

// ---- Between CTAs
// --------------------------------------------------------------------------------

template <bool kBroken>
void one_place(const Args& p) {
  const u32 t = isa::thread_id() + 64 * isa::cta_id();
  AT(0), isa::st_global(p.out + (kBroken ? t % 64 : t), t);
}
TEST(EmuGlobal, CtasWriteOnePlace) {
  EXPECT_CAUGHT(one_place, ctas(2), HazardKind::kRace, {0},
                {"write after a write by CTA 0 thread"});
  planted::expect_clean(one_place<false>, ctas(4, true));
  for (std::uint64_t seed = 0; seed < planted::kSeeds; ++seed) {
    const auto r = planted::run(one_place<true>, ctas(4, true), seed, emu::Landing::kRandom);
    planted::expect_report(r.report, {HazardKind::kRace, {0}, {"write after a write by CTA"}},
                           "_test.cpp");
  }
}

template <bool kBroken>
void add(const Args& p) {
  const u32 t = isa::thread_id();
  AT(0), isa::red_add(p.sum + t % 16, 1.0f);
  if (kBroken && t == 0) AT(1), isa::st_global(p.sum, 2.0f);
  isa::atom_add(p.state, 1);
}
TEST(EmuGlobal, AtomicsAndPlainAccess) {
  for (const bool together : {false, true}) {
    const Shape shape = ctas(3, together);
    planted::expect_clean(add<false>, shape);
    const auto sums = planted::run(add<false>, shape, 1, emu::Landing::kRandom);
    for (u32 i = 0; i < 16; ++i) EXPECT_EQ(sums.sum[i], 12.0f);
    EXPECT_EQ(sums.state[0], 192u);
    for (std::uint64_t seed = 0; seed < planted::kSeeds; ++seed) {
      const auto r = planted::run(add<true>, shape, seed, emu::Landing::kRandom);
      planted::expect_report(r.report, {HazardKind::kRace, {0, 1}, {"of sum"}}, "_test.cpp");
    }
  }
}

// A plain read must come after every atomic before it, not only after the last.
template <bool kBroken>
void read_sum(const Args& p) {
  if (isa::thread_id() != 0) return;
  if (isa::cta_id() < 2) {
    AT(0), isa::red_add(p.sum, 1.0f);
    if (!kBroken || isa::cta_id() == 0) isa::red_release_add(p.state, 1);
    if (kBroken && isa::cta_id() == 1) isa::atom_add(p.state, 1);
    return;
  }
  isa::spin_until_equal(p.state, 2);
  isa::red_add(p.sum, 1.0f);
  AT(1), isa::st_global(p.out, static_cast<u32>(isa::ld_global(p.sum)));
}
TEST(EmuGlobal, PlainReadAfterOneOfTwoAtomics) {
  EXPECT_CAUGHT(read_sum, ctas(3, true), HazardKind::kRace, {0, 1},
                {"read after a write by CTA 1 thread 0"});
}

// The last CTA to finish reads what all have written.
template <bool kBroken>
void last_block(const Args& p) {
  const u32 t = isa::thread_id(), n = isa::grid_size();
  AT(0), isa::st_global(p.out + 64 * isa::cta_id() + t, t);
  isa::cta_sync();
  if (t == 0) {
    // Thread 0 passes on what the barrier has shown it: a fence of the writers would not do.
    if (!kBroken) isa::fence_device();
    const u32 before = isa::atom_add(p.state, 1);
    if (!kBroken) isa::fence_device();
    isa::st_shared(isa::shared_base(), before);
  }
  isa::cta_sync();
  if (isa::ld_shared<u32>(isa::shared_base()) != n - 1) return;
  for (u32 c = 0; c < n; ++c) AT(1), isa::ld_global(p.out + 64 * c + t);
}
TEST(EmuGlobal, LastBlockWithoutFence) {
  EXPECT_CAUGHT(last_block, ctas(3, true), HazardKind::kRace, {0, 1},
                {"read after a write by CTA"});
}
// CTAs that do not run together order nothing: a kernel that relies on it must say so.
TEST(EmuGlobal, LastBlockNeedsCtasTogether) {
  const auto r = planted::run(last_block<false>, ctas(3), 1, emu::Landing::kRandom);
  planted::expect_report(r.report, {HazardKind::kRace, {0, 1}, {}}, "_test.cpp");
}

// CTAs take turns, in order of their index.
template <bool kBroken>
void turns(const Args& p) {
  const u32 t = isa::thread_id(), c = isa::cta_id();
  if (t == 0) isa::spin_until_equal(p.state, c);
  isa::cta_sync();
  f32 x;
  AT(0), x = isa::ld_global(p.sum + t % 16);
  isa::cta_sync();
  if (t < 16) AT(1), isa::st_global(p.sum + t, 2 * x + static_cast<f32>(c + 1));
  isa::cta_sync();
  if (t != 0) return;
  if (kBroken) {
    isa::atom_add(p.state, 1);
  } else {
    isa::red_release_add(p.state, 1);
  }
}
TEST(EmuGlobal, TurnsBySemaphore) {
  EXPECT_CAUGHT(turns, ctas(5, true), HazardKind::kRace, {0, 1}, {"by CTA 0 thread"});
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const auto r = planted::run(turns<false>, ctas(5, true), seed, emu::Landing::kRandom);
    for (const f32 x : r.sum) EXPECT_EQ(x, 57.0f);  // ((((1) 2 + 2) 2 + 3) 2 + 4) 2 + 5
  }
}

template <bool kBroken>
void spin(const Args& p) {
  const u32 t = isa::thread_id();
  if (t == 33 && !kBroken) isa::red_release_add(p.state, 1);
  if (t == 0) AT(0), isa::spin_until_equal(p.state, 1);
}
TEST(EmuGlobal, SpinForEver) {
  EXPECT_CAUGHT(spin, Shape{}, HazardKind::kDeadlock, {0},
                {"threads 0 to 0: waits for device memory to reach 1"});
}

}  // namespace
}  // namespace strobe::STROBE_TARGET
