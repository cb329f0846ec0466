// Happens-before shadows: for every two bytes of memory, who wrote last and who has read since,
// each with the clock of its thread then. An access races with an earlier one if its thread has
// not, by barriers, learnt of that clock. (FastTrack: Flanagan and Freund, PLDI 2009, with the
// readers of one warp folded into the latest.)
//
// Actors are threads and what they set off: the copies of cp.async that thread t issued are an
// actor of their own, whose clock is the number of the group, so that a missing wait is a race like
// any other.
#ifndef STROBE_SRC_EMU_SHADOW_H_
#define STROBE_SRC_EMU_SHADOW_H_

#include <cstdint>
#include <vector>

#include "emu/report.h"

namespace strobe::emu {

using Tick = std::uint32_t;
using Actor = std::uint16_t;
constexpr Actor kNobody = 0xFFFF;
constexpr Actor kSeveral = 0xFFFE;  // the readers are in a list

// What one actor knows of the clocks of all: clock[a] = everything that a did up to then is done.
using VectorClock = std::vector<Tick>;
void join(VectorClock& into, const VectorClock& from);

// CTAs that run together, and so may order each other, are a world. Actors are numbered within it.
constexpr std::uint32_t kHostWorld = 0;  // what was there before the launch: ordered before all

// One access, as its thread sees the world.
struct Access {
  std::uint32_t world;
  Actor actor;
  Tick tick;
  Actor warp_first, warp_last;  // actors of the same warp, [first, last); empty for copies
  Actor threads;                // actors below are threads, the others copies
  const VectorClock* known;     // of the thread that issues the access
  std::uint16_t site;
  bool in_order;        // later accesses of this actor come after this one; not so for copies
  bool atomic = false;  // atomics do not race with each other
};

struct Epoch {
  Tick tick = 0;
  std::uint32_t world = kHostWorld;
  Actor actor = kNobody;
  std::uint16_t site : 15 = 0;
  std::uint16_t atomic : 1 = 0;
};

struct Conflict {
  bool found = false;
  bool write = false;  // the earlier access was a write
  Epoch earlier = {};
};

class Shadow {
 public:
  static constexpr std::uint32_t kGranule = 2;

  // written: by the host, before the launch.
  void resize(std::uint64_t bytes, bool written = false);
  // Forgets who accessed what, as the end of a launch does; keeps what was written.
  void end_launch();
  void mark_written(std::uint64_t begin, std::uint64_t size);  // by the host

  // Bytes [begin, begin + size). `unwritten` says whether some byte was never written;
  // `other_warp` counts bytes last written by a thread of another warp.
  Conflict read(std::uint64_t begin, std::uint64_t size, const Access& a, bool* unwritten,
                std::uint64_t* other_warp);
  Conflict write(std::uint64_t begin, std::uint64_t size, const Access& a);

 private:
  struct Cell {
    Epoch writer;
    Epoch reader;  // with kSeveral: tick is the index of the list
  };
  static bool ordered(const Epoch& e, const Access& a) {
    return e.world == a.world ? (*a.known)[e.actor] >= e.tick : e.world == kHostWorld;
  }
  static bool clash(const Epoch& e, const Access& a) {
    if (e.world == a.world && e.actor == a.actor && a.in_order) return false;
    return !(e.atomic && a.atomic) && !ordered(e, a);
  }
  void add_reader(Cell& cell, const Access& a);

  std::vector<Cell> cells_;
  std::vector<std::vector<Epoch>> lists_;
  std::vector<std::uint32_t> free_lists_;
};

}  // namespace strobe::emu

#endif  // STROBE_SRC_EMU_SHADOW_H_
