// Standard attention's kernels on the emulator: right, and free of races however copies land.
#include <cstdint>

#include "standard_run.h"

namespace strobe::gpu_test {
namespace {

constexpr double kTolerance = 0.02;

void expect_clean(const Operations& operations) {
  for (const auto& [name, report] : operations)
    ASSERT_TRUE(report.clean()) << name << ": " << report.text();
}

template <class T, core::Dtype kType, int kHeadDim>
void check(const Shape& s, How how = {}) {
  Tensors<T> t(s);
  const Exact e = exact(s, t);
  expect_clean(Standard<T, kType, kHeadDim>(s, t, how).forward());
  expect_close("o", t.o, e.o, kTolerance);
  expect_close("lse", t.lse, e.lse, 1e-4);
  expect_clean(Standard<T, kType, kHeadDim>(s, t, how).backward());
  expect_close("dq", t.dq, e.dq, kTolerance);
  expect_close("dk", t.dk, e.dk, kTolerance);
  expect_close("dv", t.dv, e.dv, kTolerance);
}

TEST(Standard, EveryLanding) {
  for (const emu::Landing landing :
       {emu::Landing::kImmediate, emu::Landing::kLate, emu::Landing::kRandom}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      check<bf16, core::Dtype::kBf16, 64>({.seqlen_q = 80, .seqlen_k = 150}, {landing, seed});
    }
    check<f16, core::Dtype::kF16, 128>({.seqlen_q = 140, .seqlen_k = 70, .head_dim = 128},
                                       {landing, 1});
  }
}

TEST(Standard, Masks) {
  constexpr auto kType = core::Dtype::kBf16;
  check<bf16, kType, 64>({.seqlen_q = 130, .seqlen_k = 130, .right = 0});
  check<bf16, kType, 64>({.seqlen_q = 90, .seqlen_k = 70, .right = 0});  // rows without keys
  check<bf16, kType, 64>({.seqlen_q = 50, .seqlen_k = 99, .left = 20, .right = 5});
  check<bf16, kType, 64>({.seqlen_q = 65, .seqlen_k = 1});
}

TEST(Standard, HeadDimsGroupsDropout) {
  constexpr auto kType = core::Dtype::kF16;
  check<f16, kType, 64>({.batch = 2, .heads = 6, .kv_heads = 2, .seqlen_q = 33, .seqlen_k = 40});
  check<f16, kType, 64>({.seqlen_q = 40, .seqlen_k = 45, .head_dim = 40});
  check<f16, kType, 64>({.seqlen_q = 40, .seqlen_k = 45, .head_dim = 1});
  check<f16, kType, 128>({.seqlen_q = 40, .seqlen_k = 45, .head_dim = 77});
  check<f16, kType, 128>({.heads = 2,
                          .kv_heads = 1,
                          .seqlen_q = 40,
                          .seqlen_k = 90,
                          .head_dim = 96,
                          .right = 0,
                          .dropout = 0.3});
}

}  // namespace
}  // namespace strobe::gpu_test
