// FlashAttention-1's kernels on the emulator: right, and free of races however copies land.
#include <cstdint>

#include "core/philox.h"
#include "fa1_run.h"

namespace strobe::gpu_test {
namespace {

constexpr double kTolerance = 0.02;

template <class T, kernels::Fa1Config C>
void check_forward(const Shape& s, How how = {}) {
  Tensors<T> t(s);
  const emu::Report report = fa1_forward<T, C>(s, t, how);
  ASSERT_TRUE(report.clean()) << report.text();
  const Exact e = exact(s, t);
  expect_close("o", t.o, e.o, kTolerance);
  expect_close("lse", t.lse, e.lse, 1e-4);
}

template <class T, kernels::Fa1Config C>
void check_backward(const Shape& s, How how = {}) {
  Tensors<T> t(s);
  const Exact e = exact(s, t);
  set_forward(e, t);
  const emu::Report report = fa1_backward<T, C>(s, t, how);
  ASSERT_TRUE(report.clean()) << report.text();
  expect_close("dq", t.dq, e.dq, kTolerance);
  expect_close("dk", t.dk, e.dk, kTolerance);
  expect_close("dv", t.dv, e.dv, kTolerance);
}

constexpr auto kFwd64 = kernels::fa1_fwd_config(core::Dtype::kBf16, 64);
constexpr auto kFwd128 = kernels::fa1_fwd_config(core::Dtype::kF16, 128);

TEST(Fa1Forward, EveryLanding) {
  for (const emu::Landing landing :
       {emu::Landing::kImmediate, emu::Landing::kLate, emu::Landing::kRandom}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      check_forward<bf16, kFwd64>({.heads = 2, .seqlen_q = 150, .seqlen_k = 300}, {landing, seed});
      check_forward<f16, kFwd128>({.seqlen_q = 100, .seqlen_k = 150, .head_dim = 128},
                                  {landing, seed});
    }
  }
}

TEST(Fa1Forward, Masks) {
  check_forward<bf16, kFwd64>({.seqlen_q = 257, .seqlen_k = 257, .right = 0});
  check_forward<bf16, kFwd64>({.seqlen_q = 200, .seqlen_k = 70, .right = 0});  // rows without keys
  check_forward<bf16, kFwd64>({.seqlen_q = 200, .seqlen_k = 300, .left = 20, .right = 5});
  check_forward<bf16, kFwd64>({.seqlen_q = 1, .seqlen_k = 130});
  check_forward<bf16, kFwd64>({.seqlen_q = 65, .seqlen_k = 1});
}

TEST(Fa1Forward, HeadDimsGroupsDropout) {
  check_forward<bf16, kFwd64>(
      {.batch = 2, .heads = 6, .kv_heads = 2, .seqlen_q = 33, .seqlen_k = 40});
  check_forward<bf16, kFwd64>({.seqlen_q = 70, .seqlen_k = 90, .head_dim = 40});
  check_forward<bf16, kFwd64>({.seqlen_q = 70, .seqlen_k = 90, .head_dim = 1});
  check_forward<f16, kFwd128>({.seqlen_q = 70, .seqlen_k = 90, .head_dim = 77});
  check_forward<f16, kFwd128>(
      {.heads = 2, .seqlen_q = 70, .seqlen_k = 90, .head_dim = 96, .right = 0, .dropout = 0.3});
}

constexpr auto kBwd64 = kernels::fa1_bwd_config(core::Dtype::kBf16, 64);
constexpr auto kBwd128 = kernels::fa1_bwd_config(core::Dtype::kF16, 128);

TEST(Fa1Backward, EveryLanding) {
  for (const emu::Landing landing :
       {emu::Landing::kImmediate, emu::Landing::kLate, emu::Landing::kRandom}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      check_backward<bf16, kBwd64>({.heads = 2, .seqlen_q = 150, .seqlen_k = 200}, {landing, seed});
      check_backward<f16, kBwd128>({.seqlen_q = 70, .seqlen_k = 100, .head_dim = 128},
                                   {landing, seed});
    }
  }
}

TEST(Fa1Backward, Masks) {
  check_backward<bf16, kBwd64>({.seqlen_q = 257, .seqlen_k = 257, .right = 0});
  check_backward<bf16, kBwd64>({.seqlen_q = 200, .seqlen_k = 70, .right = 0});  // rows without keys
  check_backward<bf16, kBwd64>({.seqlen_q = 200, .seqlen_k = 300, .left = 20, .right = 5});
  check_backward<bf16, kBwd64>({.seqlen_q = 1, .seqlen_k = 300, .left = 3, .right = 0});
  check_backward<bf16, kBwd64>({.seqlen_q = 65, .seqlen_k = 1});
}

TEST(Fa1Backward, HeadDimsGroupsDropout) {
  check_backward<bf16, kBwd64>(
      {.batch = 2, .heads = 6, .kv_heads = 2, .seqlen_q = 33, .seqlen_k = 40});
  check_backward<bf16, kBwd64>({.seqlen_q = 70, .seqlen_k = 90, .head_dim = 40});
  check_backward<bf16, kBwd64>({.seqlen_q = 70, .seqlen_k = 90, .head_dim = 1});
  check_backward<f16, kBwd128>({.seqlen_q = 70, .seqlen_k = 90, .head_dim = 77});
  check_backward<f16, kBwd128>({.heads = 2,
                                .kv_heads = 1,
                                .seqlen_q = 70,
                                .seqlen_k = 90,
                                .head_dim = 96,
                                .right = 0,
                                .dropout = 0.3});
}

}  // namespace
}  // namespace strobe::gpu_test
