#include "emu/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "emu/machine.h"

namespace strobe::emu {
namespace {

World& world() { return *running().world; }
Thread& self() { return *running().thread; }

template <class T>
T& arg(void* const* args, std::uint32_t lane) {
  return *static_cast<T*>(args[lane]);
}

}  // namespace

std::uint32_t thread_index() { return self().index; }
std::uint32_t cta_index() { return self().cta->id; }
std::uint32_t grid_size() { return world().launch().grid; }
void count(core::Op op, std::uint32_t n) { world().counters().ops[static_cast<int>(op)] += n; }

// ---- Barriers --------------------------------------------------------------------------------

void barrier(std::uint32_t id, std::uint32_t threads, bool wait, const Here& here) {
  World& w = world();
  Thread& t = self();
  if (threads == 0) threads = w.launch().threads;
  if (id >= kNamedBarriers || threads % kWarpLanes != 0 || threads > w.launch().threads) {
    w.fail(
        HazardKind::kBarrier,
        fmt::format("barrier {} of {} threads: ids are 0 to 15, counts multiples of 32 up to the "
                    "CTA's {}",
                    id, threads, w.launch().threads),
        here);
  }
  NamedBarrier& b = t.cta->barriers[id];
  if (b.expected == 0) {
    b.expected = threads;
    b.here = here;
    b.clock.assign(t.clock.size(), 0);
  } else if (b.expected != threads) {
    w.fail(HazardKind::kBarrier,
           fmt::format("barrier {}: {} threads here, {} at {}:{}", id, threads, b.expected,
                       b.here.file, b.here.line),
           here);
  }
  ++w.counters().barriers;
  t.release_to(b.clock);
  if (++b.arrived < b.expected) {
    if (!wait) return;
    b.waiting.push_back(&t);
    w.block("barrier", id, here);
    return;
  }
  for (Thread* other : b.waiting) {
    join(other->clock, b.clock);
    w.wake(*other);
  }
  if (wait) join(t.clock, b.clock);
  b.waiting.clear();
  b.expected = b.arrived = 0;
}

void warp_sync(std::uint32_t mask, const Here& here) {
  World& w = world();
  w.collective(
      "warp_sync", mask, &self(),
      [](World&, Warp& warp, void* const* args, const Here&) {
        // The lanes that take part are those whose argument is their own thread.
        VectorClock all(warp.lanes[0]->clock.size(), 0);
        for (std::uint32_t lane = 0; lane < kWarpLanes; ++lane) {
          if (args[lane]) static_cast<Thread*>(args[lane])->release_to(all);
        }
        for (std::uint32_t lane = 0; lane < kWarpLanes; ++lane) {
          if (args[lane]) join(static_cast<Thread*>(args[lane])->clock, all);
        }
      },
      here);
}

// ---- Shuffles --------------------------------------------------------------------------------

namespace {
struct ShuffleArg {
  std::uint32_t value, from, result;
};
struct BallotArg {
  bool x;
  std::uint32_t result;
};
}  // namespace

std::uint32_t shuffle(std::uint32_t value, std::uint32_t from, const Here& here) {
  ShuffleArg mine = {value, from % kWarpLanes, 0};
  ++world().counters().shuffles;
  world().collective(
      "shuffle", 0xFFFFFFFFu, &mine,
      [](World&, Warp& warp, void* const* args, const Here&) {
        for (std::uint32_t lane = 0; lane < kWarpLanes; ++lane) {
          if (!(warp.lane_mask >> lane & 1)) continue;
          auto& a = arg<ShuffleArg>(args, lane);
          a.result = args[a.from] ? arg<ShuffleArg>(args, a.from).value : 0;
        }
      },
      here);
  return mine.result;
}

std::uint32_t ballot(bool x, const Here& here) {
  BallotArg mine = {x, 0};
  ++world().counters().shuffles;
  world().collective(
      "vote", 0xFFFFFFFFu, &mine,
      [](World&, Warp&, void* const* args, const Here&) {
        std::uint32_t bits = 0;
        for (std::uint32_t lane = 0; lane < kWarpLanes; ++lane) {
          if (args[lane] && arg<BallotArg>(args, lane).x) bits |= 1u << lane;
        }
        for (std::uint32_t lane = 0; lane < kWarpLanes; ++lane) {
          if (args[lane]) arg<BallotArg>(args, lane).result = bits;
        }
      },
      here);
  return mine.result;
}

// ---- Memory ----------------------------------------------------------------------------------

void load_shared(std::uint32_t address, void* to, std::uint32_t bytes, const Here& here) {
  world().check_shared(address, bytes, false, here, self());
  std::memcpy(to, world().shared_at(address, self()), bytes);
}

void store_shared(std::uint32_t address, const void* from, std::uint32_t bytes, const Here& here) {
  world().check_shared(address, bytes, true, here, self());
  std::memcpy(world().shared_at(address, self()), from, bytes);
}

void load_global(const void* address, void* to, std::uint32_t bytes, const Here& here) {
  world().check_global(address, bytes, false, false, here, self());
  std::memcpy(to, address, bytes);
}

void store_global(void* address, const void* from, std::uint32_t bytes, const Here& here) {
  world().check_global(address, bytes, true, false, here, self());
  std::memcpy(address, from, bytes);
}

void reduce_add_f32(float* p, float value, const Here& here) {
  Thread& t = self();
  world().check_global(p, 4, true, true, here, t);
  ++world().counters().atomics;
  const std::lock_guard lock(t.last_tensor->mutex);
  *p += value;
}

std::uint32_t atomic_add_u32(std::uint32_t* p, std::uint32_t value, bool release,
                             const Here& here) {
  World& w = world();
  Thread& t = self();
  w.check_global(p, 4, true, true, here, t);
  ++w.counters().atomics;
  const std::lock_guard lock(t.last_tensor->mutex);
  VectorClock& clock = t.last_tensor->released[reinterpret_cast<std::uintptr_t>(p)];
  if (clock.size() == t.clock.size()) {
    if (t.acquired.empty()) t.acquired.assign(t.clock.size(), 0);
    join(t.acquired, clock);
  }
  if (release) {
    t.release_to(clock);
  } else if (!t.fence.empty()) {
    if (clock.size() != t.fence.size()) clock.assign(t.fence.size(), 0);
    join(clock, t.fence);
  }
  const std::uint32_t old = *p;
  *p += value;
  return old;
}

std::uint32_t load_acquire(const std::uint32_t* p, const Here& here) {
  World& w = world();
  Thread& t = self();
  // An atomic read: it may meet an atomic write.
  w.check_global(p, 4, false, true, here, t);
  const std::lock_guard lock(t.last_tensor->mutex);
  const auto found = t.last_tensor->released.find(reinterpret_cast<std::uintptr_t>(p));
  if (found != t.last_tensor->released.end()) join(t.clock, found->second);
  return *p;
}

void fence_device(const Here&) {
  Thread& t = self();
  if (!t.acquired.empty()) join(t.clock, t.acquired);
  if (t.fence.empty()) t.fence.assign(t.clock.size(), 0);
  t.release_to(t.fence);
}

void spin_until_equal(const std::uint32_t* p, std::uint32_t value, const Here& here) {
  struct Wait {
    const std::uint32_t* p;
    std::uint32_t value;
    Here here;
  } wait = {p, value, here};
  world().poll(
      [](void* argument) {
        const auto& wanted = *static_cast<Wait*>(argument);
        return load_acquire(wanted.p, wanted.here) == wanted.value;
      },
      &wait, "device memory to reach a value", here);
}

// ---- cp.async --------------------------------------------------------------------------------

void cp_async(std::uint32_t to, const void* from, std::uint32_t bytes, bool valid,
              const Here& here) {
  World& w = world();
  Thread& t = self();
  if (valid) w.check_global(from, bytes, false, false, here, t, t.open_group);
  w.check_shared(to, bytes, true, here, t, t.open_group);
  t.copies.push_back({to, valid ? static_cast<const char*>(from) : nullptr, bytes, t.open_group});
  if (w.launch().landing == Landing::kImmediate) w.land(t, t.copies.size() - 1);
}

void cp_async_commit(const Here&) { ++self().open_group; }

void cp_async_wait(std::uint32_t pending, const Here&) {
  Thread& t = self();
  if (t.open_group > pending + 1) world().land_through(t, t.open_group - 1 - pending);
}

// ---- Conversions -----------------------------------------------------------------------------

std::uint16_t bf16_bits(float x) {
  const auto bits = core::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return 0x7FFF;
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

float f16_value(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t magnitude = h & 0x7FFFu;
  if (magnitude >= 0x7C00u)
    return core::bit_cast<float>(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13);
  if (magnitude < 0x400u) {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return sign ? -value : value;
  }
  return core::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
}

std::uint16_t f16_bits(float x) {
  const auto bits = core::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const float magnitude = std::fabs(x);
  if (std::isnan(x)) return 0x7FFF;
  if (magnitude >= 65520.0f) return sign | 0x7C00u;
  if (magnitude < 0x1p-14f) {  // subnormal: a multiple of 2^-24
    return sign | static_cast<std::uint16_t>(std::nearbyint(magnitude * 0x1p24f));
  }
  const std::uint32_t m = bits & 0x7FFFFFFFu;
  return sign | static_cast<std::uint16_t>((m - (112u << 23) + 0xFFFu + (m >> 13 & 1)) >> 13);
}

// ---- ldmatrix and mma.sync ----------------------------------------------------------------------

namespace {

struct LdmatrixArg {
  std::uint32_t address;
  bool transposed;
  core::u32x4 result;
};

// One wavefront per matrix when its eight rows lie in different groups of four banks.
void count_wavefronts(Counters& counters, void* const* args, std::uint32_t matrix) {
  std::uint32_t rows_in[8] = {};
  std::uint32_t seen[8][8];
  std::uint32_t most = 1;
  for (std::uint32_t r = 0; r < 8; ++r) {
    const std::uint32_t address = arg<LdmatrixArg>(args, matrix * 8 + r).address;
    const std::uint32_t group = address / 16 % 8;
    std::uint32_t* const begin = seen[group];
    if (std::find(begin, begin + rows_in[group], address) == begin + rows_in[group]) {
      seen[group][rows_in[group]++] = address;
    }
    most = std::max(most, rows_in[group]);
  }
  counters.shared_wavefronts += most;
  counters.bank_conflicts += most - 1;
}

void execute_ldmatrix(World& w, Warp& warp, void* const* args, const Here& here) {
  std::uint16_t matrix[4][8][8];
  for (std::uint32_t m = 0; m < 4; ++m) {
    for (std::uint32_t r = 0; r < 8; ++r) {
      Thread& t = *warp.lanes[m * 8 + r];
      const std::uint32_t address = arg<LdmatrixArg>(args, m * 8 + r).address;
      w.check_shared(address, 16, false, here, t);
      std::memcpy(matrix[m][r], w.shared_at(address, t), 16);
    }
    count_wavefronts(w.counters(), args, m);
  }
  for (std::uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    auto& a = arg<LdmatrixArg>(args, lane);
    const std::uint32_t g = lane / 4, c = 2 * (lane % 4);
    for (int m = 0; m < 4; ++m) {
      const std::uint32_t lo = a.transposed ? matrix[m][c][g] : matrix[m][g][c];
      const std::uint32_t hi = a.transposed ? matrix[m][c + 1][g] : matrix[m][g][c + 1];
      a.result[m] = lo | hi << 16;
    }
  }
}

struct MmaArg {
  bool is_bf16;
  float* d;
  const core::u32x4* a;
  std::uint32_t b[2];
};

void unpack(bool is_bf16, std::uint32_t bits, float* lo, float* hi) {
  if (is_bf16) {
    *lo = core::bit_cast<float>(bits << 16);
    *hi = core::bit_cast<float>(bits & 0xFFFF0000u);
  } else {
    *lo = f16_value(static_cast<std::uint16_t>(bits));
    *hi = f16_value(static_cast<std::uint16_t>(bits >> 16));
  }
}

void execute_mma(World& w, Warp&, void* const* args, const Here&) {
  float a[16][16], b[16][8], d[16][8];
  for (std::uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    const auto& m = arg<MmaArg>(args, lane);
    const std::uint32_t g = lane / 4, t = 2 * (lane % 4);
    for (std::uint32_t r = 0; r < 4; ++r) {
      float* at = &a[g + 8 * (r % 2)][t + 8 * (r / 2)];
      unpack(m.is_bf16, (*m.a)[static_cast<int>(r)], at, at + 1);
      d[g + 8 * (r / 2)][t + r % 2] = m.d[r];
    }
    for (std::uint32_t r = 0; r < 2; ++r) {
      unpack(m.is_bf16, m.b[r], &b[t + 8 * r][g], &b[t + 8 * r + 1][g]);
    }
  }
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) {
      for (int j = 0; j < 8; ++j) d[i][j] += a[i][k] * b[k][j];
    }
  }
  for (std::uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    const auto& m = arg<MmaArg>(args, lane);
    const std::uint32_t g = lane / 4, t = 2 * (lane % 4);
    for (std::uint32_t r = 0; r < 4; ++r) m.d[r] = d[g + 8 * (r / 2)][t + r % 2];
  }
  w.counters().mma_flops += std::uint64_t{2} * 16 * 8 * 16;
}

}  // namespace

core::u32x4 ldmatrix_x4(std::uint32_t address, bool transposed, const Here& here) {
  LdmatrixArg mine = {address, transposed, {}};
  world().collective("ldmatrix", 0xFFFFFFFFu, &mine, execute_ldmatrix, here);
  return mine.result;
}

void mma_m16n8k16(bool is_bf16, float (&d)[4], const core::u32x4& a, std::uint32_t b0,
                  std::uint32_t b1, const Here& here) {
  MmaArg mine = {is_bf16, d, &a, {b0, b1}};
  world().collective("mma.sync", 0xFFFFFFFFu, &mine, execute_mma, here);
}

}  // namespace strobe::emu
