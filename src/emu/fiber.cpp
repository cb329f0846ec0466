#include "emu/fiber.h"

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>
#include <mutex>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define STROBE_FIBER_ASAN 1
#else
#define STROBE_FIBER_ASAN 0
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

struct Switch {
  Fiber* from;
  Fiber* to;
};

}  // namespace

struct FiberEntry {
  // What every switch does on arrival: note where the other fiber stopped.
  static Fiber* arrive(context::transfer_t transfer) {
    const Switch s = *static_cast<Switch*>(transfer.data);
    s.from->context_ = transfer.fctx;
#if STROBE_FIBER_ASAN
    __sanitizer_finish_switch_fiber(s.to->asan_stack_, &s.from->asan_bottom_, &s.from->asan_size_);
#endif
    return s.to;
  }
  static void run(context::transfer_t transfer) {
    Fiber* self = arrive(transfer);
    self->entry_(self->argument_);
  }
};

Fiber::Fiber(Fiber&& other) noexcept
    : stack_(std::exchange(other.stack_, nullptr)),
      context_(other.context_),
      entry_(other.entry_),
      argument_(other.argument_) {}

Fiber::~Fiber() {
  if (stack_) stacks().give(stack_);
}

bool Fiber::start(void (*entry)(void*), void* argument) {
  if (!stack_) stack_ = stacks().take();
  if (!stack_) return false;
  entry_ = entry;
  argument_ = argument;
  context_ = context::make_fcontext(static_cast<char*>(stack_) + kStackBytes, kStackBytes,
                                    FiberEntry::run);
#if STROBE_FIBER_ASAN
  __asan_unpoison_memory_region(stack_, kStackBytes);
  asan_bottom_ = stack_;
  asan_size_ = kStackBytes;
  asan_stack_ = nullptr;
#endif
  return true;
}

void Fiber::switch_to(Fiber& from, Fiber& to) {
  Switch s = {&from, &to};
#if STROBE_FIBER_ASAN
  __sanitizer_start_switch_fiber(&from.asan_stack_, to.asan_bottom_, to.asan_size_);
#endif
  FiberEntry::arrive(context::jump_fcontext(to.context_, &s));
}

}  // namespace strobe::emu
