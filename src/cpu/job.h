// One run of the CPU backend as its kernels see it: where each sequence, row and element lies.
// Independent of the SIMD target.
#ifndef STROBE_SRC_CPU_JOB_H_
#define STROBE_SRC_CPU_JOB_H_

#include <strobe/strobe.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/band.h"
#include "core/philox.h"

namespace strobe::cpu {

constexpr std::size_t kMaxPanel = 32;  // widest panel of any target: two AVX-512 vectors

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

// One sequence of the batch. Rows of q and k are counted from its start.
struct Sequence {
  std::int64_t b;        // index in the batch
  std::int64_t batch;    // index along the tensors' batch dimension: b, or 0 for varlen
  std::int64_t q_begin;  // first row of q, o, lse along the tensors' sequence dimension
  std::int64_t k_begin;
  std::int64_t len_q;
  std::int64_t len_k;
  core::BandMask band;
};

// A strided tensor [batch, seq, head, dim], or [batch, head, seq] for lse.
struct View {
  char* base;
  std::int64_t batch, seq, head;  // strides in bytes

  View(const void* data, const strobe_strides& s, std::size_t element_bytes)
      : base(static_cast<char*>(const_cast<void*>(data))),
        batch(s.batch * static_cast<std::int64_t>(element_bytes)),
        seq(s.seq * static_cast<std::int64_t>(element_bytes)),
        head(s.head * static_cast<std::int64_t>(element_bytes)) {}

  char* at(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return base + b * batch + t * seq + h * head;
  }
};

// Bias or mask: row (b, h, i) of [batch|1, heads|1, seqlen_q|1, seqlen_k].
struct ScoreView {
  const char* base;
  std::int64_t batch, head, row;  // strides in bytes, 0 where broadcast

  ScoreView(const void* data, const strobe_score_tensor& t, std::size_t element_bytes)
      : base(static_cast<const char*>(data)),
        batch(t.batch == 1 ? 0 : t.stride_batch * static_cast<std::int64_t>(element_bytes)),
        head(t.heads == 1 ? 0 : t.stride_head * static_cast<std::int64_t>(element_bytes)),
        row(t.seqlen_q == 1 ? 0 : t.stride_q * static_cast<std::int64_t>(element_bytes)) {}

  const char* at(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return base + b * batch + h * head + i * row;
  }
};

struct Job {
  const strobe_problem& p;      // resolved
  const strobe_run_args& args;  // checked
  const std::optional<strobe_executor>& executor;
  int threads;

  std::int64_t ratio;  // query heads per key/value head
  std::size_t element_bytes;
  // scale = q_scale * score_scale: q_scale, which multiplies Q as it is loaded, is its sign (so
  // exact) or 0, and score_scale, which multiplies the finished products, is positive.
  float q_scale, score_scale;
  float softcap;
  std::uint32_t keep_threshold;  // of the dropout draw
  float keep_scale;              // 1 / (1 - p)
  View q, k, v, o, lse, dout, dlse, dq, dk, dv;
  ScoreView bias, mask;

  Job(const strobe_problem& problem, const strobe_run_args& run_args,
      const std::optional<strobe_executor>& user_executor, int thread_count);

  // Scores() returns S / score_scale where nothing but masks follows the product: the exponential
  // then applies the scale for nothing. Otherwise it returns S itself.
  bool plain_scores() const {
    return p.softcap == 0 && p.alibi == STROBE_ALIBI_NONE && !has_bias() && !p.sinks;
  }
  float exp_factor() const { return plain_scores() ? score_scale : 1.0f; }

  bool has_bias() const { return p.bias.dtype != STROBE_NONE; }
  bool has_mask() const { return p.mask.dtype != STROBE_NONE; }
  bool has_dropout() const { return p.dropout_p > 0; }

  Sequence sequence(std::int64_t b) const;

  float& lse_at(const Sequence& s, std::int64_t i, std::int64_t h) const {
    return *reinterpret_cast<float*>(lse.at(s.batch, s.q_begin + i, h));
  }
  float slope(std::int64_t b, std::int64_t h) const {
    if (p.alibi == STROBE_ALIBI_NONE) return 0;
    const auto* slopes = static_cast<const float*>(args.alibi_slopes);
    return slopes[p.alibi == STROBE_ALIBI_PER_BATCH_HEAD ? b * p.heads + h : h];
  }
  float sink(std::int64_t h) const { return static_cast<const float*>(args.sinks)[h]; }
  core::PhiloxBlock dropout_stream(std::int64_t b, std::int64_t h) const {
    return core::dropout_stream(args.dropout_seed, args.dropout_offset,
                                static_cast<core::u64>(b * p.heads + h));
  }
};

// A query row of a group: packed row r of key/value head g is query r / ratio of head g * ratio + r
// % ratio. So the heads of a group share each block of K and V, and fill the lanes even when there
// is one query (decode).
struct PackedRow {
  std::int64_t i;
  std::int64_t h;
};
inline PackedRow packed_row(std::int64_t r, std::int64_t g, std::int64_t ratio) {
  return {r / ratio, g * ratio + r % ratio};
}

// Carves aligned arrays out of one allocation. With a null base it only measures.
class Arena {
 public:
  explicit Arena(void* base = nullptr) : base_(static_cast<char*>(base)) {}

  template <class T>
  T* take(std::int64_t count) {
    T* result = reinterpret_cast<T*>(base_ + bytes_);
    bytes_ += static_cast<std::size_t>(round_up(count * static_cast<std::int64_t>(sizeof(T)), 256));
    return result;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  char* base_;
  std::size_t bytes_ = 0;
};

}  // namespace strobe::cpu

#endif  // STROBE_SRC_CPU_JOB_H_
