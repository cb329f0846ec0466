// check_args()'s part for arguments that are read on the host: lengths of the sequences, chosen
// rows. Sizes of bias and mask bound the lengths too; they equal seqlen_q and seqlen_k, or
// broadcast, so they need no check of their own.
#include <string>

#include "api/refuse.h"
#include "api/support.h"

namespace strobe::api {
namespace {

// One side of the lengths, q or k.
struct Side {
  const char* cu_name;
  const char* used_name;
  const char* bound_name;
  const char* total_name;
  const std::int32_t* cu;    // [batch + 1], varlen
  const std::int32_t* used;  // [batch], or null: all
  std::int64_t bound;        // seqlen_q or seqlen_k
  std::int64_t total;
};

Status check_cu_seqlens(const Side& s, std::int64_t batch) {
  if (s.cu[0] != 0) {
    return refuse_element(s.cu_name, 0, s.cu[0], "the first sequence starts at row 0",
                          "Pass prefix sums of the lengths, from 0");
  }
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t length = std::int64_t{s.cu[b + 1]} - s.cu[b];
    if (length < 0) {
      return refuse_element(s.cu_name, b + 1, s.cu[b + 1],
                            fmt::format("element {} before it is larger, {}", b, s.cu[b]),
                            "Pass prefix sums of the lengths, which never decrease");
    }
    if (s.bound > 0 && length > s.bound) {
      return refuse_element(
          s.cu_name, b + 1, s.cu[b + 1],
          fmt::format("sequence {} then has {} rows, more than {}, {}", b, length, s.bound_name,
                      s.bound),
          fmt::format("Plan with a larger {}, or with 0 for unknown", s.bound_name));
    }
  }
  if (s.cu[batch] > s.total) {
    return refuse_element(s.cu_name, batch, s.cu[batch],
                          fmt::format("{} is {}", s.total_name, s.total),
                          fmt::format("Plan with the {} that the tensors have", s.total_name));
  }
  return {};
}

Status check_side(const Side& s, std::int64_t batch) {
  if (s.cu != nullptr) STROBE_RETURN_IF_REFUSED(check_cu_seqlens(s, batch));
  if (s.used == nullptr) return {};
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t capacity = s.cu != nullptr ? s.cu[b + 1] - s.cu[b] : s.bound;
    if (s.used[b] < 0 || s.used[b] > capacity) {
      return refuse_element(s.used_name, b, s.used[b],
                            fmt::format("sequence {} has room for 0 to {} rows", b, capacity),
                            "Pass the rows in use");
    }
  }
  return {};
}

}  // namespace

Status check_lengths(const strobe_problem& p, const strobe_run_args& args) {
  if (p.op == STROBE_MERGE) return {};
  const bool varlen = p.lengths == STROBE_VARLEN;
  if (p.lengths != STROBE_DENSE) {
    const Side sides[] = {
        {"cu_seqlens_q", "seqlens_q", "seqlen_q", "total_q", varlen ? args.cu_seqlens_q : nullptr,
         args.seqlens_q, p.seqlen_q, p.total_q},
        {"cu_seqlens_k", "seqlens_k", "seqlen_k", "total_k", varlen ? args.cu_seqlens_k : nullptr,
         args.seqlens_k, p.seqlen_k, p.total_k}};
    for (const Side& side : sides) STROBE_RETURN_IF_REFUSED(check_side(side, p.batch));
  }
  const std::int64_t rows = varlen ? p.total_q : p.seqlen_q;
  for (std::int64_t n = 0; n < p.num_rows; ++n) {  // 0 but for STROBE_PROBS and STROBE_KEEP_MASK
    if (args.rows[n] < 0 || args.rows[n] >= rows) {
      return refuse_element(
          "rows", n, args.rows[n], fmt::format("{} is {}", varlen ? "total_q" : "seqlen_q", rows),
          fmt::format("Pass rows from 0 to {} - 1", varlen ? "total_q" : "seqlen_q"));
    }
  }
  return {};
}

}  // namespace strobe::api
