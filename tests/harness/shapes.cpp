#include "harness/shapes.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace strobe::harness {
namespace {

std::int64_t value_or(std::int64_t value, std::int64_t automatic) {
  return value == STROBE_AUTO ? automatic : value;
}

// Sizes and strides from the inside out; an automatic stride lies clear of the dimensions inside
// it.
struct Dim {
  std::int64_t size;
  std::int64_t* stride;
};
void fill_strides(std::int64_t run, std::initializer_list<Dim> inside_out) {
  std::int64_t clear = run;
  for (const Dim& dim : inside_out) {
    if (*dim.stride == STROBE_AUTO || dim.size == 1) *dim.stride = clear;
    clear = std::max(clear, std::max<std::int64_t>(dim.size, 1) * std::abs(*dim.stride));
  }
}

}  // namespace

std::uint64_t Rng::next() {
  std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

double Rng::uniform() { return std::ldexp(static_cast<double>(next() >> 11), -53); }

double Rng::normal() {  // Box and Muller
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(6.283185307179586 * uniform());
}

std::int64_t Rng::between(std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1));
}

Dims::Dims(const Problem& p)
    : batch(p.lengths == Lengths::varlen ? 1 : p.batch),
      rows_q(p.lengths == Lengths::varlen ? p.total_q : p.seqlen_q),
      rows_k(p.lengths == Lengths::varlen ? p.total_k : p.seqlen_k),
      heads(p.heads),
      kv_heads(p.kv_heads.value_or(p.heads)),
      d(p.head_dim),
      dv(p.head_dim_v.value_or(p.head_dim)),
      group(heads / kv_heads),
      scale(p.scale.value_or(1 / std::sqrt(static_cast<double>(p.head_dim)))),
      dtype(p.dtype),
      aux(p.dtype == DType::f64 ? DType::f64 : DType::f32) {}

Tensor make_tensor(const Case& c, DType dtype, const Strides& strides, std::int64_t rows,
                   std::int64_t heads, std::int64_t dim) {
  const Index size = {Dims(c.problem).batch, rows, heads, dim};
  Index stride = {strides.batch, strides.seq, strides.head, 1};
  if (c.problem.layout == Layout::bshd) {
    fill_strides(dim, {{heads, &stride[2]}, {rows, &stride[1]}, {size[0], &stride[0]}});
  } else {
    fill_strides(dim, {{rows, &stride[1]}, {heads, &stride[2]}, {size[0], &stride[0]}});
  }
  return Tensor(dtype, size, stride, static_cast<std::size_t>(c.misalign_bytes));
}

Tensor make_lse(const Case& c, const Strides& strides) {
  const Dims dims(c.problem);
  Index stride = {strides.batch, strides.head, strides.seq, 1};
  fill_strides(1, {{dims.rows_q, &stride[2]}, {dims.heads, &stride[1]}, {dims.batch, &stride[0]}});
  return Tensor(dims.aux, {dims.batch, dims.heads, dims.rows_q, 1}, stride);
}

Tensor make_score_tensor(const Case& c, const ScoreTensor& t) {
  const Problem& p = c.problem;
  const Index size = {value_or(t.batch, p.batch), value_or(t.heads, p.heads),
                      value_or(t.seqlen_q, p.seqlen_q), value_or(t.seqlen_k, p.seqlen_k)};
  Index stride = {t.stride_batch, t.stride_head, t.stride_q, 1};
  fill_strides(std::max<std::int64_t>(size[3], 1),
               {{size[2], &stride[2]}, {size[1], &stride[1]}, {size[0], &stride[0]}});
  return Tensor(t.dtype, size, stride);
}

Index broadcast_index(const Tensor& t, std::int64_t b, std::int64_t h, std::int64_t i,
                      std::int64_t j) {
  return {t.size[0] == 1 ? 0 : b, t.size[1] == 1 ? 0 : h, t.size[2] == 1 ? 0 : i, j};
}

std::vector<Sequence> sequences(const Case& c) {
  const Problem& p = c.problem;
  std::vector<Sequence> result;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    Sequence s{.batch = b, .len_q = p.seqlen_q, .len_k = p.seqlen_k};
    if (p.lengths == Lengths::varlen) {
      s = {.batch = 0,
           .q_begin = c.cu_seqlens_q[b],
           .len_q = c.cu_seqlens_q[b + 1] - c.cu_seqlens_q[b],
           .k_begin = c.cu_seqlens_k[b],
           .len_k = c.cu_seqlens_k[b + 1] - c.cu_seqlens_k[b]};
    }
    if (!c.seqlens_q.empty()) s.len_q = c.seqlens_q[b];
    if (!c.seqlens_k.empty()) s.len_k = c.seqlens_k[b];
    s.offset = p.mask.offset.value_or(s.len_k - s.len_q);
    result.push_back(s);
  }
  return result;
}

}  // namespace strobe::harness
