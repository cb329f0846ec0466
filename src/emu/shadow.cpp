#include "emu/shadow.h"

#include <algorithm>

namespace strobe::emu {

void join(VectorClock& into, const VectorClock& from) {
  Tick* __restrict a = into.data();
  const Tick* __restrict b = from.data();
  const std::size_t n = std::min(into.size(), from.size());
  for (std::size_t i = 0; i < n; ++i) a[i] = std::max(a[i], b[i]);
}

void Shadow::resize(std::uint64_t bytes, bool written) {
  Cell cell;
  if (written) cell.writer.actor = 0;
  cells_.assign((bytes + kGranule - 1) / kGranule, cell);
  lists_.clear();
  free_lists_.clear();
}

void Shadow::end_launch() {
  for (Cell& cell : cells_) {
    const bool written = cell.writer.actor != kNobody;
    cell = Cell();
    if (written) cell.writer.actor = 0;
  }
  lists_.clear();
  free_lists_.clear();
}

void Shadow::mark_written(std::uint64_t begin, std::uint64_t size) {
  Cell cell;
  cell.writer.actor = 0;
  std::fill(cells_.begin() + static_cast<std::ptrdiff_t>(begin / kGranule),
            cells_.begin() + static_cast<std::ptrdiff_t>((begin + size + kGranule - 1) / kGranule),
            cell);
}

void Shadow::add_reader(Cell& cell, const Access& a) {
  Epoch& r = cell.reader;
  const Epoch me = {a.tick, a.world, a.actor, a.site, a.atomic};
  const auto replaceable = [&](const Epoch& e) {
    if (e.world != a.world) return false;
    return (e.actor >= a.warp_first && e.actor < a.warp_last) || e.actor == a.actor ||
           ordered(e, a);
  };
  if (r.actor == kNobody || (r.actor != kSeveral && replaceable(r))) {
    r = me;
    return;
  }
  if (r.actor != kSeveral) {
    const Epoch first = r;
    std::uint32_t index;
    if (free_lists_.empty()) {
      index = static_cast<std::uint32_t>(lists_.size());
      lists_.emplace_back();
    } else {
      index = free_lists_.back();
      free_lists_.pop_back();
      lists_[index].clear();
    }
    lists_[index].push_back(first);
    r = {index, kHostWorld, kSeveral, 0, 0};
  }
  std::vector<Epoch>& list = lists_[r.tick];
  for (Epoch& e : list) {
    if (replaceable(e)) {
      e = me;
      return;
    }
  }
  list.push_back(me);
}

Conflict Shadow::read(std::uint64_t begin, std::uint64_t size, const Access& a, bool* unwritten,
                      std::uint64_t* other_warp) {
  Conflict conflict;
  for (std::uint64_t g = begin / kGranule; g < (begin + size + kGranule - 1) / kGranule; ++g) {
    Cell& cell = cells_[g];
    const Epoch& w = cell.writer;
    if (w.actor == kNobody) {
      *unwritten = true;
    } else {
      if (!conflict.found && clash(w, a)) conflict = {true, true, w};
      if (w.world != kHostWorld && w.actor < a.threads &&
          (w.actor < a.warp_first || w.actor >= a.warp_last)) {
        *other_warp += kGranule;
      }
    }
    if (cell.reader.actor == a.actor && cell.reader.tick == a.tick &&
        cell.reader.world == a.world) {
      continue;
    }
    add_reader(cell, a);
  }
  return conflict;
}

Conflict Shadow::write(std::uint64_t begin, std::uint64_t size, const Access& a) {
  Conflict conflict;
  const auto check = [&](const Epoch& e, bool write) {
    if (!conflict.found && clash(e, a)) conflict = {true, write, e};
  };
  for (std::uint64_t g = begin / kGranule; g < (begin + size + kGranule - 1) / kGranule; ++g) {
    Cell& cell = cells_[g];
    if (cell.writer.actor != kNobody) check(cell.writer, true);
    if (cell.reader.actor == kSeveral) {
      for (const Epoch& e : lists_[cell.reader.tick]) check(e, false);
      free_lists_.push_back(cell.reader.tick);
    } else if (cell.reader.actor != kNobody) {
      check(cell.reader, false);
    }
    cell.writer = {a.tick, a.world, a.actor, a.site, a.atomic};
    cell.reader = Epoch();
  }
  return conflict;
}

}  // namespace strobe::emu
