// Cases drawn from everything that strobe.h can say.
#include <algorithm>
#include <cmath>

#include "harness/shapes.h"

namespace strobe::harness {
namespace {

constexpr double kMaxWork = 3e7;   // (query, key, dim) triples, all passes
constexpr double kMaxPairs = 1e6;  // (query, key) pairs of all heads

std::int64_t draw_length(Rng& rng) {
  if (rng.chance(0.3)) return rng.between(1, 300);
  return rng.pick<std::int64_t>({0, 1, 2, 7, 8, 31, 32, 33, 63, 64, 65, 127, 128, 129, 192, 704});
}

std::int64_t draw_head_dim(Rng& rng) {
  if (rng.chance(0.3)) return rng.between(1, 256);
  return rng.pick<std::int64_t>({1, 8, 40, 46, 64, 72, 80, 96, 120, 128, 160, 192, 256, 512});
}

// Sizes of the batch; drawn again until the work is bearable.
void draw_sizes(Rng& rng, Problem& p) {
  double work, pairs;
  do {
    p.batch = rng.chance(0.02) ? 0 : rng.pick<std::int64_t>({1, 1, 2, 2, 3, 5});
    p.kv_heads = rng.pick<std::int64_t>({1, 1, 2, 2, 3, 4});
    p.heads = *p.kv_heads * rng.pick<std::int64_t>({1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20});
    p.seqlen_q = rng.chance(0.15) ? 1 : draw_length(rng);
    p.seqlen_k = draw_length(rng);
    p.head_dim = draw_head_dim(rng);
    if (rng.chance(0.2)) p.head_dim_v = draw_head_dim(rng);
    pairs = static_cast<double>(p.batch * p.heads * p.seqlen_q * p.seqlen_k);
    const double dims = static_cast<double>(p.head_dim + p.head_dim_v.value_or(p.head_dim));
    work = pairs * dims * (p.op == Op::backward ? 3 : 1);
  } while (work > kMaxWork || pairs > kMaxPairs);
}

void draw_scores(Rng& rng, Problem& p) {
  if (rng.chance(0.3)) p.scale = rng.pick({0.5, 1.0, 2.0}) / std::sqrt(double(p.head_dim));
  if (rng.chance(0.05)) p.scale = -0.7 / std::sqrt(double(p.head_dim));
  if (rng.chance(0.2)) p.softcap = rng.pick({1.0, 5.0, 15.0, 30.0});
  const auto side = [&] {
    return rng.pick<std::int64_t>({-1, 0, 1, 3, 16, 64, rng.between(0, p.seqlen_k)});
  };
  if (rng.chance(0.4)) {
    p.mask = Band::causal();
  } else if (rng.chance(0.5)) {
    p.mask = Band::window(side(), side());
  }
  if (rng.chance(0.2)) p.mask.offset = rng.between(-p.seqlen_q - 2, p.seqlen_k + 2);
  if (rng.chance(0.2)) p.alibi = rng.pick({Alibi::per_head, Alibi::per_batch_head});
  p.sinks = rng.chance(0.25);
  if (rng.chance(0.2)) p.dropout_p = rng.pick({0.1, 0.5, 0.9});
}

// Sizes, broadcasts and strides of a bias or mask.
ScoreTensor draw_score_tensor(Rng& rng, const Problem& p, DType dtype) {
  ScoreTensor t{.dtype = dtype};
  if (rng.chance(0.5)) t.batch = 1;
  if (rng.chance(0.5)) t.heads = 1;
  if (rng.chance(0.3)) t.seqlen_q = 1;
  if (rng.chance(0.3)) t.stride_q = p.seqlen_k + rng.between(0, 5);  // gaps between rows
  if (rng.chance(0.1)) t.stride_batch = 0;  // a broadcast spelled as a stride
  return t;
}

void draw_bias_and_mask(Rng& rng, Case& c) {
  Problem& p = c.problem;
  if (rng.chance(0.25)) {
    p.bias = draw_score_tensor(rng, p, rng.pick({DType::f32, p.dtype}));
    if (rng.chance(0.3)) c.bias_inf_share = rng.pick({0.05, 0.5});
    // Backward excluded: where every key of a row has such a bias, LSE cannot hold the keys'
    // number.
    if (p.op == Op::forward && rng.chance(0.2)) c.bias_lowest_share = 0.2;
    c.dbias = rng.chance(0.7);
  }
  if (rng.chance(0.2)) {
    p.bool_mask = draw_score_tensor(rng, p, DType::boolean);
    c.mask_visible_share = rng.pick({0.05, 0.5, 0.9, 1.0});
  }
}

// Rows held by each sequence, for sequences of at most `bound` rows.
std::vector<std::int32_t> draw_lengths(Rng& rng, std::int64_t batch, std::int64_t bound) {
  std::vector<std::int32_t> lengths;
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t length = rng.chance(0.2)   ? 0
                                : rng.chance(0.3) ? bound
                                                  : rng.between(0, bound);
    lengths.push_back(static_cast<std::int32_t>(length));
  }
  return lengths;
}

std::vector<std::int32_t> prefix_sums(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> sums = {0};
  for (std::int32_t length : lengths) sums.push_back(sums.back() + length);
  return sums;
}

// Lengths shorter than the given ones, some equal.
std::vector<std::int32_t> draw_used(Rng& rng, const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> used;
  for (std::int32_t length : lengths) {
    used.push_back(rng.chance(0.5) ? length : static_cast<std::int32_t>(rng.between(0, length)));
  }
  return used;
}

void draw_lengths(Rng& rng, Case& c) {
  Problem& p = c.problem;
  const double kind = rng.uniform();
  if (kind < 0.5) return;
  if (kind < 0.75) {
    p.lengths = Lengths::padded;
    const int which = static_cast<int>(rng.between(0, 2));  // q alone, k alone, both
    if (which != 1) c.seqlens_q = draw_lengths(rng, p.batch, p.seqlen_q);
    if (which != 0) c.seqlens_k = draw_lengths(rng, p.batch, p.seqlen_k);
    return;
  }
  p.lengths = Lengths::varlen;
  p.seqlen_q = std::max<std::int64_t>(p.seqlen_q, 1);  // 0 would mean unknown
  p.seqlen_k = std::max<std::int64_t>(p.seqlen_k, 1);
  const auto lengths_q = draw_lengths(rng, p.batch, p.seqlen_q);
  const auto lengths_k = draw_lengths(rng, p.batch, p.seqlen_k);
  c.cu_seqlens_q = prefix_sums(lengths_q);
  c.cu_seqlens_k = prefix_sums(lengths_k);
  p.total_q = c.cu_seqlens_q.back() + rng.pick<std::int64_t>({0, 0, 1, 5});
  p.total_k = c.cu_seqlens_k.back() + rng.pick<std::int64_t>({0, 0, 1, 5});
  if (rng.chance(0.25)) c.seqlens_q = draw_used(rng, lengths_q);
  if (rng.chance(0.25)) c.seqlens_k = draw_used(rng, lengths_k);
  const bool bounds_needed = p.bias.dtype != DType::none || p.bool_mask.dtype != DType::none ||
                             p.op == Op::probs || p.op == Op::keep_mask;
  if (!bounds_needed && rng.chance(0.5)) p.seqlen_q = p.seqlen_k = 0;  // unknown
}

// Strides of a [batch, rows, heads, dim] tensor whose dimensions lie in any order, with gaps
// between them.
Strides draw_strides(Rng& rng, bool input, std::int64_t batch, std::int64_t rows,
                     std::int64_t heads, std::int64_t dim) {
  if (rng.chance(0.5)) return {};
  Strides s;
  struct Outer {
    std::int64_t size;
    std::int64_t* stride;
  };
  std::array<Outer, 3> order = {{{batch, &s.batch}, {rows, &s.seq}, {heads, &s.head}}};
  for (int n = 2; n > 0; --n) std::swap(order[n], order[rng.between(0, n)]);
  std::int64_t next = dim + rng.pick<std::int64_t>({0, 0, 3, 8});
  for (const Outer& outer : order) {
    *outer.stride = next;
    next *= std::max<std::int64_t>(outer.size, 1);
    next += rng.pick<std::int64_t>({0, 0, 5, 16});
  }
  if (input && rng.chance(0.15)) *rng.pick({&s.batch, &s.seq, &s.head}) = 0;
  if (input && rng.chance(0.15)) *rng.pick({&s.batch, &s.seq, &s.head}) *= -1;
  return s;
}

void draw_layout(Rng& rng, Case& c) {
  Problem& p = c.problem;
  p.layout = rng.pick({Layout::bshd, Layout::bhsd});
  const auto element_bytes =
      static_cast<std::int64_t>(std::max(dtype_bytes(p.dtype), dtype_bytes(p.partial_dtype)));
  if (rng.chance(0.3)) {
    p.alignment_bytes = static_cast<int>(rng.pick<std::int64_t>({1, element_bytes}));
    c.misalign_bytes = static_cast<int>(element_bytes * rng.between(0, 15));
  } else if (rng.chance(0.2)) {
    p.alignment_bytes = 64;
  }
  if (rng.chance(0.5)) return;
  const Dims dims(p);
  const auto like_q = [&](bool input, std::int64_t dim) {
    return draw_strides(rng, input, dims.batch, dims.rows_q, dims.heads, dim);
  };
  const auto like_k = [&](bool input, std::int64_t dim) {
    return draw_strides(rng, input, dims.batch, dims.rows_k, dims.kv_heads, dim);
  };
  p.q_strides = like_q(true, dims.d);
  p.k_strides = like_k(true, dims.d);
  p.v_strides = like_k(true, dims.dv);
  p.dout_strides = like_q(true, dims.dv);
  p.o_strides = like_q(false, dims.dv);
  p.dq_strides = like_q(false, dims.d);
  p.dk_strides = like_k(false, dims.d);
  p.dv_strides = like_k(false, dims.dv);
  if (rng.chance(0.3)) p.lse_strides = like_q(false, 1);
  if (rng.chance(0.3)) p.dlse_strides = like_q(true, 1);
}

void draw_rows(Rng& rng, Case& c) {
  Problem& p = c.problem;
  const std::int64_t rows = Dims(p).rows_q;
  if (rows == 0) return;
  p.num_rows = rng.between(0, 6);
  for (std::int64_t n = 0; n < p.num_rows; ++n) c.rows.push_back(rng.between(0, rows - 1));
}

}  // namespace

