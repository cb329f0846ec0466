#include "emu/shadow.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <numeric>

namespace strobe::emu {
namespace {

// Written by the host.
constexpr Epoch kByHost = {0, kHost, 1, 0, 0, 0, 1};

Epoch epoch_of(const Access& a, bool write) {
  return {a.tick, a.cta, a.lanes, a.actor, a.site, a.atomic, write};
}

bool same_actor(const Epoch& e, const Access& a) { return e.cta == a.cta && e.actor == a.actor; }

// Those of `lanes` of e whose accesses `a` does not know to be done.
std::uint32_t unordered(const Epoch& e, std::uint32_t lanes, const Access& a) {
  if (e.cta == kHost) return 0;
  if (e.cta == a.cta && (lanes & (lanes - 1)) == 0) {  // the usual case
    const auto actor = static_cast<Actor>(e.actor + std::countr_zero(lanes));
    return a.known->own(actor) < e.tick ? lanes : 0;
  }
  if (!a.known->world().holds(e.cta)) return lanes;
  std::uint32_t found = 0;
  for (std::uint32_t left = lanes; left != 0; left &= left - 1) {
    const auto actor = static_cast<Actor>(e.actor + std::countr_zero(left));
    if (a.known->of(e.cta, actor) < e.tick) found |= left & -left;
  }
  return found;
}

bool ordered(const Epoch& e, const Access& a) { return unordered(e, e.lanes, a) == 0; }

void note(Conflict& conflict, const Epoch& e, const Access& a) {
  if (conflict.found || (e.atomic && a.atomic)) return;
  std::uint32_t lanes = e.lanes;
  if (a.in_order && same_actor(e, a)) lanes &= ~a.lanes;
  if (lanes != 0) lanes = unordered(e, lanes, a);
  if (lanes == 0) return;
  conflict = {true, e};
  conflict.earlier.lanes = lanes;
}

}  // namespace

void Shadow::resize(std::uint64_t bytes, bool written) {
  Node node;
  if (written) node.writer = kByHost;
  blocks_.assign((bytes + kBlock - 1) / kBlock, node);
  if (parts_.empty()) parts_.emplace_back();
  free_parts_.resize(parts_.size() - 1);
  std::iota(free_parts_.begin(), free_parts_.end(), 1u);
  free_all_lists();
}

void Shadow::free_all_lists() {
  if (lists_.empty()) lists_.emplace_back();
  free_lists_.resize(lists_.size() - 1);
  std::iota(free_lists_.begin(), free_lists_.end(), 1u);
}

void Shadow::end_launch() {
  const auto forget = [](Node& n) {
    const bool written = n.writer.lanes != 0;
    n.writer = written ? kByHost : Epoch();
    n.other = Epoch();
    n.list = 0;
  };
  for (Node& n : blocks_) forget(n);
  for (auto& parts : parts_) std::for_each(parts.begin(), parts.end(), forget);
  free_all_lists();
}

std::uint32_t Shadow::new_list() {
  if (free_lists_.empty()) {
    lists_.emplace_back();
    return static_cast<std::uint32_t>(lists_.size() - 1);
  }
  const std::uint32_t list = free_lists_.back();
  free_lists_.pop_back();
  lists_[list].clear();
  return list;
}

void Shadow::free_list(Node& n) {
  if (n.list != 0) free_lists_.push_back(n.list);
  n.list = 0;
}

// ---- Walking
// ---------------------------------------------------------------------------------

template <class Visitor>
void Shadow::visit(std::uint64_t begin, std::uint64_t size, Visitor& v) {
  const std::uint64_t end = begin + size;
  for (std::uint64_t at = begin; at < end;) {
    const std::uint64_t block = at / kBlock * kBlock;
    const std::uint64_t stop = std::min(end, block + kBlock);
    descend(blocks_[block / kBlock], kBlock, static_cast<std::uint32_t>(at - block),
            static_cast<std::uint32_t>(stop - block), v);
    at = stop;
  }
}

// Bytes [begin, end) of a node of `bytes` bytes.
template <class Visitor>
void Shadow::descend(Node& n, std::uint32_t bytes, std::uint32_t begin, std::uint32_t end,
                     Visitor& v) {
  if (bytes == 1 || (begin == 0 && end == bytes)) {
    apply(n, bytes, v);
    return;
  }
  if (n.split == 0) split(n);
  const std::uint32_t part = bytes / 4;
  auto& parts = parts_[n.split];
  for (std::uint32_t p = begin / part; p * part < end; ++p) {
    const std::uint32_t from = std::max(begin, p * part) - p * part;
    const std::uint32_t to = std::min(end, (p + 1) * part) - p * part;
    descend(parts[p], part, from, to, v);
  }
}

void Shadow::split(Node& n) {
  std::uint32_t parts;
  if (free_parts_.empty()) {
    parts = static_cast<std::uint32_t>(parts_.size());
    parts_.emplace_back();
  } else {
    parts = free_parts_.back();
    free_parts_.pop_back();
  }
  for (std::uint32_t p = 0; p < 4; ++p) {
    Node part = n;
    if (n.list != 0 && p > 0) {
      part.list = new_list();
      lists_[part.list] = lists_[n.list];
    }
    parts_[parts][p] = part;
  }
  n = Node();
  n.split = parts;
}

// ---- Writes
// ----------------------------------------------------------------------------------

void Shadow::set(Node& n, const Epoch& writer) {
  free_list(n);
  n.writer = writer;
  n.other = Epoch();
}

void Shadow::apply(Node& n, std::uint32_t bytes, Writing& w) {
  if (n.split != 0) {
    for (Node& part : parts_[n.split]) apply(part, bytes / 4, w);
    if (w.a.atomic) return;  // each part may have kept others
    for (Node& part : parts_[n.split]) free_list(part);
    free_parts_.push_back(n.split);
    n.split = 0;
    set(n, epoch_of(w.a, true));
    return;
  }
  note(w.conflict, n.writer, w.a);
  note(w.conflict, n.other, w.a);
  if (n.list != 0) {
    for (const Epoch& e : lists_[n.list]) note(w.conflict, e, w.a);
  }
  if (w.a.atomic) {
    keep_atomics(n, w.a);
  } else {
    set(n, epoch_of(w.a, true));
  }
}

// An atomic write need not come after the atomics before it, so these stay known: a plain access
// must be ordered after all of them.
void Shadow::keep_atomics(Node& n, const Access& a) {
  const Epoch last = n.writer;
  n.writer = epoch_of(a, true);
  if (!last.atomic || ordered(last, a)) return;
  if (same_actor(last, a) && last.lanes == a.lanes) return;
  if (!a.known->world().holds(last.cta)) {
    // Of other worlds one is enough: whoever comes next is unordered with it or with the writer.
    free_list(n);
    n.other = last;
    return;
  }
  Access earlier = a;
  earlier.cta = last.cta;
  earlier.actor = last.actor;
  earlier.lanes = last.lanes;
  add_other(n, last, earlier);
}

// ---- Reads
// -----------------------------------------------------------------------------------

void Shadow::apply(Node& n, std::uint32_t bytes, Reading& r) {
  if (n.split != 0) {
    for (Node& part : parts_[n.split]) apply(part, bytes / 4, r);
    return;
  }
  const Epoch& w = n.writer;
  if (w.lanes == 0) {
    *r.unwritten = true;
  } else if (w.cta != kHost) {
    note(r.conflict, w, r.a);
    if (w.atomic && !r.a.atomic) {
      if (n.other.write) note(r.conflict, n.other, r.a);
      if (n.list != 0) {
        for (const Epoch& e : lists_[n.list]) {
          if (e.write) note(r.conflict, e, r.a);
        }
      }
    }
    if (!same_actor(w, r.a) && w.actor < r.a.threads && r.a.actor < r.a.threads)
      *r.other_warp += bytes;
  }
  const Epoch& o = n.other;
  if (n.list == 0 && same_actor(o, r.a) && o.tick == r.a.tick && (o.lanes & r.a.lanes)) return;
  add_other(n, epoch_of(r.a, false), r.a);
}

// Adds `me`, an access of a, to those that a later write must be ordered after.
void Shadow::add_other(Node& n, const Epoch& me, const Access& a) {
  const auto joins = [&](Epoch& e) {
    if (!same_actor(e, a) || e.tick != me.tick || e.atomic != me.atomic || e.write != me.write)
      return false;
    e.lanes |= me.lanes;
    e.site = me.site;
    return true;
  };
  // Takes from e what `me` stands for as well; whether e became empty.
  const auto superseded = [&](Epoch& e) {
    if ((e.write && !me.write) || (!e.atomic && me.atomic)) return false;
    if (same_actor(e, a) && (a.in_order || e.tick < me.tick)) {
      e.lanes &= ~me.lanes;
      if (e.lanes == 0) return true;
    }
    return ordered(e, a);
  };
  Epoch& first = n.other;
  if (first.lanes == 0 || joins(first)) {
    if (first.lanes == 0) first = me;
    return;
  }
  if (n.list == 0) {
    if (superseded(first)) {
      first = me;
      return;
    }
    n.list = new_list();
    lists_[n.list].push_back(me);
    return;
  }
  auto& list = lists_[n.list];
  for (Epoch& e : list) {
    if (joins(e)) return;
  }
  for (std::size_t i = list.size(); i-- > 0;) {
    if (!superseded(list[i])) continue;
    list[i] = list.back();
    list.pop_back();
  }
  if (superseded(first)) {
    first = me;
  } else {
    list.push_back(me);
  }
}

// ---- Interface
// -------------------------------------------------------------------------------

void Shadow::mark_written(std::uint64_t begin, std::uint64_t size) {
  static const Clock nothing;
  const Access host = {kHost, 0, 1, 0, &nothing, 0, 0, true, false};
  Writing w = {host};
  visit(begin, size, w);
}

Conflict Shadow::read(std::uint64_t begin, std::uint64_t size, const Access& a, bool* unwritten,
                      std::uint64_t* other_warp) {
  Reading r = {a, unwritten, other_warp};
  visit(begin, size, r);
  return r.conflict;
}

Conflict Shadow::write(std::uint64_t begin, std::uint64_t size, const Access& a) {
  Writing w = {a};
  visit(begin, size, w);
  return w.conflict;
}

}  // namespace strobe::emu
