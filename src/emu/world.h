// CTAs whose CUDA threads are fibers, their barriers and shared memory, and the scheduler that runs
// them in seeded random order. Operations of src/emu/isa_*.h are thin calls of the functions in
// ops.h, which act for the fiber that is running.
#ifndef STROBE_SRC_EMU_WORLD_H_
#define STROBE_SRC_EMU_WORLD_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "emu/async.h"
#include "emu/fiber.h"
#include "emu/machine.h"
#include "emu/shadow.h"
#include "emu/sites.h"

namespace strobe::emu {

struct Collective;
struct Cta;
struct Warp;
class World;

// One access to shared memory, kept until the accesses of the warp's other lanes are known.
struct BankAccess {
  std::uint32_t address;
  Site site;
  std::uint8_t bytes;
  bool write;
};

struct alignas(64) Thread {
  Fiber fiber;
  Cta* cta = nullptr;
  Warp* warp = nullptr;
  std::uint32_t index = 0;  // in its CTA; also its actor
  Clock clock;
  bool exited = false;
  // What it waits for outside collectives, or last waited for: for reports.
  const char* waits_for = "nothing";
  std::uint32_t waits_id = 0;
  Here waits_at;

  AsyncQueue copies;  // of cp.async; ticks are groups
  Here copies_issued_at;
  std::vector<BankAccess> bank_log;
  Clock fence;     // what the last device fence released; empty: none
  Clock acquired;  // what relaxed atomics have read and a fence would acquire
  Tensor* last_tensor = nullptr;

  std::uint32_t lane() const { return index % kWarpLanes; }
  // For reports: the collective that it waits in, or null; and all that it waits for.
  const Collective* collective() const;
  std::string state() const;
  Actor actor() const { return static_cast<Actor>(index); }
  // Lets whoever joins `to` know all that this thread has done so far.
  void release_to(Clock& to);
};

// An operation that lanes of a warp execute together; args of the lanes of mask lie in Warp::args.
struct CollectiveOp {
  const char* name;
  void (*execute)(World& world, Warp& warp, std::uint32_t mask, const Here& here);
  bool whole = false;  // needs a warp of 32 lanes
};

// A collective operation that some lanes of a warp have reached.
struct Collective {
  const CollectiveOp* op = nullptr;
  std::uint32_t mask = 0, arrived = 0;
  Here here;
};

struct Warp {
  Cta* cta = nullptr;
  std::uint32_t index = 0;
  std::uint32_t lane_mask = 0;    // lanes that exist
  std::uint32_t exited = 0;       // of these
  std::uint32_t runnable = 0;     // lanes that may be resumed; not the one that runs
  std::uint32_t ready_index = 0;  // in World::ready_, where runnable != 0
  std::uint32_t open_count = 0;
  bool bank_logged = false;  // some lane has a bank_log
  std::array<void*, kWarpLanes> args;
  std::array<Thread*, kWarpLanes> lanes;
  std::array<Collective, kWarpLanes> open;  // the first open_count
};

struct NamedBarrier {
  std::uint32_t expected = 0;  // 0: idle
  std::uint32_t arrived = 0;
  std::vector<Thread*> waiting;
  Clock clock;
  Here here;  // of the first arrival
  std::uint32_t first_thread = 0;
};

struct Cta {
  std::uint32_t id = 0;
  std::vector<unsigned char> shared;
  Shadow shadow;
  std::array<NamedBarrier, kNamedBarriers> barriers;
  std::vector<Warp*> warps;

  CtaId shadow_id() const { return id + 1; }
  unsigned char* at(std::uint32_t address) { return shared.data() + (address - kSharedBase); }
};

// What a run of some CTAs has found.
struct Tally {
  std::vector<Hazard> hazards;
  Counters counters;
  std::vector<TensorTraffic> traffic;  // by Tensor::number, without names
  std::vector<std::uint64_t> hits;     // by site
};

class World {
 public:
  World(const Launch& launch, Memory& memory, Sites& sites);

  // Runs CTAs [first, first + ctas()). A hazard ends it.
  Tally run(std::uint32_t first);
  std::uint32_t ctas() const { return static_cast<std::uint32_t>(ctas_.size()); }
  const Launch& launch() const { return launch_; }
  Counters& counters() { return tally_.counters; }

  // Of the running thread. fail() records a hazard and gives the whole world up: it does not
  // return, so callers hold nothing that needs a destructor. `by` is the thread to name, where that
  // is not the running one.
  [[noreturn]] void fail(HazardKind kind, std::string message, const Here& here,
                         const Thread* by = nullptr);
  // The same, for hazards that Launch::go_on lets pass.
  void flaw(HazardKind kind, std::string message, const Here& here, const Thread& by);
  void block(const char* what, std::uint32_t id, const Here& here);
  void wake(Thread& t);

