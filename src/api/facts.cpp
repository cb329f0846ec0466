#include "api/facts.h"

#include <algorithm>

#include "api/tensors.h"

namespace strobe::api {
namespace {

// Sum over i in [0, rows) of min(max(i + shift, 0), limit).
double clamped_sum(std::int64_t rows, std::int64_t shift, std::int64_t limit) {
  const std::int64_t first = std::clamp<std::int64_t>(1 - shift, 0, rows);  // first term above 0
  const std::int64_t last = std::clamp<std::int64_t>(limit - shift, first, rows);  // first at limit
  const double rising = static_cast<double>(last - first);
  const double mean =
      0.5 * (static_cast<double>(first + shift) + static_cast<double>(last - 1 + shift));
  return rising * mean + static_cast<double>(rows - last) * static_cast<double>(limit);
}

// Distinct elements: a dimension of stride 0 holds one.
double stored_bytes(const Tensor& tensor) {
  double bytes = tensor.element_bytes;
  for (int d = 0; d < 4; ++d) {
    const bool broadcast = tensor.strides[d] == 0 && tensor.sizes[d] > 0;
    bytes *= broadcast ? 1.0 : static_cast<double>(tensor.sizes[d]);
  }
  return bytes;
}

double traffic(const strobe_problem& p) {
  double bytes = 0;
  for (const Tensor& tensor : tensors_of(p)) {
    if (tensor.required) bytes += stored_bytes(tensor);
  }
  if (p.op == STROBE_MERGE) {
    bytes += p.partials * (stored_bytes(partial_o_of(p)) + stored_bytes(partial_lse_of(p)));
  }
  return bytes;
}

}  // namespace

double visible_pairs(std::int64_t seqlen_q, std::int64_t seqlen_k, std::int64_t left,
                     std::int64_t right, std::int64_t offset) {
  // Keys up to the right edge of the band, less those before its left edge.
  const double rows = static_cast<double>(seqlen_q);
  const double upto = right < 0 ? rows * static_cast<double>(seqlen_k)
                                : clamped_sum(seqlen_q, offset + right + 1, seqlen_k);
  const double before = left < 0 ? 0 : clamped_sum(seqlen_q, offset - left, seqlen_k);
  return upto - before;
}

Estimates estimate(const strobe_problem& p) {
  Estimates e;
  e.bytes = traffic(p);
  e.lse_bytes = static_cast<double>(strobe_dtype_bytes(auxiliary_dtype(p))) *
                static_cast<double>(p.heads) * static_cast<double>(p.total_q);
  if (!uses_scores(p.op)) return e;

  std::int64_t sequences = p.batch, seqlen_q = p.seqlen_q, seqlen_k = p.seqlen_k;
  if (p.lengths == STROBE_VARLEN && (seqlen_q == 0 || seqlen_k == 0)) {
    sequences = p.batch > 0 ? 1 : 0;
    seqlen_q = p.total_q;
    seqlen_k = p.total_k;
  }
  const std::int64_t offset = p.query_offset == STROBE_AUTO ? seqlen_k - seqlen_q : p.query_offset;
  const double repeats = static_cast<double>(sequences) * static_cast<double>(p.heads);
  e.visible_pairs =
      repeats * visible_pairs(seqlen_q, seqlen_k, p.window_left, p.window_right, offset);
  const double all_pairs = repeats * static_cast<double>(seqlen_q) * static_cast<double>(seqlen_k);
  const double d = static_cast<double>(p.head_dim), dv = static_cast<double>(p.head_dim_v);
  switch (p.op) {
    case STROBE_FORWARD:
      e.flops = 2 * (d + dv) * e.visible_pairs;
      break;
    case STROBE_BACKWARD:
      e.flops = 2 * (3 * d + 2 * dv) * e.visible_pairs;
      break;
    case STROBE_PROBS:
      if (seqlen_q > 0) {
        e.visible_pairs *= static_cast<double>(p.num_rows) / static_cast<double>(seqlen_q);
      }
      e.flops = 2 * d * e.visible_pairs;
      return e;  // its result is P itself: nothing is saved
  }
  e.standard_bytes = 2 * 4 * all_pairs;
  return e;
}

}  // namespace strobe::api
