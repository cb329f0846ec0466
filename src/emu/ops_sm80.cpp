// Operations of Ampere: cp.async, ldmatrix, mma.sync.
#include <cstring>

#include "emu/ops.h"
#include "emu/world.h"

// Also for machines with AVX2. The sanitizers cannot take the choice at load time.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define STROBE_EMU_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define STROBE_EMU_CLONES
#endif

namespace strobe::emu {

// ---- cp.async
// --------------------------------------------------------------------------------

namespace {

void land_copy(Cta& cta, const Effect& e) {
  if (e.from) {
    std::memcpy(cta.at(e.to), e.from, e.bytes);
  } else {
    std::memset(cta.at(e.to), 0, e.bytes);
  }
}

}  // namespace

void cp_async(std::uint32_t to, const void* from, std::uint32_t bytes, bool valid,
              const Here& here) {
  World& w = *running.world;
  Thread& t = *running.thread;
  if (valid) w.check_global(t, from, bytes, false, false, here, &t.copies);
  w.check_shared(t, to, bytes, true, here, &t.copies);
  w.log_banks(t, to, bytes, true, here);
  t.copies_issued_at = here;
  w.issue(t.copies, {land_copy, valid ? from : nullptr, to, bytes, t.copies.open});
}

void cp_async_commit(const Here& here) {
  running.world->hit(here, 1);
  ++running.thread->copies.open;
}

void cp_async_wait(std::uint32_t pending, const Here& here) {
  Thread& t = *running.thread;
  running.world->hit(here, 1);
  const Tick closed = t.copies.open - 1;
  if (closed > pending) running.world->land_through(t.copies, closed - pending, t);
}

// ---- ldmatrix and mma.sync
// ----------------------------------------------------------------------

namespace {

template <class T>
T& arg(const Warp& warp, std::uint32_t lane) {
  return *static_cast<T*>(warp.args[lane]);
}

struct LdmatrixArg {
  std::uint32_t address;
  bool transposed;
  core::u32x4 result;
};

void execute_ldmatrix(World& w, Warp& warp, std::uint32_t, const Here& here) {
  std::uint16_t matrix[4][8][8];
  std::uint32_t rows[8];
  for (std::uint32_t m = 0; m < 4; ++m) {
    for (std::uint32_t r = 0; r < 8; ++r) {
      Thread& t = *warp.lanes[m * 8 + r];
      rows[r] = arg<LdmatrixArg>(warp, m * 8 + r).address;
      w.check_shared(t, rows[r], 16, false, here);
      std::memcpy(matrix[m][r], t.cta->at(rows[r]), 16);
    }
    w.count_row_banks(rows);
  }
  for (std::uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    auto& a = arg<LdmatrixArg>(warp, lane);
    const std::uint32_t g = lane / 4, c = 2 * (lane % 4);
    for (int m = 0; m < 4; ++m) {
      const std::uint32_t lo = a.transposed ? matrix[m][c][g] : matrix[m][g][c];
      const std::uint32_t hi = a.transposed ? matrix[m][c + 1][g] : matrix[m][g][c + 1];
      a.result[m] = lo | hi << 16;
    }
  }
}
constexpr CollectiveOp kLdmatrix = {"ldmatrix", execute_ldmatrix, true};
constexpr CollectiveOp kLdmatrixTrans = {"ldmatrix.trans", execute_ldmatrix, true};

struct MmaArg {
  float* d;
  const core::u32x4* a;
  std::uint32_t b[2];
};

template <bool kBf16>
float lo(std::uint32_t bits) {
  return kBf16 ? core::bit_cast<float>(bits << 16) : f16_value(static_cast<std::uint16_t>(bits));
}
template <bool kBf16>
float hi(std::uint32_t bits) {
  return kBf16 ? core::bit_cast<float>(bits & 0xFFFF0000u)
               : f16_value(static_cast<std::uint16_t>(bits >> 16));
}

// d += a b, the products of one element added one by one, k upwards, where tensor cores add several
// at once. The products are exact in float32, so that fused multiply-adds would change nothing.
STROBE_EMU_CLONES void multiply(float (&d)[16][8], const float (&a)[16][16],
                                const float (&b)[16][8]) {
  using Row = float __attribute__((vector_size(32)));
  for (int first = 0; first < 16; first += 8) {
    Row sum[8];
    std::memcpy(sum, d[first], sizeof(sum));
    for (int k = 0; k < 16; ++k) {
      Row column;
      std::memcpy(&column, b[k], sizeof(column));
      for (int i = 0; i < 8; ++i) sum[i] += a[first + i][k] * column;
    }
    std::memcpy(d[first], sum, sizeof(sum));
  }
}

template <bool kBf16>
void execute_mma(World& w, Warp& warp, std::uint32_t, const Here&) {
  float a[16][16], b[16][8], d[16][8];
  const auto unpack = [](float* at, int stride, std::uint32_t bits) {
    at[0] = lo<kBf16>(bits);
    at[stride] = hi<kBf16>(bits);
  };
  for (std::uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    const auto& m = arg<MmaArg>(warp, lane);
    const std::uint32_t g = lane / 4, t = 2 * (lane % 4);
    unpack(&a[g][t], 1, (*m.a)[0]);
    unpack(&a[g + 8][t], 1, (*m.a)[1]);
    unpack(&a[g][t + 8], 1, (*m.a)[2]);
    unpack(&a[g + 8][t + 8], 1, (*m.a)[3]);
    unpack(&b[t][g], 8, m.b[0]);
    unpack(&b[t + 8][g], 8, m.b[1]);
    std::memcpy(&d[g][t], m.d, 2 * sizeof(float));
    std::memcpy(&d[g + 8][t], m.d + 2, 2 * sizeof(float));
  }
  multiply(d, a, b);
  for (std::uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    const auto& m = arg<MmaArg>(warp, lane);
    const std::uint32_t g = lane / 4, t = 2 * (lane % 4);
    std::memcpy(m.d, &d[g][t], 2 * sizeof(float));
    std::memcpy(m.d + 2, &d[g + 8][t], 2 * sizeof(float));
  }
  w.counters().mma_flops += std::uint64_t{2} * 16 * 8 * 16;
}
constexpr CollectiveOp kMmaBf16 = {"mma.sync bf16", execute_mma<true>, true};
constexpr CollectiveOp kMmaF16 = {"mma.sync f16", execute_mma<false>, true};

constexpr std::uint32_t kAllLanes = 0xFFFFFFFFu;

}  // namespace

core::u32x4 ldmatrix_x4(std::uint32_t address, bool transposed, const Here& here) {
  LdmatrixArg mine = {address, transposed, {}};
  running.world->collective(transposed ? kLdmatrixTrans : kLdmatrix, kAllLanes, &mine, here);
  return mine.result;
}

void mma_m16n8k16(bool is_bf16, float (&d)[4], const core::u32x4& a, std::uint32_t b0,
                  std::uint32_t b1, const Here& here) {
  MmaArg mine = {d, &a, {b0, b1}};
  running.world->collective(is_bf16 ? kMmaBf16 : kMmaF16, kAllLanes, &mine, here);
}

}  // namespace strobe::emu
