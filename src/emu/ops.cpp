#include "emu/ops.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <mutex>

#include "emu/world.h"

namespace strobe::emu {
namespace {

World& world() { return *running.world; }
Thread& self() { return *running.thread; }

template <class T>
T& arg(const Warp& warp, std::uint32_t lane) {
  return *static_cast<T*>(warp.args[lane]);
}

}  // namespace

std::uint32_t thread_index() { return self().index; }
std::uint32_t cta_index() { return self().cta->id; }
std::uint32_t grid_size() { return world().launch().grid; }
void count(core::Op op, std::uint32_t n) { world().counters().ops[static_cast<int>(op)] += n; }

// ---- Barriers
// --------------------------------------------------------------------------------

void barrier(std::uint32_t id, std::uint32_t threads, bool wait, const Here& here) {
  World& w = world();
  Thread& t = self();
  if (threads == 0) threads = w.launch().threads;
  if (id >= kNamedBarriers || threads % kWarpLanes != 0 || threads > w.launch().threads) {
    w.fail(HazardKind::kBarrier,
           fmt::format("barrier {} of {} threads: ids are 0 to 15, counts "
                       "multiples of 32 up to the "
                       "CTA's {}",
                       id, threads, w.launch().threads),
           here);
  }
  NamedBarrier& b = t.cta->barriers[id];
  if (b.expected == 0) {
    b.expected = threads;
    b.here = here;
    b.first_thread = t.index;
    w.reset_clock(b.clock, t);
  } else if (b.expected != threads) {
    w.fail(HazardKind::kBarrier,
           fmt::format("barrier {}: {} threads here, {} at {}:{}", id, threads, b.expected,
                       b.here.file, b.here.line),
           here);
  }
  ++w.counters().barriers;
  w.hit(here, 1);
  t.release_to(b.clock);
  if (++b.arrived < b.expected) {
    if (!wait) return;
    b.waiting.push_back(&t);
    w.block("barrier", id, here);
    return;
  }
  for (Thread* other : b.waiting) {
    other->clock.join(b.clock);
    w.wake(*other);
  }
  if (wait) t.clock.join(b.clock);
  b.waiting.clear();
  b.expected = b.arrived = 0;
}

namespace {

// Lanes of a mask, lowest first.
template <class F>
void for_lanes(std::uint32_t mask, F f) {
  for (; mask != 0; mask &= mask - 1) f(static_cast<std::uint32_t>(std::countr_zero(mask)));
}

void execute_warp_sync(World& world, Warp& warp, std::uint32_t mask, const Here&) {
  Clock all;
  world.reset_clock(all, *running.thread);
  for_lanes(mask, [&](std::uint32_t lane) { warp.lanes[lane]->release_to(all); });
  for_lanes(mask, [&](std::uint32_t lane) { warp.lanes[lane]->clock.join(all); });
}
constexpr CollectiveOp kWarpSync = {"warp_sync", execute_warp_sync};

}  // namespace

void warp_sync(std::uint32_t mask, const Here& here) {
  world().collective(kWarpSync, mask, nullptr, here);
}

// ---- Shuffles and votes
// ----------------------------------------------------------------------

namespace {

struct ShuffleArg {
  std::uint32_t value, from, result;
};
void execute_shuffle(World&, Warp& warp, std::uint32_t mask, const Here&) {
  for_lanes(mask, [&](std::uint32_t lane) {
    auto& a = arg<ShuffleArg>(warp, lane);
    a.result = mask >> a.from & 1 ? arg<ShuffleArg>(warp, a.from).value : 0;
  });
}
constexpr CollectiveOp kShuffle = {"shuffle", execute_shuffle};

struct BallotArg {
  bool x;
  std::uint32_t result;
};
void execute_ballot(World&, Warp& warp, std::uint32_t mask, const Here&) {
  std::uint32_t bits = 0;
  for_lanes(mask, [&](std::uint32_t lane) {
    if (arg<BallotArg>(warp, lane).x) bits |= 1u << lane;
  });
  for_lanes(mask, [&](std::uint32_t lane) { arg<BallotArg>(warp, lane).result = bits; });
}
constexpr CollectiveOp kBallot = {"vote", execute_ballot};

}  // namespace

std::uint32_t shuffle(std::uint32_t value, std::uint32_t from, const Here& here) {
  ShuffleArg mine = {value, from % kWarpLanes, 0};
  ++world().counters().shuffles;
  world().collective(kShuffle, 0xFFFFFFFFu, &mine, here);
  return mine.result;
}

std::uint32_t ballot(bool x, const Here& here) {
  BallotArg mine = {x, 0};
  ++world().counters().shuffles;
  world().collective(kBallot, 0xFFFFFFFFu, &mine, here);
  return mine.result;
}

// ---- Memory
// ----------------------------------------------------------------------------------

void load_shared(std::uint32_t address, void* to, std::uint32_t bytes, const Here& here) {
  Thread& t = self();
  world().check_shared(t, address, bytes, false, here);
  world().log_banks(t, address, bytes, false, here);
  std::memcpy(to, t.cta->at(address), bytes);
}

void store_shared(std::uint32_t address, const void* from, std::uint32_t bytes, const Here& here) {
  Thread& t = self();
  world().check_shared(t, address, bytes, true, here);
  world().log_banks(t, address, bytes, true, here);
  std::memcpy(t.cta->at(address), from, bytes);
}

void load_global(const void* address, void* to, std::uint32_t bytes, const Here& here) {
  world().check_global(self(), address, bytes, false, false, here);
  std::memcpy(to, address, bytes);
}

void store_global(void* address, const void* from, std::uint32_t bytes, const Here& here) {
  world().check_global(self(), address, bytes, true, false, here);
  std::memcpy(address, from, bytes);
}

// ---- Atomics
// ---------------------------------------------------------------------------------

void reduce_add_f32(float* p, float value, const Here& here) {
  Tensor& tensor = world().check_global(self(), p, 4, true, true, here);
  ++world().counters().atomics;
  const std::lock_guard lock(tensor.mutex);
  *p += value;
}

std::uint32_t atomic_add_u32(std::uint32_t* p, std::uint32_t value, bool release,
                             const Here& here) {
  World& w = world();
  Thread& t = self();
  Tensor& tensor = w.check_global(t, p, 4, true, true, here);
  ++w.counters().atomics;
  const std::lock_guard lock(tensor.mutex);
  Clock& released = tensor.released[reinterpret_cast<std::uintptr_t>(p)];
  if (released.world() != t.clock.world()) {
    w.reset_clock(released, t);  // CTAs that do not run together order nothing
  }
  if (t.acquired.empty()) w.reset_clock(t.acquired, t);
  t.acquired.join(released);
  if (release) {
    t.release_to(released);
  } else {
    released.join(t.fence);
  }
  const std::uint32_t old = *p;
  *p += value;
  return old;
}

std::uint32_t load_acquire(const std::uint32_t* p, const Here& here) {
  Thread& t = self();
  // An atomic read: it may meet an atomic write.
  Tensor& tensor = world().check_global(t, p, 4, false, true, here);
  const std::lock_guard lock(tensor.mutex);
  const auto found = tensor.released.find(reinterpret_cast<std::uintptr_t>(p));
  if (found != tensor.released.end()) t.clock.join(found->second);
  return *p;
}

void fence_device(const Here& here) {
  Thread& t = self();
  world().hit(here, 1);
  t.clock.join(t.acquired);
  if (t.fence.empty()) world().reset_clock(t.fence, t);
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
      &wait, "device memory to reach", value, here);
}

}  // namespace strobe::emu
