// Happens-before shadows: for every byte of memory, who wrote last and who has read since, each
// with the tick of its actor then. An access races with an earlier one if its actor has not, by
// barriers, learnt of that tick. (FastTrack: Flanagan and Freund, PLDI 2009.)
//
// Asynchronous operations are actors of their own, beside the thread that issued them: the copies
// of cp.async that thread t issued are one, whose tick is the number of the group. So a missing
// wait is a race like any other. docs/design/emulator.md says how further ones join.
#ifndef STROBE_SRC_EMU_SHADOW_H_
#define STROBE_SRC_EMU_SHADOW_H_

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "emu/clock.h"

namespace strobe::emu {

// One access, as its actor sees the world.
struct Access {
  CtaId cta;
  Actor actor;          // a thread: the first of its warp
  std::uint32_t lanes;  // a thread: one bit, its lane; others: 1
  Tick tick;
  const Clock* known;  // of the thread that issues the access
  std::uint16_t site;
  Actor threads;        // actors below are threads
  bool in_order;        // later accesses of this actor come after this one; not so for
                        // copies
  bool atomic = false;  // atomics do not race with each other
};

// Accesses of one kind that lanes of one warp, or one other actor, made at one tick.
struct Epoch {
  Tick tick = 0;
  CtaId cta = kHost;
  std::uint32_t lanes = 0;  // 0: none
  Actor actor = 0;
  std::uint16_t site : 14 = 0;
  std::uint16_t atomic : 1 = 0;
  std::uint16_t write : 1 = 0;
};

struct Conflict {
  bool found = false;
  Epoch earlier = {};  // its lanes: those that are unordered
};

class Shadow {
 public:
  // written: by the host, before the launch.
  void resize(std::uint64_t bytes, bool written = false);
  // Forgets who accessed what, as the end of a launch does; keeps what was written.
  void end_launch();
  void mark_written(std::uint64_t begin, std::uint64_t size);  // by the host

  // Bytes [begin, begin + size). `unwritten` says whether some byte was never written; `other_warp`
  // counts bytes last written by a thread of another warp.
  Conflict read(std::uint64_t begin, std::uint64_t size, const Access& a, bool* unwritten,
                std::uint64_t* other_warp);
  Conflict write(std::uint64_t begin, std::uint64_t size, const Access& a);

 private:
  static constexpr std::uint64_t kBlock = 16;  // bytes of a top node

  // Bytes that share a history: 16, or, where accesses have cut finer, 4 or 1.
  struct Node {
    Epoch writer;
    // Who has read since, and atomic writers that nothing ordered before the last.
    Epoch other;
    std::uint32_t list = 0;   // not 0: more of `other`, in lists_
    std::uint32_t split = 0;  // not 0: four parts in parts_ instead
  };
  struct Reading {
    const Access& a;
    bool* unwritten;
    std::uint64_t* other_warp;
    Conflict conflict = {};
  };
  struct Writing {
    const Access& a;
    Conflict conflict = {};
  };

  template <class Visitor>
  void visit(std::uint64_t begin, std::uint64_t size, Visitor& v);
  template <class Visitor>
  void descend(Node& n, std::uint32_t bytes, std::uint32_t begin, std::uint32_t end, Visitor& v);
  void apply(Node& n, std::uint32_t bytes, Reading& r);
  void apply(Node& n, std::uint32_t bytes, Writing& w);
  void split(Node& n);
  void set(Node& n, const Epoch& writer);
  void add_other(Node& n, const Epoch& me, const Access& a);
  void keep_atomics(Node& n, const Access& a);
  std::uint32_t new_list();
  void free_list(Node& n);
  void free_all_lists();

  std::vector<Node> blocks_;
  // Both have an unused entry 0.
  std::deque<std::array<Node, 4>> parts_;  // references stay valid as it grows
  std::vector<std::uint32_t> free_parts_;
  std::vector<std::vector<Epoch>> lists_;
  std::vector<std::uint32_t> free_lists_;
};

}  // namespace strobe::emu

#endif  // STROBE_SRC_EMU_SHADOW_H_
