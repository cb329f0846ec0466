// A fiber: a stack and where it stopped. Switching never throws and never
// unwinds; a fiber that is given up is simply not resumed, so kernel code must
// own nothing that needs a destructor.
#ifndef STROBE_SRC_EMU_FIBER_H_
#define STROBE_SRC_EMU_FIBER_H_

#include <cstddef>

namespace strobe::emu {

class Fiber {
 public:
  static constexpr std::size_t kStackBytes = 256 * 1024;

  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Makes the next switch_to() start entry(argument) on a fresh stack. entry
  // must not return: it ends by leave_for(). False when there is no memory for
  // the stack.
  bool start(void (*entry)(void*), void* argument);

  // Suspends `from`, which is running, and resumes `to`. A Fiber that was never
  // started stands for the thread that called switch_to from it.
  static void switch_to(Fiber& from, Fiber& to);
  // The same when `from` will not be resumed.
  [[noreturn]] static void leave_for(Fiber& from, Fiber& to);
  // Gives up a fiber that is suspended, from `from`. For the sanitizers' books:
  // without them it does nothing.
  void give_up(Fiber& from);

 private:
  friend struct FiberEntry;
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

}  // namespace strobe::emu

#endif  // STROBE_SRC_EMU_FIBER_H_
