// Asynchronous operations: effects that have been issued and have not landed.
#ifndef STROBE_SRC_EMU_ASYNC_H_
#define STROBE_SRC_EMU_ASYNC_H_

#include <cstdint>
#include <vector>

#include "emu/clock.h"

namespace strobe::emu {

struct Cta;

struct Effect {
  void (*land)(Cta& cta, const Effect& effect);
  const void* from;
  std::uint32_t to, bytes;  // as `land` understands them
  Tick tick;                // of the queue's actor: the effect is done when a thread knows it
};

// The effects of one actor, in no order among themselves. Waits force them up to a tick.
struct AsyncQueue {
  Cta* cta = nullptr;
  Actor actor = 0;
  Tick open = 1;    // tick of what is issued now
  Tick issued = 0;  // of the last effect issued
  std::vector<Effect> pending;
  std::uint32_t busy_index = 0;  // in World::busy_, where something is pending
};

}  // namespace strobe::emu

#endif  // STROBE_SRC_EMU_ASYNC_H_