  // Blocks until ready(argument), evaluated by the running thread now and then, is true.
  void poll(bool (*ready)(void*), void* argument, const char* what, std::uint32_t id,
            const Here& here);

  // Of the running thread, with the other lanes of mask: the last to arrive executes for all.
  [[gnu::always_inline]] void collective(const CollectiveOp& op, std::uint32_t mask, void* mine,
                                         const Here& here);

  // Knows nothing, and is of t's CTA.
  void reset_clock(Clock& clock, const Thread& t) const;

  // Checked accesses of thread `by`, or of its asynchronous operations in `queue`.
  void check_shared(Thread& by, std::uint32_t address, std::uint32_t bytes, bool write,
                    const Here& here, const AsyncQueue* queue = nullptr);
  // Returns the tensor that holds the bytes.
  Tensor& check_global(Thread& by, const void* address, std::uint32_t bytes, bool write,
                       bool atomic, const Here& here, const AsyncQueue* queue = nullptr);

  void issue(AsyncQueue& queue, const Effect& effect);
  // Lands what is pending up to `tick`, which thread t then knows.
  void land_through(AsyncQueue& queue, Tick tick, Thread& t);

  // Counts executions of an operation of a line that no access counts.
  Site hit(const Here& here, std::uint64_t count);

  void log_banks(Thread& t, std::uint32_t address, std::uint32_t bytes, bool write,
                 const Here& here);
  // Eight rows of 16 bytes that one instruction reads at once.
  void count_row_banks(const std::uint32_t (&addresses)[8]);

 private:
  // World::entry's argument is the Thread.
  static void entry(void* thread);
  bool begin(std::uint32_t first);
  void begin(Thread& t);
  [[noreturn]] void finish();
  Thread* pick();
  // The running thread cannot go on until it is made runnable.
  [[gnu::always_inline]] void suspend(Thread& self);
  [[noreturn]] void stop_deadlocked();
  [[noreturn]] void leave();  // for the host, never to be resumed
  void set_runnable(Warp& warp, std::uint32_t lanes);
  Collective& join_collective(const CollectiveOp& op, std::uint32_t mask, const Here& here);
  void execute(const CollectiveOp& op, Warp& warp, std::uint32_t mask, const Here& here);
  void report_deadlock();
  void check_leaks();
  void land(AsyncQueue& queue, std::size_t effect);
  void count_banks(Warp& warp);
  void count_banks(const BankAccess* accesses, std::uint32_t count);

  Access access(const Thread& by, const Here& here, const AsyncQueue* queue);
  std::string conflict_text(const Conflict& c, bool write) const;
  std::string actor_name(CtaId cta, Actor actor) const;
  std::uint64_t random() {  // splitmix64
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }

  const Launch launch_;
  Memory& memory_;
  Sites& sites_;
  SiteCache site_cache_;
  WorldIds ids_;
  std::uint64_t state_ = 0;
  std::uint64_t restless_ = 0;  // 2^n - 1: every 2^n-th switch may go to any warp
  std::vector<std::unique_ptr<Cta>> ctas_;
  std::vector<std::unique_ptr<Warp>> warps_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Warp*> ready_;       // warps with a runnable lane, each once
  std::vector<Thread*> polling_;   // blocked in poll()
  std::vector<AsyncQueue*> busy_;  // queues with pending effects, each once
  // Counts what may end a poll, so that fruitless rounds of polling show.
  std::uint64_t progress_ = 1, polled_at_ = 0;
  Fiber host_;
  std::uint32_t alive_ = 0;
  Tally tally_;
};

// The fiber that is running on this OS thread, and its world. Fibers do not change threads.
struct Running {
  World* world = nullptr;
  Thread* thread = nullptr;
};
inline thread_local constinit Running running;

inline void World::suspend(Thread& self) {
  Thread* next = pick();
  if (!next) stop_deadlocked();
  if (next == &self) return;
  ++counters().switches;
  running.thread = next;
  Fiber::switch_to(self.fiber, next->fiber);
}

inline void World::collective(const CollectiveOp& op, std::uint32_t mask, void* mine,
                              const Here& here) {
  Thread& t = *running.thread;
  Warp& warp = *t.warp;
  const std::uint32_t me = 1u << t.lane();
  mask &= warp.lane_mask;
  Collective& open = join_collective(op, mask, here);
  warp.args[t.lane()] = mine;
  open.arrived |= me;
  if (open.arrived != mask) {
    suspend(t);
    return;
  }
  open = warp.open[--warp.open_count];
  execute(op, warp, mask, here);
  if (mask != me) set_runnable(warp, mask & ~me);
}

}  // namespace strobe::emu

#endif  // STROBE_SRC_EMU_WORLD_H_
