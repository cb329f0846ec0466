// Bank conflicts of plain accesses to shared memory. Lanes run one after the other here, so what
// they would do in one instruction is put together afterwards: accesses are logged by lane and,
// when the warp next acts together, matched by source line in program order.
#include <algorithm>
#include <cstring>

#include "emu/world.h"

namespace strobe::emu {

void World::log_banks(Thread& t, std::uint32_t address, std::uint32_t bytes, bool write,
                      const Here& here) {
  t.warp->bank_logged = true;
  t.bank_log.push_back(
      {address, site_cache_.number(here), static_cast<std::uint8_t>(bytes), write});
}

void World::count_banks(Warp& warp) {
  if (!warp.bank_logged) return;
  warp.bank_logged = false;
  std::size_t next[kWarpLanes] = {};
  BankAccess together[kWarpLanes];
  for (;;) {
    // The first lane that has something left leads; who is at the same line goes with it.
    const BankAccess* lead = nullptr;
    std::uint32_t taken = 0;
    for (std::uint32_t lane = 0; lane < kWarpLanes; ++lane) {
      together[lane].bytes = 0;
      if (!(warp.lane_mask >> lane & 1)) continue;
      const auto& log = warp.lanes[lane]->bank_log;
      if (next[lane] == log.size()) continue;
      const BankAccess& mine = log[next[lane]];
      if (!lead) lead = &mine;
      if (mine.site != lead->site || mine.bytes != lead->bytes || mine.write != lead->write)
        continue;
      together[lane] = mine;
      ++next[lane];
      ++taken;
    }
    if (taken == 0) break;
    const std::uint32_t at_once = std::min(kWarpLanes, 128u / lead->bytes);
    for (std::uint32_t lane = 0; lane < kWarpLanes; lane += at_once) {
      count_banks(together + lane, at_once);
    }
  }
  for (std::uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    if (warp.lane_mask >> lane & 1) warp.lanes[lane]->bank_log.clear();
  }
}

void World::count_row_banks(const std::uint32_t (&addresses)[8]) {
  std::uint32_t seen = 0;
  BankAccess rows[8];
  for (std::uint32_t r = 0; r < 8; ++r) {
    seen |= 1u << addresses[r] / 16 % 8;
    rows[r] = {addresses[r], 0, 16, false};
  }
  if (seen == 0xFF) {
    ++counters().shared_wavefronts;  // the usual case: all 32 banks, each once
  } else {
    count_banks(rows, 8);
  }
}

// Accesses that one pass serves if no two need different words of one bank. Those of 0 bytes are of
// lanes that take no part.
void World::count_banks(const BankAccess* accesses, std::uint32_t count) {
  std::uint32_t words[32][32];
  std::uint32_t used[32] = {};
  std::uint32_t most = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const BankAccess& a = accesses[i];
    if (a.bytes == 0) continue;
    for (std::uint32_t word = a.address / 4; word * 4 < a.address + a.bytes; ++word) {
      const std::uint32_t bank = word % 32;
      std::uint32_t* const begin = words[bank];
      if (std::find(begin, begin + used[bank], word) != begin + used[bank]) continue;
      words[bank][used[bank]++] = word;
      most = std::max(most, used[bank]);
    }
  }
  if (most == 0) return;
  counters().shared_wavefronts += most;
  counters().bank_conflicts += most - 1;
}

}  // namespace strobe::emu
