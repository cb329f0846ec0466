#include "api/support.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <initializer_list>
#include <string>

#include "api/checked_math.h"
#include "api/names.h"
#include "api/refuse.h"
#include "api/tensors.h"

namespace strobe::api {
namespace {

constexpr int kMaxHeadDim = 512;

Status check_enum(const char* argument, const char* name, std::int32_t value, const char* choices) {
  if (name != nullptr) return {};
  return refuse(argument, std::int64_t{value}, "that is none of its values",
                fmt::format("Pass {}", choices));
}

Status check_kinds(strobe_problem& p) {
  STROBE_RETURN_IF_REFUSED(check_enum("op", op_name(p.op), p.op,
                                      "STROBE_FORWARD, STROBE_BACKWARD, STROBE_MERGE, "
                                      "STROBE_PROBS or STROBE_KEEP_MASK"));
  const char* const dtypes = "STROBE_F32, STROBE_BF16, STROBE_F16 or STROBE_F64";
  STROBE_RETURN_IF_REFUSED(check_enum("dtype", dtype_name(p.dtype), p.dtype, dtypes));
  if (p.dtype == STROBE_NONE || p.dtype == STROBE_BOOL) {
    return refuse("dtype", std::string(dtype_name(p.dtype)), "tensors hold floating-point numbers",
                  fmt::format("Pass {}", dtypes));
  }
  STROBE_RETURN_IF_REFUSED(
      check_enum("layout", layout_name(p.layout), p.layout, "STROBE_BSHD or STROBE_BHSD"));
  STROBE_RETURN_IF_REFUSED(check_enum("lengths", lengths_name(p.lengths), p.lengths,
                                      "STROBE_DENSE, STROBE_PADDED or STROBE_VARLEN"));
  STROBE_RETURN_IF_REFUSED(
      check_enum("alibi", alibi_name(p.alibi), p.alibi,
                 "STROBE_ALIBI_NONE, STROBE_ALIBI_PER_HEAD or STROBE_ALIBI_PER_BATCH_HEAD"));
  const struct {
    const char* name;
    std::int32_t value;
  } flags[] = {{"deterministic", p.deterministic}, {"sinks", p.sinks}};
  for (const auto& flag : flags) {
    if (flag.value != 0 && flag.value != 1) {
      return refuse(flag.name, std::int64_t{flag.value}, "it is a flag", "Pass 0 or 1");
    }
  }
  if (p.reserved != 0) {
    return refuse("reserved", std::int64_t{p.reserved}, "it has no meaning yet", "Pass 0");
  }
  return {};
}

Status check_range(const char* argument, std::int64_t value, std::int64_t low, std::int64_t high,
                   const char* remedy) {
  if (value >= low && value <= high) return {};
  return refuse(argument, value, fmt::format("it must be from {} to {}", low, high), remedy);
}

// The elements of a tensor: a size, for which `argument` answers, times the others. A size of 0
// counts as 1, since loops over the others must not wrap either.
Status check_count(const char* argument, std::int64_t size,
                   std::initializer_list<std::int64_t> others, const char* product) {
  std::int64_t count = std::max<std::int64_t>(size, 1);
  for (const std::int64_t other : others) {
    count = saturating_mul(count, std::max<std::int64_t>(other, 1));
  }
  if (count <= kMaxElements) return {};
  return refuse(argument, size, fmt::format("{} exceeds 2^57 elements", product),
                "Pass smaller sizes");
}

std::string divisors(std::int64_t n) {
  std::string text;
  for (std::int64_t d = 1; d <= std::min<std::int64_t>(n, 1024); ++d) {
    if (n % d == 0) text += fmt::format("{}{}", text.empty() ? "" : ", ", d);
  }
  return n > 1024 ? text + ", ..." : text;
}

Status check_head_dims(strobe_problem& p) {
  // Operations without q and k take head_dim from v, or need none.
  if (p.head_dim == 0 && p.op == STROBE_MERGE && p.head_dim_v != STROBE_AUTO) {
    p.head_dim = p.head_dim_v;
  }
  if (p.head_dim == 0 && p.op == STROBE_KEEP_MASK) p.head_dim = 1;
  if (p.head_dim_v == STROBE_AUTO) p.head_dim_v = p.head_dim;
  STROBE_RETURN_IF_REFUSED(
      check_range("head_dim", p.head_dim, 1, kMaxHeadDim, "Pass the innermost size of q and k"));
  return check_range("head_dim_v", p.head_dim_v, 1, kMaxHeadDim,
                     "Pass the innermost size of v, or STROBE_AUTO for head_dim");
}

Status check_sizes(strobe_problem& p) {
  STROBE_RETURN_IF_REFUSED(
      check_range("batch", p.batch, 0, kMaxSize, "Pass the number of sequences"));
  STROBE_RETURN_IF_REFUSED(
      check_range("heads", p.heads, 1, kMaxSize, "Pass the number of query heads"));
  if (p.kv_heads == STROBE_AUTO) p.kv_heads = p.heads;
  if (p.kv_heads < 1 || p.heads % p.kv_heads != 0) {
    return refuse("kv_heads", p.kv_heads,
                  fmt::format("it must be at least 1 and divide heads, {}", p.heads),
                  fmt::format("Pass one of {}, or STROBE_AUTO for {}", divisors(p.heads), p.heads));
  }
  STROBE_RETURN_IF_REFUSED(
      check_range("seqlen_q", p.seqlen_q, 0, kMaxSize, "Pass the rows of q per sequence"));
  STROBE_RETURN_IF_REFUSED(
      check_range("seqlen_k", p.seqlen_k, 0, kMaxSize, "Pass the rows of k per sequence"));
  STROBE_RETURN_IF_REFUSED(check_head_dims(p));
  if (p.lengths == STROBE_VARLEN) {
    STROBE_RETURN_IF_REFUSED(
        check_range("total_q", p.total_q, 0, kMaxSize, "Pass the rows of q of all sequences"));
    STROBE_RETURN_IF_REFUSED(
        check_range("total_k", p.total_k, 0, kMaxSize, "Pass the rows of k of all sequences"));
  } else {
    p.total_q = saturating_mul(p.batch, p.seqlen_q);
    p.total_k = saturating_mul(p.batch, p.seqlen_k);
  }
  const std::int64_t dim = std::max(p.head_dim, p.head_dim_v);
  const bool varlen = p.lengths == STROBE_VARLEN;
  STROBE_RETURN_IF_REFUSED(
      check_count("batch", p.batch, {p.heads, dim}, "batch * heads * head_dim"));
  STROBE_RETURN_IF_REFUSED(
      varlen ? check_count("total_q", p.total_q, {p.heads, dim}, "total_q * heads * head_dim")
             : check_count("seqlen_q", p.seqlen_q, {p.batch, p.heads, dim},
                           "batch * seqlen_q * heads * head_dim"));
  STROBE_RETURN_IF_REFUSED(
      varlen ? check_count("total_k", p.total_k, {p.heads, dim}, "total_k * heads * head_dim")
             : check_count("seqlen_k", p.seqlen_k, {p.batch, p.heads, dim},
                           "batch * seqlen_k * heads * head_dim"));
  if (p.alignment_bytes < 1 || p.alignment_bytes > 256 ||
      !std::has_single_bit(static_cast<unsigned>(p.alignment_bytes))) {
    return refuse("alignment_bytes", std::int64_t{p.alignment_bytes},
                  "it must be a power of two from 1 to 256",
                  "Pass 16, or 1 for pointers of no more than their element's alignment");
  }
  return {};
}

// The smallest and largest magnitude that a kernel of this dtype computes with.
Status check_number(const strobe_problem& p, const char* argument, double value, bool zero_is_off) {
  const double high = p.dtype == STROBE_F64 ? DBL_MAX : double{FLT_MAX};
  const double low = p.dtype == STROBE_F64 ? DBL_MIN : double{FLT_MIN};
  if (zero_is_off && value != 0 && !(value >= low && value <= high)) {
    return refuse(argument, value, fmt::format("it must be 0, or from {:.3g} to {:.3g}", low, high),
                  "Pass 0 for none");
  }
  if (!(std::fabs(value) <= high)) {
    return refuse(argument, value, fmt::format("it must be finite and at most {:.3g}", high),
                  "Pass a smaller number, or STROBE_SCALE_AUTO for 1 / sqrt(head_dim)");
  }
  return {};
}

Status check_window(const char* argument, std::int64_t& window) {
  if (window < -1) {
    return refuse(argument, window, "only -1 means unlimited",
                  "Pass -1, or the number of keys, 0 or more");
  }
  if (window > 4 * kMaxSize) window = -1;  // farther than any key
  return {};
}

Status check_scores(strobe_problem& p) {
  if (p.scale == STROBE_SCALE_AUTO) p.scale = 1 / std::sqrt(static_cast<double>(p.head_dim));
  STROBE_RETURN_IF_REFUSED(check_number(p, "scale", p.scale, false));
  STROBE_RETURN_IF_REFUSED(check_number(p, "softcap", p.softcap, true));
  STROBE_RETURN_IF_REFUSED(check_window("window_left", p.window_left));
  STROBE_RETURN_IF_REFUSED(check_window("window_right", p.window_right));
  if (p.query_offset != STROBE_AUTO) {
    if (magnitude(p.query_offset) > kMaxSize) {
      return refuse("query_offset", p.query_offset,
                    fmt::format("it must be from {} to {}", -kMaxSize, kMaxSize),
                    "Pass the key at the first query's diagonal, or STROBE_AUTO");
    }
  } else if (p.lengths == STROBE_DENSE && p.op != STROBE_MERGE) {
    p.query_offset = p.seqlen_k - p.seqlen_q;
  }
  if (!(p.dropout_p >= 0 && p.dropout_p < 1)) {
    return refuse("dropout_p", p.dropout_p, "it must be at least 0 and less than 1",
                  "Pass the probability of dropping an element, 0 for none");
  }
  return {};
}

// The first score feature that a merge would ignore, or nullptr.
const char* score_feature(const strobe_problem& p) {
  if (p.softcap != 0) return "softcap";
  if (p.window_left != -1) return "window_left";
  if (p.window_right != -1) return "window_right";
  if (p.query_offset != STROBE_AUTO) return "query_offset";
  if (p.alibi != STROBE_ALIBI_NONE) return "alibi";
  if (p.sinks != 0) return "sinks";
  if (p.bias.dtype != STROBE_NONE) return "bias";
  if (p.mask.dtype != STROBE_NONE) return "mask";
  if (p.dropout_p != 0) return "dropout_p";
  return nullptr;
}

Status check_merge(strobe_problem& p) {
  if (p.partials < 1) {
    return refuse("partials", std::int64_t{p.partials}, "a merge needs at least 1 partial result",
                  "Pass the number of pointers in partial_o");
  }
  if (p.partial_dtype == STROBE_NONE) p.partial_dtype = p.dtype;
  if (p.partial_dtype != p.dtype && p.partial_dtype != auxiliary_dtype(p)) {
    return refuse("partial_dtype", shown_enum(dtype_name(p.partial_dtype), p.partial_dtype),
                  fmt::format("partial results are {} or {}", dtype_name(auxiliary_dtype(p)),
                              dtype_name(p.dtype)),
                  "Pass one of these, or STROBE_NONE for the problem's dtype");
  }
  if (const char* feature = score_feature(p)) {
    return refuse(feature, std::string("set"),
                  "op is STROBE_MERGE, which joins finished results and computes no scores",
                  "Leave it at its default, and set it in the problems of the partial results");
  }
  return {};
}

Status check_op(strobe_problem& p) {
  if (p.op == STROBE_MERGE) {
    STROBE_RETURN_IF_REFUSED(check_merge(p));
  } else if (p.partials != 0) {
    return refuse("partials", std::int64_t{p.partials},
                  fmt::format("op is {}, which has no partial results", op_name(p.op)),
                  "Pass 0, or set op to STROBE_MERGE");
  } else if (p.partial_dtype != STROBE_NONE) {
    return refuse("partial_dtype", shown_enum(dtype_name(p.partial_dtype), p.partial_dtype),
                  fmt::format("op is {}, which has no partial results", op_name(p.op)),
                  "Pass STROBE_NONE, or set op to STROBE_MERGE");
  }
  if (p.op != STROBE_PROBS && p.op != STROBE_KEEP_MASK) {
    if (p.num_rows == 0) return {};
    return refuse("num_rows", p.num_rows,
                  fmt::format("op is {}, which chooses no rows", op_name(p.op)),
                  "Pass 0, or set op to STROBE_PROBS or STROBE_KEEP_MASK");
  }
  STROBE_RETURN_IF_REFUSED(
      check_range("num_rows", p.num_rows, 0, kMaxSize, "Pass the number of elements in rows"));
  if (p.lengths == STROBE_VARLEN && p.seqlen_k == 0 && p.total_k > 0) {
    return refuse("seqlen_k", p.seqlen_k,
                  fmt::format("op is {}, whose result has seqlen_k columns", op_name(p.op)),
                  "Pass an upper bound of the lengths of k");
  }
  return check_count("num_rows", p.num_rows,
                     {p.lengths == STROBE_VARLEN ? 1 : p.batch, p.heads, p.seqlen_k},
                     "batch * heads * num_rows * seqlen_k");
}

}  // namespace

Status resolve(const strobe_problem* user, strobe_problem* resolved) {
  strobe_problem p;
  strobe_problem_init(&p);
  STROBE_RETURN_IF_REFUSED(copy_struct("problem", "strobe_problem", user, &p));
  for (const auto step :
       {check_kinds, check_sizes, check_scores, check_op, resolve_score_tensors, resolve_strides}) {
    STROBE_RETURN_IF_REFUSED(step(p));
  }
  *resolved = p;
  return {};
}

}  // namespace strobe::api
