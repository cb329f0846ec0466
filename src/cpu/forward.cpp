#include <algorithm>

#include "cpu/driver.h"
#include "cpu/items.h"
#include "cpu/merge.h"
#include "cpu/parallel.h"

namespace strobe::cpu {
namespace {

constexpr std::int64_t kSplitRows = 256;  // with more packed rows, rows alone make enough items
constexpr std::int64_t kMinSplitKeys = 1152;
constexpr std::int64_t kMaxSplits = 64;

struct ForwardWorkspace {
  std::int64_t* first_item;     // [batch + 1]
  std::int64_t* first_partial;  // [batch + 1], rows of the partial results
  float* partial_o;             // [rows][head_dim_v]
  float* partial_lse;           // [rows]
  char* scratch;                // [threads][scratch_bytes]
  std::size_t scratch_bytes;

  ForwardWorkspace(const Setup& s, Arena& arena) {
    first_item = arena.take<std::int64_t>(s.p.batch + 1);
    first_partial = arena.take<std::int64_t>(s.p.batch + 1);
    const std::int64_t rows = max_partial_rows(s);
    partial_o = arena.take<float>(rows * s.p.head_dim_v);
    partial_lse = arena.take<float>(rows);
    scratch_bytes = s.kernels.forward_scratch(s.p, s.tiling);
    scratch = arena.take<char>(static_cast<std::int64_t>(scratch_bytes) * s.threads);
  }

  // Upper bound over all lengths the problem allows: proportional to its keys, and to its queries.
  static std::int64_t max_partial_rows(const Setup& s) {
    const std::int64_t ratio = s.p.heads / s.p.kv_heads;
    if (s.p.lengths == STROBE_VARLEN) {
      // Only sequences of more than two minimal splits are split, into at most len_k /
      // kMinSplitKeys + 1.
      const std::int64_t by_keys = kSplitRows * (s.p.total_k + s.p.total_k / 2) / kMinSplitKeys;
      return s.p.kv_heads * std::min(by_keys, s.p.total_q * ratio * kMaxSplits);
    }
    const std::int64_t splits = std::min(kMaxSplits, ceil_div(s.p.seqlen_k, kMinSplitKeys));
    if (s.p.seqlen_k <= 2 * kMinSplitKeys) return 0;
    if (s.p.lengths == STROBE_DENSE && s.p.seqlen_q * ratio > kSplitRows) return 0;
    return s.p.batch * s.p.kv_heads * splits * std::min(kSplitRows, s.p.seqlen_q * ratio);
  }
};

// How one sequence is cut: row tiles x key splits x key/value heads.
struct SequenceItems {
  std::int64_t rows, tiles;
  KeySplits splits;

  SequenceItems(const Job& job, const Tiling& tiling, const Sequence& seq)
      : rows(seq.len_q * job.ratio),
        tiles(ceil_div(rows, tiling.q_tile)),
        splits(key_splits(tiling, rows, seq.len_k)) {}

  std::int64_t count(const Job& job) const { return tiles * splits.count * job.p.kv_heads; }
  std::int64_t partial_rows(const Job& job) const {
    return splits.count > 1 ? rows * splits.count * job.p.kv_heads : 0;
  }
};

// Longest first: with a causal mask the last rows see the most keys.
ForwardItem make_item(const Setup& setup, const Job& job, const ForwardWorkspace& w,
                      const Item& at) {
  const Sequence seq = job.sequence(at.b);
  const SequenceItems items(job, setup.tiling, seq);
  const std::int64_t g = at.index % job.p.kv_heads;
  const std::int64_t split = at.index / job.p.kv_heads % items.splits.count;
  const std::int64_t tile = items.tiles - 1 - at.index / job.p.kv_heads / items.splits.count;
  ForwardItem item{
      .seq = seq,
      .g = g,
      .row_begin = tile * setup.tiling.q_tile,
      .row_end = std::min((tile + 1) * setup.tiling.q_tile, items.rows),
      .keys = {split * items.splits.keys, std::min((split + 1) * items.splits.keys, seq.len_k)},
      .first_split = split == 0,
      .partial_o = nullptr,
      .partial_lse = nullptr};
  if (items.splits.count > 1) {
    const std::int64_t row =
        w.first_partial[at.b] + (g * items.splits.count + split) * items.rows + item.row_begin;
    item.partial_o = w.partial_o + row * job.p.head_dim_v;
    item.partial_lse = w.partial_lse + row;
  }
  return item;
}

// Merges the splits of one sequence and head.
void merge_splits(const Setup& setup, const Job& job, const ForwardWorkspace& w, std::int64_t b,
                  std::int64_t g, float* row) {
  const Sequence seq = job.sequence(b);
  const SequenceItems items(job, setup.tiling, seq);
  if (items.splits.count == 1) return;
  for (std::int64_t r = 0; r < items.rows; ++r) {
    const auto at = [&](std::int64_t n) {
      return w.first_partial[b] + (g * items.splits.count + n) * items.rows + r;
    };
    const auto part_lse = [&](std::int64_t n) { return w.partial_lse[at(n)]; };
    const auto part_o = [&](std::int64_t n) { return w.partial_o + at(n) * job.p.head_dim_v; };
    const float merged = merge_row(items.splits.count, part_lse, part_o, job.p.head_dim_v, row);
    const PackedRow packed = packed_row(r, g, job.ratio);
    store_row(job.p.dtype, row, job.p.head_dim_v,
              job.o.at(seq.batch, seq.q_begin + packed.i, packed.h));
    if (job.args.lse) job.lse_at(seq, packed.i, packed.h) = merged;
  }
}

}  // namespace

KeySplits key_splits(const Tiling& tiling, std::int64_t packed_rows, std::int64_t len_k) {
  if (packed_rows > kSplitRows || len_k <= 2 * kMinSplitKeys)
    return {1, std::max<std::int64_t>(len_k, 1)};
  const std::int64_t keys =
      round_up(std::max(kMinSplitKeys, ceil_div(len_k, kMaxSplits)), tiling.kv_block);
  return {ceil_div(len_k, keys), keys};
}

std::size_t forward_workspace(const Setup& setup) {
  Arena arena;
  ForwardWorkspace(setup, arena);
  return arena.bytes();
}

void run_forward(const Setup& setup, const Job& job) {
  Arena arena(job.args.workspace);
  const ForwardWorkspace w(setup, arena);
  fill_outside_queries(job, job.o, job.p.heads, job.p.head_dim_v, true);
  std::int64_t partial_rows = 0;
  w.first_item[0] = w.first_partial[0] = 0;
  for (std::int64_t b = 0; b < job.p.batch; ++b) {
    const SequenceItems items(job, setup.tiling, job.sequence(b));
    w.first_item[b + 1] = w.first_item[b] + items.count(job);
    w.first_partial[b + 1] = partial_rows += items.partial_rows(job);
  }
  parallel_for(job.executor, job.threads, w.first_item[job.p.batch],
               [&](std::int64_t index, std::int32_t worker) {
                 const ForwardItem item =
                     make_item(setup, job, w, find_item(w.first_item, job.p.batch, index));
                 setup.kernels.forward(job, setup.tiling, item,
                                       w.scratch + worker * w.scratch_bytes);
               });
  if (partial_rows == 0) return;
  parallel_for(job.executor, job.threads, job.p.batch * job.p.kv_heads,
               [&](std::int64_t index, std::int32_t worker) {
                 merge_splits(setup, job, w, index / job.p.kv_heads, index % job.p.kv_heads,
                              reinterpret_cast<float*>(w.scratch + worker * w.scratch_bytes));
               });
}

}  // namespace strobe::cpu
