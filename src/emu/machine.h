// The emulated GPU: CTAs whose CUDA threads are fibers, their barriers and shared memory, and the
// scheduler that runs them in seeded random order. Operations of src/emu/isa_*.h are thin calls of
// the functions below, which act for the fiber that is running.
#ifndef STROBE_SRC_EMU_MACHINE_H_
#define STROBE_SRC_EMU_MACHINE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "emu/fiber.h"
#include "emu/memory.h"
#include "emu/report.h"
#include "emu/shadow.h"

namespace strobe::emu {

// When an asynchronous operation's effect lands.
enum class Landing {
  kImmediate,  // as it is issued: shows a place reused too early
  kLate,       // as late as the waits allow: shows a missing wait by its values
  kRandom,     // at a seeded time in between
};

struct Launch {
  const char* name;
  std::uint32_t grid;
  std::uint32_t threads;
  std::uint32_t shared_bytes;
  bool together = false;  // all CTAs in one world: they wait for each other through device memory
  void (*entry)(const void* params);
  const void* params;
  std::uint64_t seed = 1;
  Landing landing = Landing::kRandom;
  int host_threads = 1;
};

// Runs one launch to its end, or until a hazard: then CTAs not yet run are left out. Adds hazards
// and counters to `report`; traffic stays with the tensors (Memory::add_traffic_to).
void run(const Launch& launch, Memory& memory, Report& report);

constexpr std::uint32_t kWarpLanes = 32;
constexpr std::uint32_t kMaxThreads = 1024;
constexpr std::uint32_t kMaxSharedBytes = 232448;  // 227 KiB: Hopper's and Blackwell's limit
// Shared-memory addresses start here, as they do on a GPU whose driver keeps the first KiB.
constexpr std::uint32_t kSharedBase = 1024;
constexpr int kNamedBarriers = 16;

class World;
struct Cta;
struct Warp;

// A copy that cp.async has issued and that has not landed.
struct Copy {
  std::uint32_t to;  // shared-memory address
  const char* from;  // null: zeros
  std::uint32_t bytes;
  Tick group;
};

struct Thread {
  Fiber fiber;
  Cta* cta = nullptr;
  Warp* warp = nullptr;
  std::uint32_t index = 0;  // in its CTA
  Actor actor = 0;          // in its world; its copies are actor + World::threads()
  VectorClock clock;
  bool exited = false;
  // What it waits for, for reports.
  const char* waits_for = nullptr;
  std::uint32_t waits_id = 0;
  Here waits_at;

  std::vector<Copy> copies;
  Tick open_group = 1;  // number of the group that the next commit closes

  VectorClock fence;     // what the last device fence released; empty: none
  VectorClock acquired;  // what relaxed atomics have read and a fence would acquire
  Tensor* last_tensor = nullptr;

  std::uint32_t lane() const { return index % kWarpLanes; }
  Tick tick() const { return clock[actor]; }
  void release_to(VectorClock& to) {
    if (to.size() != clock.size()) to.assign(clock.size(), 0);
    join(to, clock);
    ++clock[actor];
  }
};

// A collective operation that some lanes of a warp have reached.
struct Collective {
  const char* what = nullptr;  // null: none open
  std::uint32_t mask = 0;
  std::uint32_t arrived = 0;
  Here here;
  std::array<void*, kWarpLanes> args;
};

struct Warp {
  Cta* cta = nullptr;
  std::uint32_t index = 0;
  std::array<Thread*, kWarpLanes> lanes;
  std::uint32_t lane_mask = 0;    // lanes that exist
  std::uint32_t runnable = 0;     // lanes that may be resumed; not the one that runs
  std::uint32_t ready_index = 0;  // in World::ready_, where runnable != 0
  std::array<Collective, 4> collectives;
};

struct NamedBarrier {
  std::uint32_t expected = 0;  // 0: idle
  std::uint32_t arrived = 0;
  std::vector<Thread*> waiting;
  VectorClock clock;
  Here here;
};

struct Cta {
  std::uint32_t id = 0;
  std::vector<unsigned char> shared;
  Shadow shadow;
  std::array<NamedBarrier, kNamedBarriers> barriers;
  std::vector<Warp*> warps;
};

using Execute = void (*)(World& world, Warp& warp, void* const* args, const Here& here);

class World {
 public:
  World(const Launch& launch, Memory& memory);

  // Runs CTAs [first, first + ctas()). False when a hazard ended it.
  bool run(std::uint32_t first, Report& report);
  std::uint32_t ctas() const { return static_cast<std::uint32_t>(ctas_.size()); }
  Actor threads() const { return static_cast<Actor>(threads_.size()); }
  const Launch& launch() const { return launch_; }
  Memory& memory() { return memory_; }
  Counters& counters() { return counters_; }
  std::uint64_t random() {  // splitmix64
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }

  // Of the running fiber. fail() records a hazard and gives the whole world up: it does not return.
  [[noreturn]] void fail(HazardKind kind, std::string message, const Here& here);
  void block(const char* what, std::uint32_t id, const Here& here);
  void yield();  // stays runnable
  void wake(Thread& t);
  void finish();  // the running thread has ended

  // Polls until ready(argument), evaluated by the running thread, is true.
  void poll(bool (*ready)(void*), void* argument, const char* what, const Here& here);

  void collective(const char* what, std::uint32_t mask, void* mine, Execute execute,
                  const Here& here);

  // Checked accesses for the running thread, and for its copies (of group `group`).
  void check_shared(std::uint32_t address, std::uint32_t bytes, bool write, const Here& here,
                    Thread& by, Tick copy_group = 0);
  void check_global(const void* address, std::uint32_t bytes, bool write, bool atomic,
                    const Here& here, Thread& by, Tick copy_group = 0);
  unsigned char* shared_at(std::uint32_t address, Thread& by) {
    return by.cta->shared.data() + (address - kSharedBase);
  }
  void land(Thread& t, std::size_t copy);
  void land_through(Thread& t, Tick group);

  std::uint16_t site(const Here& here);
  std::string site_name(std::uint16_t site) const;
  std::string actor_name(Actor actor) const;

 private:
  static void entry(void* thread);
  Thread* pick();
  void switch_to_next();
  void begin(std::uint32_t first);
  [[noreturn]] void leave();  // for the host, never to be resumed
  void set_runnable(Thread& t);
  std::string deadlock_text() const;
  void check_leaks();
  Access access(Thread& by, const Here& here, Tick copy_group);
  std::string conflict_text(const Conflict& c, bool write) const;

  const Launch launch_;
  Memory& memory_;
  std::uint32_t id_ = 0;  // first CTA + 1, as shadows know it
  std::uint64_t state_ = 0;
  std::vector<std::unique_ptr<Cta>> ctas_;
  std::vector<std::unique_ptr<Warp>> warps_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Warp*> ready_;  // warps with a runnable lane, each once
  std::vector<Thread*> polling_;
  // Counts what may end a poll, so that fruitless rounds of polling show.
  std::uint64_t progress_ = 1, polled_at_ = 0;
  Fiber host_;
  std::uint32_t alive_ = 0;
  bool abandoned_ = false;
  Report* report_ = nullptr;
  Counters counters_;
  std::vector<Here> sites_;
  struct CachedSite {
    const char* file = nullptr;
    int line = 0;
    std::uint16_t site = 0;
  };
  std::array<CachedSite, 256> site_cache_;
};

// The fiber that is running on this OS thread, and its world.
struct Running {
  World* world = nullptr;
  Thread* thread = nullptr;
};
Running& running();

}  // namespace strobe::emu

#endif  // STROBE_SRC_EMU_MACHINE_H_
