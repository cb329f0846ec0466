#include "emu/report.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>

namespace strobe::emu {

const char* name(HazardKind kind) {
  switch (kind) {
    case HazardKind::kDeadlock:
      return "deadlock";
    case HazardKind::kRace:
      return "race";
    case HazardKind::kUninitialised:
      return "uninitialised read";
    case HazardKind::kOutOfBounds:
      return "out of bounds";
    case HazardKind::kMisaligned:
      return "misaligned address";
    case HazardKind::kDivergence:
      return "divergent collective";
    case HazardKind::kBarrier:
      return "barrier misuse";
    case HazardKind::kLeak:
      return "leftover at exit";
    default:
      return "limit exceeded";
  }
}

void Counters::add(const Counters& o) {
  ctas += o.ctas;
  mma_flops += o.mma_flops;
  for (int i = 0; i < static_cast<int>(core::Op::kCount); ++i) ops[i] += o.ops[i];
  shared_bytes_read += o.shared_bytes_read;
  shared_bytes_written += o.shared_bytes_written;
  shared_wavefronts += o.shared_wavefronts;
  bank_conflicts += o.bank_conflicts;
  cross_warp_bytes += o.cross_warp_bytes;
  shuffles += o.shuffles;
  barriers += o.barriers;
  atomics += o.atomics;
  switches += o.switches;
}

void Report::add(Hazard hazard) {
  for (const Hazard& known : hazards) {
    if (known.kind == hazard.kind && known.here.line == hazard.here.line &&
        std::strcmp(known.here.file, hazard.here.file) == 0) {
      ++hazards_dropped;
      return;
    }
  }
  if (hazards.size() >= kMaxHazards) {
    ++hazards_dropped;
    return;
  }
  hazards.push_back(std::move(hazard));
}

void Report::add_hits(const Here& here, std::uint64_t count) {
  for (LineHits& known : lines) {
    if (known.here.line == here.line && std::strcmp(known.here.file, here.file) == 0) {
      known.count += count;
      return;
    }
  }
  lines.push_back({here, count});
}

std::uint64_t Report::hits(const char* file, int first, int last) const {
  std::uint64_t count = 0;
  for (const LineHits& l : lines) {
    if (l.here.line >= first && l.here.line <= last &&
        std::string_view(l.here.file).ends_with(file))
      count += l.count;
  }
  return count;
}

std::string Report::text() const {
  std::string text;
  for (const Hazard& h : hazards) {
    text += fmt::format("{}: CTA {} thread {} at {}:{}: {}\n", name(h.kind), h.cta, h.thread,
                        h.here.file, h.here.line, h.message);
  }
  if (hazards_dropped > 0) text += fmt::format("and {} more\n", hazards_dropped);
  return text;
}

}  // namespace strobe::emu
