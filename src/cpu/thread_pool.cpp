// Strobe's own threads: created when first needed, they spin for a few microseconds between loops,
// then sleep.
//
// One loop at a time has the pool. A caller that finds it busy runs its loop alone: it never waits,
// and two callers do not fight over the same CPUs. The caller does not wait for helpers either that
// are slow to wake: whoever runs out of indices closes the loop, and only helpers that entered
// before that are waited for.
//
// fork(): the child starts a pool of its own, wherever the parent's threads were. A child forked
// from within a loop's body may not rely on the rest of that loop.
//
// At exit, or when the library is unloaded, the threads are joined and later loops run on their
// caller alone. Where a loop still runs then, its threads end with the process.
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>

#include "cpu/loop.h"
#include "cpu/parallel.h"

namespace strobe::cpu {
namespace {

constexpr std::chrono::microseconds kHelperSpin{20};
constexpr std::chrono::microseconds kCallerSpin{50};

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

// Waits for ready() for at most about `limit`; returns its last value.
template <class Ready>
bool spin(std::chrono::microseconds limit, const Ready& ready) {
  if (ready()) return true;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  do {
    for (int i = 0; i < 16; ++i) {
      pause();
      if (ready()) return true;
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

// Constant-initialised and never destroyed, so that it can be used at any time.
class Pool {
 public:
  // False, and nothing done, where another loop has the pool or it is shut down.
  bool run(Loop& loop, int threads);
  void shut_down();

  void before_fork() { growing_.lock(); }
  void after_fork_in_parent() { growing_.unlock(); }
  void after_fork_in_child();

 private:
  // state_ holds the open slots of the loop in its high half and the helpers inside in its low one.
  static constexpr std::uint32_t kSlot = 1u << 16;
  static std::uint32_t slots(std::uint32_t state) { return state / kSlot; }
  static std::uint32_t active(std::uint32_t state) { return state % kSlot; }
  static_assert(kMaxThreads < kSlot);

  void serve();
  int enter();
  void leave();
  void park();
  bool called() const { return slots(state_.load(std::memory_order_relaxed)) > 0 || stopping_; }

  void grow(int helpers);
  void wake(int helpers);
  void finish();

  // Of the caller that has the pool. Handles, not std::thread: a forked child must forget them.
  std::atomic<bool> busy_ = false;
  std::array<pthread_t, kMaxThreads> threads_ = {};
  int size_ = 0;
  std::mutex growing_;  // held while threads are created: no fork() then

  alignas(64) std::atomic<std::uint32_t> state_ = 0;
  std::atomic<bool> caller_sleeps_ = false;
  Loop* loop_ = nullptr;  // read by helpers that have entered

  alignas(64) std::atomic<std::uint32_t> signal_ = 0;  // helpers sleep on it; counts calls
  std::atomic<int> sleeping_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<std::uint32_t> forks_ = 0;  // fork()s between the first process and this one
};

constinit Pool pool;

// Its destructor runs at exit, or before the library's code goes away.
struct Lifetime {
  Lifetime() {
    const int error =
        pthread_atfork([] { pool.before_fork(); }, [] { pool.after_fork_in_parent(); },
                       [] { pool.after_fork_in_child(); });
    if (error) pool.shut_down();
  }
  ~Lifetime() { pool.shut_down(); }
} lifetime;

// ---- The caller ---------------------------------------------------------------------------------

bool Pool::run(Loop& loop, int threads) {
  if (busy_.exchange(true, std::memory_order_acquire)) return false;
  grow(threads - 1);
  const int helpers = std::min(threads - 1, size_);
  const std::uint32_t forks = forks_.load(std::memory_order_relaxed);
  loop_ = &loop;
  state_.store(static_cast<std::uint32_t>(helpers) * kSlot);
  wake(helpers);
  loop.work(0);
  if (forks_.load(std::memory_order_relaxed) != forks) return true;  // a body forked: all is new
  finish();
  busy_.store(false, std::memory_order_release);
  return true;
}

// Best effort: with fewer threads, or none, the loop just takes longer.
void Pool::grow(int helpers) {
  if (size_ >= helpers) return;
  const std::lock_guard lock(growing_);
  auto main = [](void*) -> void* {
    pool.serve();
    return nullptr;
  };
  while (size_ < helpers && pthread_create(&threads_[size_], nullptr, main, nullptr) == 0) ++size_;
}

// Those that are awake come by themselves.
void Pool::wake(int helpers) {
  signal_.fetch_add(1);
  const int sleeping = sleeping_.load();
  const int wanted = helpers - (size_ - sleeping);
  if (wanted >= sleeping) {
    if (sleeping > 0) signal_.notify_all();
  } else {
    for (int i = 0; i < wanted; ++i) signal_.notify_one();
  }
}

// Closes the loop to newcomers and waits for those inside.
void Pool::finish() {
  state_.fetch_and(kSlot - 1, std::memory_order_acq_rel);
  auto empty = [&] { return state_.load(std::memory_order_acquire) == 0; };
  if (spin(kCallerSpin, empty)) return;
  caller_sleeps_.store(true);
  for (std::uint32_t state; (state = state_.load()) != 0;) state_.wait(state);
  caller_sleeps_.store(false);
}

// ---- The helpers --------------------------------------------------------------------------------

void Pool::serve() {
  const std::uint32_t forks = forks_.load(std::memory_order_relaxed);
  while (!stopping_) {
    if (const int worker = enter()) {
      loop_->help(worker);
      if (forks_.load(std::memory_order_relaxed) != forks) return;  // a body forked: we are alone
      leave();
    } else if (!spin(kHelperSpin, [&] { return called(); })) {
      park();
    }
  }
}

// Takes a slot of the open loop and returns its number, the worker's; 0 where there is none.
int Pool::enter() {
  std::uint32_t state = state_.load(std::memory_order_relaxed);
  while (slots(state) > 0) {
    if (state_.compare_exchange_weak(state, state - kSlot + 1, std::memory_order_acq_rel)) {
      return static_cast<int>(slots(state));
    }
  }
  return 0;
}

// No index is left, so the loop closes. The pool is all that may be touched after that.
void Pool::leave() {
  std::uint32_t state = state_.load(std::memory_order_relaxed);
  while (!state_.compare_exchange_weak(state, active(state) - 1)) {
  }
  if (active(state) == 1 && caller_sleeps_) state_.notify_one();
}

void Pool::park() {
  sleeping_.fetch_add(1);
  const std::uint32_t seen = signal_.load();
  if (state_.load() < kSlot && !stopping_) signal_.wait(seen);
  sleeping_.fetch_sub(1);
}

// ---- Exit and fork ------------------------------------------------------------------------------

void Pool::shut_down() {
  if (busy_.exchange(true, std::memory_order_acquire)) return;  // and it stays busy
  stopping_ = true;
  signal_.fetch_add(1);
  signal_.notify_all();
  for (int i = 0; i < size_; ++i) pthread_join(threads_[i], nullptr);
  size_ = 0;
}

void Pool::after_fork_in_child() {
  growing_.unlock();
  size_ = 0;
  state_ = 0;
  caller_sleeps_ = false;
  sleeping_ = 0;
  forks_.fetch_add(1);
  busy_ = stopping_.load();
}

}  // namespace

const char* parallel_name() { return "pool"; }

void run_on_threads(Loop& loop, int threads) {
  if (!pool.run(loop, threads)) loop.work(0);
}

}  // namespace strobe::cpu
