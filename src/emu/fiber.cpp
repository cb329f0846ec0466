#include "emu/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <mutex>
#include <vector>

#if STROBE_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace strobe::emu {
namespace {

namespace context = boost::context::detail;
constexpr std::size_t kGuardBytes = 4096;

// Stacks are used again: mapping one costs more than running a small CTA.
class StackPool {
 public:
  ~StackPool() {
    for (void* stack : free_) unmap(stack);
  }
  void* take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        void* stack = free_.back();
        free_.pop_back();
        return stack;
      }
    }
    void* base = mmap(nullptr, kGuardBytes + Fiber::kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    mprotect(base, kGuardBytes, PROT_NONE);
    return static_cast<char*>(base) + kGuardBytes;
  }
  void give(void* stack) {
    const std::lock_guard lock(mutex_);
    free_.push_back(stack);
  }

 private:
  static void unmap(void* stack) {
    munmap(static_cast<char*>(stack) - kGuardBytes, kGuardBytes + Fiber::kStackBytes);
  }
  std::mutex mutex_;
  std::vector<void*> free_;
};

StackPool& stacks() {
  static StackPool pool;
  return pool;
}

// Where a fiber's frames begin, below the top of its stack. Lanes of a warp run the same code in
// turn: were their frames to lie at the same place of their pages, they would share a few sets of
// the cache.
std::size_t colour(const void* stack) {
  return reinterpret_cast<std::uintptr_t>(stack) / (kGuardBytes + Fiber::kStackBytes) * 1088 % 8192;
}

}  // namespace

void Fiber::run(context::transfer_t transfer) {
  Fiber* self = arrive(transfer);
  self->entry_(self->argument_);
}

Fiber::~Fiber() {
#if STROBE_FIBER_TSAN
  if (stack_ && tsan_) __tsan_destroy_fiber(tsan_);
#endif
  if (stack_) stacks().give(stack_);
}

bool Fiber::start(void (*entry)(void*), void* argument) {
  if (!stack_) stack_ = stacks().take();
  if (!stack_) return false;
  entry_ = entry;
  argument_ = argument;
  context_ = context::make_fcontext(static_cast<char*>(stack_) + kStackBytes - colour(stack_),
                                    kStackBytes - colour(stack_), run);
#if STROBE_FIBER_ASAN
  __asan_unpoison_memory_region(stack_, kStackBytes);
  bottom_ = stack_;
  size_ = kStackBytes;
  fake_stack_ = nullptr;
  suspended_ = given_up_ = false;
#endif
#if STROBE_FIBER_TSAN
  if (tsan_) __tsan_destroy_fiber(tsan_);
  tsan_ = __tsan_create_fiber(0);
#endif
  return true;
}

void Fiber::leave_for(Fiber& from, Fiber& to) {
  jump(from, to, true);
  __builtin_unreachable();
}

void Fiber::give_up([[maybe_unused]] Fiber& from) {
#if STROBE_FIBER_ASAN
  if (!suspended_) return;
  given_up_ = true;
  switch_to(from, *this);
#endif
}

}  // namespace strobe::emu
