// A fiber: a stack and where it stopped. Switching never throws and never unwinds; a fiber that is
// given up is simply not resumed, so kernel code must own nothing that needs a destructor.
#ifndef STROBE_SRC_EMU_FIBER_H_
#define STROBE_SRC_EMU_FIBER_H_

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define STROBE_FIBER_ASAN 1
#else
#define STROBE_FIBER_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define STROBE_FIBER_TSAN 1
#else
#define STROBE_FIBER_TSAN 0
#endif

namespace strobe::emu {

class Fiber {
 public:
  static constexpr std::size_t kStackBytes = std::size_t{256} * 1024;

  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Makes the next switch_to() start entry(argument) on a fresh stack. entry must not return: it
  // ends by leave_for(). False when there is no memory for the stack.
  bool start(void (*entry)(void*), void* argument);

  // Suspends `from`, which is running, and resumes `to`. A Fiber that was never started stands for
  // the thread that called switch_to from it.
  //
  // Inlined, as is all on the way to it from an operation: each return after a switch is one that
  // the processor predicts wrongly.
  [[gnu::always_inline]] static void switch_to(Fiber& from, Fiber& to) { jump(from, to, false); }
  // The same when `from` will not be resumed.
  [[noreturn]] static void leave_for(Fiber& from, Fiber& to);
  // Gives up a fiber that is suspended, from `from`. For the sanitizers' books: without them it
  // does nothing.
  void give_up(Fiber& from);

 private:
  [[gnu::always_inline]] static void jump(Fiber& from, Fiber& to, bool for_good);
  // What every switch does on arrival: note where the other fiber stopped.
  [[gnu::always_inline]] static Fiber* arrive(boost::context::detail::transfer_t transfer);
  static void run(boost::context::detail::transfer_t transfer);

  void* stack_ = nullptr;  // lowest address, above a guard page
  void* context_ = nullptr;
  Fiber* to_ = nullptr;  // whom it has switched to
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  // The sanitizers' view.
  void* fake_stack_ = nullptr;
  const void* bottom_ = nullptr;
  std::size_t size_ = 0;
  void* tsan_ = nullptr;
  bool suspended_ = false, given_up_ = false;
};

inline void Fiber::jump(Fiber& from, Fiber& to, [[maybe_unused]] bool for_good) {
  from.to_ = &to;
#if STROBE_FIBER_ASAN
  __sanitizer_start_switch_fiber(for_good ? nullptr : &from.fake_stack_, to.bottom_, to.size_);
  from.suspended_ = !for_good;
  to.suspended_ = false;
#endif
#if STROBE_FIBER_TSAN
  if (!from.tsan_) from.tsan_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to.tsan_, 0);
#endif
  arrive(boost::context::detail::jump_fcontext(to.context_, &from));
}

inline Fiber* Fiber::arrive(boost::context::detail::transfer_t transfer) {
  Fiber* const from = static_cast<Fiber*>(transfer.data);
  Fiber* const self = from->to_;
  from->context_ = transfer.fctx;
#if STROBE_FIBER_ASAN
  __sanitizer_finish_switch_fiber(self->fake_stack_, &from->bottom_, &from->size_);
  if (self->given_up_) leave_for(*self, *from);
#endif
  return self;
}

}  // namespace strobe::emu

#endif  // STROBE_SRC_EMU_FIBER_H_
