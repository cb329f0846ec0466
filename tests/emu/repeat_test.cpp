// The same seed gives the same run, whatever the number of host threads; and what is counted.
#include <cstddef>
#include <cstdint>

#include "planted.h"

namespace strobe::STROBE_TARGET {
namespace {

using emu::HazardKind;
using planted::Args;
using planted::Result;
using planted::Shape;

u32 word(u32 i) { return isa::shared_base() + 4 * i; }

// A bit of everything: copies, barriers, shuffles, products, atomics.
void busy(const Args& p) {
  const u32 t = isa::thread_id(), c = isa::cta_id();
  isa::cp_async_16(word(4 * t), p.in + 4 * (t % 64), true);
  isa::cp_async_commit();
  isa::cp_async_wait<0>();
  isa::cta_sync();
  const u32x4 a = isa::ldmatrix_x4(word(4 * t));
  f32 d[4] = {};
  isa::mma_m16n8k16<bf16>(d, a, a[0], a[1]);
  const u32 x = isa::shfl_xor(a[2], 3) + isa::atom_add(p.state, 1);
  isa::st_global(p.out + 64 * c + t, x);
  isa::red_add(p.sum + t % 16, isa::vote_any(t == 5) ? 1.0f : 0.5f);
}

// Three of twelve CTAs are wrong.
void some_fail(const Args& p) {
  busy(p);
  const u32 c = isa::cta_id();
  if (c % 4 == 3) isa::st_shared(word(256 + c), 1u);
}

Shape busy_shape(u32 grid, int host_threads) {
  Shape shape;
  shape.grid = grid;
  shape.out = 64 * grid;
  shape.host_threads = host_threads;
  return shape;
}

void expect_same(const Result& a, const Result& b, bool outputs) {
  EXPECT_EQ(a.report.text(), b.report.text());
  const auto &x = a.report.counters, &y = b.report.counters;
  EXPECT_EQ(x.ctas, y.ctas);
  EXPECT_EQ(x.switches, y.switches);
  EXPECT_EQ(x.mma_flops, y.mma_flops);
  EXPECT_EQ(x.shared_bytes_read, y.shared_bytes_read);
  EXPECT_EQ(x.shared_bytes_written, y.shared_bytes_written);
  EXPECT_EQ(x.shared_wavefronts, y.shared_wavefronts);
  EXPECT_EQ(x.barriers, y.barriers);
  EXPECT_EQ(x.atomics, y.atomics);
  ASSERT_EQ(a.report.tensors.size(), b.report.tensors.size());
  for (std::size_t i = 0; i < a.report.tensors.size(); ++i) {
    EXPECT_EQ(a.report.tensors[i].bytes_read, b.report.tensors[i].bytes_read);
    EXPECT_EQ(a.report.tensors[i].bytes_written, b.report.tensors[i].bytes_written);
    EXPECT_EQ(a.report.tensors[i].bytes_reduced, b.report.tensors[i].bytes_reduced);
  }
  EXPECT_EQ(a.report.hits("_test.cpp", 1, 1000), b.report.hits("_test.cpp", 1, 1000));
  if (!outputs) return;
  EXPECT_EQ(a.out, b.out);
  EXPECT_EQ(a.sum, b.sum);
}

TEST(EmuRepeat, SameSeedSameRun) {
  bool differs = false;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const auto once = planted::run(busy, busy_shape(4, 1), seed, emu::Landing::kRandom);
    EXPECT_TRUE(once.report.clean()) << once.report.text();
    expect_same(once, planted::run(busy, busy_shape(4, 1), seed, emu::Landing::kRandom), true);
    const auto other = planted::run(busy, busy_shape(4, 1), seed + 1, emu::Landing::kRandom);
    differs = differs || other.out != once.out;
  }
  EXPECT_TRUE(differs) << "the order of atomics shows the schedule, which the seed should change";
}

TEST(EmuRepeat, HostThreadsDoNotMatter) {
  for (const auto kernel : {busy, some_fail}) {
    const auto one = planted::run(kernel, busy_shape(12, 1), 7, emu::Landing::kRandom);
    for (const int host_threads : {2, 3, 5}) {
      const auto many =
          planted::run(kernel, busy_shape(12, host_threads), 7, emu::Landing::kRandom);
      // The order of atomics between CTAs is no longer fixed.
      expect_same(one, many, false);
      if (kernel == busy) {
        EXPECT_EQ(one.sum, many.sum);
        EXPECT_EQ(one.state, many.state);
      }
    }
  }
}

TEST(EmuRepeat, HazardEndsTheLaunchAtItsCta) {
  const auto r = planted::run(some_fail, busy_shape(12, 3), 7, emu::Landing::kRandom);
  ASSERT_EQ(r.report.hazards.size(), 1u);
  EXPECT_EQ(r.report.hazards[0].cta, 3u);
  EXPECT_EQ(r.report.counters.ctas, 4u);
}

// ---- Counts
// --------------------------------------------------------------------------------------

void branch(const Args& p) {
  const u32 t = isa::thread_id();
  AT(0), isa::st_global(p.out + t, t);
  if (t % 4 == 0) AT(1), isa::st_global(p.out + 64 + t, t);
  if (t > 64) AT(2), isa::st_global(p.out + 128 + t, t);
  AT(3), isa::shfl_xor(t, 1);
}
TEST(EmuCounts, LinesThatRan) {
  const auto r = planted::run(branch, {}, 1, emu::Landing::kRandom);
  const auto hits = [&](int mark) {
    return r.report.hits("repeat_test.cpp", planted::marks[mark], planted::marks[mark]);
  };
  EXPECT_EQ(hits(0), 64u);
  EXPECT_EQ(hits(1), 16u);
  EXPECT_EQ(r.report.hits("repeat_test.cpp", planted::marks[1] + 1, planted::marks[3] - 1), 0u);
  EXPECT_EQ(hits(3), 64u);
  EXPECT_EQ(r.report.hits("repeat_test.cpp", planted::marks[0], planted::marks[3]), 144u);
  EXPECT_EQ(r.report.hits("other.cpp", 0, 1000), 0u);
}

TEST(EmuCounts, Traffic) {
  const auto r = planted::run(busy, busy_shape(2, 1), 1, emu::Landing::kRandom);
  const auto& t = r.report.tensors;
  ASSERT_EQ(t.size(), 4u);
  EXPECT_EQ(t[0].bytes_read, 2u * 64 * 16);
  EXPECT_EQ(t[1].bytes_written, 2u * 64 * 4);
  EXPECT_EQ(t[2].bytes_reduced, 2u * 64 * 4);
  EXPECT_EQ(t[3].bytes_reduced, 2u * 64 * 4);
  const auto& c = r.report.counters;
  EXPECT_EQ(c.mma_flops, 2u * 2 * 2 * 16 * 8 * 16);
  EXPECT_EQ(c.atomics, 2u * 2 * 64);
  EXPECT_EQ(c.shared_bytes_written, 2u * 64 * 16);
  EXPECT_EQ(c.shared_bytes_read, 2u * 64 * 16);
  EXPECT_EQ(c.cross_warp_bytes, 0u);  // copies are of no warp
}

void exchange(const Args& p) {
  const u32 t = isa::thread_id();
  isa::st_shared(word(t), t);
  isa::cta_sync();
  isa::st_global(p.out + t, isa::ld_shared<u32>(word(t ^ 32)) + isa::ld_shared<u32>(word(t ^ 1)));
}
TEST(EmuCounts, CrossWarpBytes) {
  const auto r = planted::run(exchange, {}, 1, emu::Landing::kRandom);
  EXPECT_EQ(r.report.counters.cross_warp_bytes, 64u * 4);
}

}  // namespace
}  // namespace strobe::STROBE_TARGET
