// What each SIMD target provides: one table of functions per target, chosen once per plan.
#ifndef STROBE_SRC_CPU_KERNELS_H_
#define STROBE_SRC_CPU_KERNELS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "cpu/job.h"

namespace strobe::cpu {

// Sizes that the driver and the kernels agree on. kv_block and kv_chunk, on which bits depend,
// follow from the head dimensions; q_tile may depend on anything.
struct Tiling {
  std::int64_t panel;     // queries side by side in the vectors of the target
  std::int64_t q_tile;    // packed query rows of a work item; a multiple of panel
  std::int64_t kv_block;  // keys converted to float and multiplied at once
  std::int64_t kv_chunk;  // backward: keys of a work item; a multiple of kv_block
};

// A piece of forward: packed rows [row_begin, row_end) of key/value head g against keys [key_begin,
// key_end).
struct ForwardItem {
  Sequence seq;
  std::int64_t g;
  std::int64_t row_begin, row_end;
  core::KeyRange keys;
  bool first_split;  // carries the sink
  float* partial_o;  // null: write o and lse. Else [rows][head_dim_v] and, below, [rows], float32
  float* partial_lse;
};

constexpr std::int64_t kQueryBlock =
    64;  // backward: packed query rows at a time; a multiple of every panel

// What the parts of backward share, in the workspace. Packed row r of (b, g) is number
// first_row(b, g) + r of `delta`, `lse` and `dq`.
struct BackwardState {
  const std::int64_t* row_begin;    // [batch + 1], packed rows of one head
  const std::int64_t* block_begin;  // [batch + 1], query blocks of one head
  float* delta;                     // rowsum(dO * O) - dLSE; 0 for rows that see nothing
  float* lse;                       // +inf for rows that see nothing, so that P = exp(S - LSE) = 0
  float* dq;                        // [rows][head_dim], summed over key chunks, not yet times scale
  std::atomic<std::int64_t>* turn;  // per query block: the key chunk that adds to dq next

  std::int64_t first_row(std::int64_t b, std::int64_t g, std::int64_t kv_heads) const {
    return row_begin[b] * kv_heads + g * (row_begin[b + 1] - row_begin[b]);
  }
  std::atomic<std::int64_t>& turn_of(std::int64_t b, std::int64_t g, std::int64_t block,
                                     std::int64_t kv_heads) const {
    const std::int64_t blocks = block_begin[b + 1] - block_begin[b];
    return turn[block_begin[b] * kv_heads + g * blocks + block];
  }
};

// A piece of backward: keys of key/value head g against all queries that see them.
struct BackwardItem {
  Sequence seq;
  std::int64_t g;
  std::int64_t chunk;  // keys [chunk * kv_chunk, (chunk + 1) * kv_chunk)
};

struct Kernels {
  const char* name;  // as in overrides: "avx2"
  std::int64_t panel;
  std::int64_t rows;  // of the register tile

  std::size_t (*forward_scratch)(const strobe_problem&, const Tiling&);  // bytes per thread
  void (*forward)(const Job&, const Tiling&, const ForwardItem&, void* scratch);

  std::size_t (*backward_scratch)(const strobe_problem&, const Tiling&);  // of the three below
  // Fills in delta, lse and turn of one query block, and dq where no key is seen.
  void (*backward_rows)(const Job&, const Tiling&, const BackwardState&, const Sequence&,
                        std::int64_t g, std::int64_t block, void* scratch);
  void (*backward)(const Job&, const Tiling&, const BackwardState&, const BackwardItem&,
                   void* scratch);
  // dbias[batch][head][kQueryBlock rows from row0][kv_block keys from key0], summed over what the
  // bias broadcasts.
  void (*bias_grad)(const Job&, const Tiling&, const BackwardState&, std::int64_t batch,
                    std::int64_t head, std::int64_t row0, std::int64_t key0, void* scratch);

  std::size_t (*probs_scratch)(const strobe_problem&, const Tiling&);
  // args.probs of chosen rows [first, first + count), count <= panel, all of one sequence and of
  // head h.
  void (*probs)(const Job&, const Tiling&, const Sequence&, std::int64_t h, std::int64_t first,
                std::int64_t count, void* scratch);
};

// The targets compiled in that this CPU runs, best first. Never empty.
std::span<const Kernels* const> available_kernels();

}  // namespace strobe::cpu

#endif  // STROBE_SRC_CPU_KERNELS_H_