Case random_case(std::uint64_t seed) {
  Rng rng(seed);
  Case c;
  c.name = "random_case(" + std::to_string(seed) + ")";
  c.seed = rng.next();
  c.data = static_cast<Data>(rng.chance(0.4) ? 0 : rng.between(0, kDataKinds - 1));
  Problem& p = c.problem;
  const double op = rng.uniform();
  p.op = op < 0.5    ? Op::forward
         : op < 0.85 ? Op::backward
         : op < 0.9  ? Op::merge
         : op < 0.95 ? Op::probs
                     : Op::keep_mask;
  p.dtype = rng.pick({DType::f32, DType::f32, DType::bf16, DType::bf16, DType::f16});
  p.deterministic = rng.chance(0.3);
  draw_sizes(rng, p);
  if (p.op == Op::merge) {
    p.partials = static_cast<int>(rng.between(1, 5));
    p.partial_dtype = rng.pick({DType::none, DType::f32, p.dtype});
    for (int n = 0; n < p.partials; ++n) c.empty_partials.push_back(rng.chance(0.2));
  } else {
    draw_scores(rng, p);
    draw_bias_and_mask(rng, c);
  }
  draw_lengths(rng, c);
  draw_layout(rng, c);
  if (p.op == Op::probs || p.op == Op::keep_mask) draw_rows(rng, c);
  c.lse = rng.chance(0.8);
  c.dlse = rng.chance(0.5);
  c.dsinks = p.sinks && rng.chance(0.7);
  return c;
}

}  // namespace strobe::harness
