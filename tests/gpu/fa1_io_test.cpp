// The papers' arithmetic, on the emulator's counters: the closed forms of src/gpu/io_model.h hold
// to the byte, and from them follow the claims of the FlashAttention papers.
#include <cstddef>
#include <numeric>

#include "fa1_run.h"
#include "gpu/io_model.h"
#include "kernels/fa2_fwd.h"
#include "standard_run.h"

namespace strobe::gpu_test {
namespace {

namespace io = gpu::io;
constexpr auto kType = core::Dtype::kBf16;

io::Shape io_shape(const Shape& s) {
  return {.batch = s.batch,
          .heads = s.heads,
          .seqlen_q = s.seqlen_q,
          .seqlen_k = s.seqlen_k,
          .head_dim = s.head_dim};
}
std::uint64_t read_bytes(const emu::Report& r) {
  std::uint64_t sum = 0;
  for (const auto& t : r.tensors) sum += t.bytes_read;
  return sum;
}
std::uint64_t written_bytes(const emu::Report& r) {
  std::uint64_t sum = 0;
  for (const auto& t : r.tensors) sum += t.bytes_written;
  return sum;
}
std::uint64_t ops(const emu::Report& r, core::Op op) {
  return r.counters.ops[static_cast<int>(op)];
}
std::uint64_t all_ops(const emu::Report& r) {
  return std::accumulate(std::begin(r.counters.ops), std::end(r.counters.ops), std::uint64_t{0});
}

void expect_bytes(const emu::Report& r, const io::Work& work, const Shape& s) {
  ASSERT_TRUE(r.clean()) << r.text();
  EXPECT_EQ(read_bytes(r), static_cast<std::uint64_t>(work.read))
      << work.name << ", N = " << s.seqlen_q << " x " << s.seqlen_k << ", d = " << s.head_dim;
  EXPECT_EQ(written_bytes(r), static_cast<std::uint64_t>(work.written))
      << work.name << ", N = " << s.seqlen_q << " x " << s.seqlen_k << ", d = " << s.head_dim;
}

std::vector<Shape> shapes(std::vector<int> head_dims) {
  std::vector<Shape> all;
  for (const int d : head_dims) {
    for (const int n : {64, 128, 256}) all.push_back({.seqlen_q = n, .seqlen_k = n, .head_dim = d});
    all.push_back(
        {.heads = 2, .kv_heads = 2, .seqlen_q = 200, .seqlen_k = 72, .head_dim = d});  // cut blocks
  }
  return all;
}

// ---- Bytes -----------------------------------------------------------------------------------

template <core::Dtype kScores>
void check_standard(const io::StandardTiles& tiles) {
  for (const Shape& s : shapes({64})) {
    Tensors<bf16> t(s);
    set_forward(exact(s, t), t);
    const auto run = [&] {
      Standard<bf16, kType, 64, kScores> standard(s, t);
      standard.cached_columns = 6144;
      return standard;
    };
    const Operations forward = run().forward();
    const auto want = io::standard_forward(io_shape(s), tiles);
    ASSERT_EQ(forward.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) expect_bytes(forward[i].second, want[i], s);

    const Operations backward = run().backward();  // S, softmax, then the five of the model
    const auto want_backward = io::standard_backward(io_shape(s), tiles);
    ASSERT_EQ(backward.size(), want_backward.size() + 2);
    for (std::size_t i = 0; i < want_backward.size(); ++i)
      expect_bytes(backward[i + 2].second, want_backward[i], s);
  }
}

TEST(Io, StandardBytes) { check_standard<core::Dtype::kF32>({}); }
TEST(Io, StandardBytesWithScoresOf16Bits) { check_standard<kType>({.score_bytes = 2}); }

template <int kHeadDim, int kSram>
void check_fa1(int head_dim) {
  constexpr auto kFwd = kernels::fa1_fwd_config(kType, kHeadDim, kSram);
  constexpr auto kBwd = kernels::fa1_bwd_config(kType, kHeadDim, kSram);
  for (const Shape& s : shapes({head_dim})) {
    Tensors<bf16> t(s);
    expect_bytes(fa1_forward<bf16, kFwd>(s, t),
                 io::fa1_forward(io_shape(s), {kFwd.block_m, kFwd.block_n}), s);
    set_forward(exact(s, t), t);
    expect_bytes(fa1_backward<bf16, kBwd>(s, t),
                 io::fa1_backward(io_shape(s), {kBwd.block_m, kBwd.block_n}), s);
  }
}

TEST(Io, Fa1BytesOverSram) {
  check_fa1<64, 8 * 1024>(64);
  check_fa1<64, 16 * 1024>(64);
  check_fa1<64, 32 * 1024>(64);
  check_fa1<64, 64 * 1024>(64);
  check_fa1<64, 128 * 1024>(64);
}
TEST(Io, Fa1BytesOverHeadDim) {
  check_fa1<128, 64 * 1024>(128);
  check_fa1<64, 64 * 1024>(24);
}

template <int kHeadDim>
emu::Report fa2_forward(const Shape& s, Tensors<bf16>& t) {
  constexpr auto kConfig = kernels::fa2_fwd_config(kType, kHeadDim, kernels::Features::kPlain);
  kernels::ForwardParams p = {};
  p.a = attention(s);
  p.q = {t.q.data(), rows_of(s.heads, s.seqlen_q, s.head_dim)};
  p.k = {t.k.data(), rows_of(s.kv_heads, s.seqlen_k, s.head_dim)};
  p.v = {t.v.data(), p.k.stride};
  p.o = {t.o.data(), p.q.stride};
  p.lse = t.lse.data();
  p.lse_stride = lse_of(s);
  p.m_blocks = static_cast<unsigned>((s.seqlen_q + kConfig.block_m - 1) / kConfig.block_m);
  p.heads_in_l2 = 1;
  emu::Memory memory;
  add_inputs(memory, t);
  add_output(memory, "o", t.o);
  add_output(memory, "lse", t.lse);
  emu::Report report;
  emulate<dev::Fa2Fwd<kConfig>>(p, std::int64_t{p.m_blocks} * s.batch * s.heads, memory, report);
  memory.add_traffic_to(report);
  return report;
}

TEST(Io, Fa2Bytes) {
  for (const Shape& s : shapes({64})) {
    Shape own = s;
    own.kv_heads = s.heads;
    Tensors<bf16> t(own);
    expect_bytes(fa2_forward<64>(own, t), io::fa2_forward(io_shape(s), io::fa2_forward_blocks(64)),
                 s);
  }
  const Shape s = {.seqlen_q = 256, .seqlen_k = 256, .head_dim = 128};
  Tensors<bf16> t(s);
  expect_bytes(fa2_forward<128>(s, t), io::fa2_forward(io_shape(s), io::fa2_forward_blocks(128)),
               s);
}

// ---- What the papers conclude, from the forms that the tests above tie to the kernels -----------

// B_c = M / 4d for M elements, whatever tiles allow: the papers' blocks.
io::Blocks paper_blocks(std::int64_t sram_elements, std::int64_t d) {
  const auto n = static_cast<int>(sram_elements / (4 * d));
  return {std::min(n, static_cast<int>(d)), n};
}
double fa1_bytes(std::int64_t n, std::int64_t d, std::int64_t sram_elements) {
  const io::Shape s = {.seqlen_q = n, .seqlen_k = n, .head_dim = d};
  return static_cast<double>(io::fa1_forward(s, paper_blocks(sram_elements, d)).bytes());
}
double standard_bytes(std::int64_t n, std::int64_t d) {
  const io::Shape s = {.seqlen_q = n, .seqlen_k = n, .head_dim = d};
  return static_cast<double>(io::sum(io::standard_forward(s), "").bytes());
}

TEST(Io, StandardIsNdPlusNSquared) {
  for (const double d : {32, 64, 128}) {
    for (double n = 512; n <= 65536; n *= 2) {
      const double ratio =
          standard_bytes(static_cast<int>(n), static_cast<int>(d)) / (n * d + n * n);
      EXPECT_GE(ratio, 8) << n << ", " << d;  // bytes per element of N^2 and of N d
      EXPECT_LE(ratio, 20) << n << ", " << d;
    }
  }
}

TEST(Io, Fa1IsNSquaredDSquaredOverM) {
  for (const double d : {32, 64, 128}) {
    for (const double m : {16384, 32768, 65536, 131072}) {
      for (double n = 4096; n <= 65536; n *= 2) {
        const double ratio =
            fa1_bytes(static_cast<int>(n), static_cast<int>(d), static_cast<int>(m)) /
            (n * n * d * d / m);
        // Q 2 bytes, O 8 bytes, l and m 16 / d, each N / B_c = 4 N d / M times.
        EXPECT_GE(ratio, 40) << n << ", " << d << ", " << m;
        EXPECT_LE(ratio, 60) << n << ", " << d << ", " << m;
      }
    }
  }
}

TEST(Io, BoundsMeetWhereSramIsDSquared) {
  // At M = d^2 neither N nor d nor anything else separates the two but a constant.
  double least = 1e9, most = 0;
  for (const std::int64_t d : {32, 64, 128, 256}) {
    for (std::int64_t n = 8192; n <= 65536; n *= 2) {
      const double ratio = fa1_bytes(n, d, d * d) / standard_bytes(n, d);
      least = std::min(least, ratio);
      most = std::max(most, ratio);
    }
  }
  EXPECT_GT(least, 1);  // there it is even more: nothing is gained
  EXPECT_LT(most / least, 2.5);
  // At the M of a GPU, many times d^2, it is many times less.
  EXPECT_LT(fa1_bytes(8192, 64, 51200), standard_bytes(8192, 64) / 3);
}

// ---- Operations ------------------------------------------------------------------------------

TEST(Io, RecomputationAddsTwoToEight) {
  const Shape s = {.seqlen_q = 128, .seqlen_k = 256, .head_dim = 64};
  const std::uint64_t n2d = std::uint64_t{128} * 256 * 64;
  Tensors<bf16> t(s);
  set_forward(exact(s, t), t);
  std::uint64_t standard = 0;
  const Operations backward = Standard<bf16, kType, 64>(s, t).backward();
  for (std::size_t i = 2; i < backward.size(); ++i)
    standard += backward[i].second.counters.mma_flops;
  const emu::Report fa1 = fa1_backward<bf16, kernels::fa1_bwd_config(kType, 64)>(s, t);
  EXPECT_EQ(standard, 8 * n2d);
  EXPECT_EQ(fa1.counters.mma_flops, standard + 2 * n2d);
  const emu::Report forward = fa1_forward<bf16, kernels::fa1_fwd_config(kType, 64)>(s, t);
  EXPECT_EQ(forward.counters.mma_flops, 4 * n2d);
  EXPECT_EQ(fa2_forward<64>(s, t).counters.mma_flops, 4 * n2d);
}

// FlashAttention-2, section 3.1: the same exponentials, but O is rescaled rarely instead of at
// every step, twice per element, and divided once.
TEST(Io, Fa2NeedsFewerOtherOperations) {
  for (const bool growing : {true, false}) {
    const Shape s = {.seqlen_q = 128, .seqlen_k = 512, .head_dim = 64, .growing = growing};
    const std::uint64_t n = s.seqlen_q, keys = s.seqlen_k, d = s.head_dim;
    Tensors<bf16> t(s);
    constexpr auto kConfig = kernels::fa1_fwd_config(kType, 64);
    const emu::Report fa1 = fa1_forward<bf16, kConfig>(s, t);
    const emu::Report fa2 = fa2_forward<64>(s, t);
    const std::uint64_t steps = keys / kConfig.block_n;
    EXPECT_EQ(ops(fa1, core::Op::kRescale), steps * n * (2 * d + 4));
    EXPECT_EQ(ops(fa1, core::Op::kDivide), steps * n);
    EXPECT_EQ(ops(fa1, core::Op::kExp), n * keys + steps * n * 2);
    EXPECT_LT(ops(fa2, core::Op::kRescale), ops(fa1, core::Op::kRescale));
    EXPECT_GE(ops(fa2, core::Op::kExp), n * keys);
    EXPECT_LT(all_ops(fa2), all_ops(fa1));
    RecordProperty(growing ? "growing_fa1" : "fa1", static_cast<int>(all_ops(fa1)));
    RecordProperty(growing ? "growing_fa2" : "fa2", static_cast<int>(all_ops(fa2)));
  }
}

// FlashAttention-2, section 3.3: split-Q warps exchange nothing; split-K warps exchange at least
// every partial O that is not their own.
TEST(Io, OnlyFa1ExchangesPartialOutputs) {
  const Shape s = {.seqlen_q = 128, .seqlen_k = 256, .head_dim = 64};
  Tensors<bf16> t(s);
  constexpr auto kConfig = kernels::fa1_fwd_config(kType, 64);
  const std::uint64_t partial = std::uint64_t{128} * 64 * 4 * (256 / kConfig.block_n);
  const emu::Report fa1 = fa1_forward<bf16, kConfig>(s, t);
  EXPECT_GE(fa1.counters.cross_warp_bytes, (kConfig.warps - 1) * partial);
  EXPECT_LE(fa1.counters.cross_warp_bytes, 2 * (kConfig.warps - 1) * partial);
  EXPECT_EQ(fa2_forward<64>(s, t).counters.cross_warp_bytes, 0u);
}

// ---- Predictions -----------------------------------------------------------------------------

TEST(Io, MoreFlopsFewerBytesLessTime) {
  const io::Gpu* a100 = io::find_gpu("a100");
  ASSERT_NE(a100, nullptr);
  EXPECT_EQ(io::find_gpu("none"), nullptr);
  const io::Shape s = {
      .batch = 64, .heads = 16, .seqlen_q = 1024, .seqlen_k = 1024, .head_dim = 64};
  const auto standard = io::standard_backward(s);
  const io::Work fa1 = io::fa1_backward(s, io::fa1_backward_blocks(64));
  EXPECT_GT(fa1.flops, io::sum(standard, "").flops);
  EXPECT_LT(fa1.bytes(), io::sum(standard, "").bytes());
  EXPECT_LT(io::seconds(fa1, *a100), io::seconds(standard, *a100));
  // Half of the SMs idle: half the heads take as long.
  const io::Shape few = {.heads = 54, .seqlen_q = 4096, .seqlen_k = 4096, .head_dim = 64};
  const io::Shape enough = {.heads = 108, .seqlen_q = 4096, .seqlen_k = 4096, .head_dim = 64};
  EXPECT_NEAR(io::seconds(io::fa1_forward(few, {64, 128}), *a100),
              io::seconds(io::fa1_forward(enough, {64, 128}), *a100), 1e-9);
}

}  // namespace
}  // namespace strobe::gpu_test
