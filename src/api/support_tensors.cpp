// resolve()'s part for tensors: sizes of bias and mask, strides of everything.
#include <algorithm>
#include <array>
#include <string>

#include "api/checked_math.h"
#include "api/names.h"
#include "api/overlap.h"
#include "api/refuse.h"
#include "api/support.h"
#include "api/tensors.h"

namespace strobe::api {
namespace {

// One dimension that has a stride field, for filling strides in from the inside out.
struct Dim {
  const char* name;
  std::int64_t size;
  std::int64_t* stride;
};

// Fills in automatic strides, given the elements of the contiguous innermost run, and refuses any
// whose reach does not fit kMaxBytes.
template <std::size_t N>
Status fill_strides(const std::string& tensor, std::int64_t run, int element_bytes,
                    const std::array<Dim, N>& inside_out) {
  const std::int64_t limit = kMaxBytes / element_bytes;
  std::int64_t reach = run;  // largest distance of two elements, plus one, whatever the order
  std::int64_t next = run;   // the stride that lies clear of the dimensions so far
  for (const Dim& dim : inside_out) {
    const std::int64_t size = std::max<std::int64_t>(dim.size, 1);
    if (*dim.stride == STROBE_AUTO || size == 1) *dim.stride = next;
    const std::int64_t span = saturating_mul(size, magnitude(*dim.stride));
    reach = saturating_add(reach, saturating_mul(size - 1, magnitude(*dim.stride)));
    next = std::max(next, span);
    if (reach > limit || *dim.stride > limit) {
      return refuse(
          fmt::format("{}{}", tensor, dim.name), *dim.stride,
          fmt::format("with {} elements along it the tensor spans more than 2^60 bytes", dim.size),
          "Pass smaller sizes or strides");
    }
  }
  return {};
}

Status resolve_one(strobe_problem& p, const StrideField& field) {
  strobe_strides& s = p.*field.strides;
  Tensor t = tensor_of(p, field);
  const bool aux = field.inner == StrideField::kNone;
  const bool seq_inside = aux || p.layout == STROBE_BHSD;
  const Dim batch = {".batch", t.sizes[0], &s.batch};
  const Dim seq = {".seq", t.sizes[1], &s.seq};
  const Dim head = {".head", t.sizes[2], &s.head};
  STROBE_RETURN_IF_REFUSED(
      fill_strides(field.name, t.sizes[3], t.element_bytes,
                   std::array{seq_inside ? seq : head, seq_inside ? head : seq, batch}));
  if (p.lengths == STROBE_VARLEN) s.batch = 0;
  if (!is_output_of(p.op, field)) return {};
  t = tensor_of(p, field);
  if (t.elements() == 0 || elements_apart(t)) return {};
  return invalid(
      field.name,
      fmt::format("{} is {{batch {}, seq {}, head {}}}, but with sizes {{{}, {}, {}}} and "
                  "{} contiguous elements two elements of an output would share memory. "
                  "Pass strides of which each exceeds the span of all smaller ones, or "
                  "STROBE_AUTO.",
                  field.name, s.batch, s.seq, s.head, t.sizes[0], t.sizes[1], t.sizes[2],
                  t.sizes[3]));
}

struct ScoreSize {
  const char* name;
  std::int64_t* size;
  std::int64_t full;
  bool broadcasts;
};

Status resolve_score_tensor(const strobe_problem& p, const std::string& name,
                            strobe_score_tensor& t) {
  if (t.reserved != 0) {
    return refuse(name + ".reserved", std::int64_t{t.reserved}, "it has no meaning yet", "Pass 0");
  }
  const ScoreSize sizes[] = {{".batch", &t.batch, p.batch, true},
                             {".heads", &t.heads, p.heads, true},
                             {".seqlen_q", &t.seqlen_q, p.seqlen_q, true},
                             {".seqlen_k", &t.seqlen_k, p.seqlen_k, false}};
  for (const ScoreSize& s : sizes) {
    if (*s.size == STROBE_AUTO) *s.size = s.full;
    if (*s.size == s.full || (s.broadcasts && *s.size == 1)) continue;
    return refuse(name + s.name, *s.size,
                  fmt::format("it must be the problem's {}, {}{}", s.name + 1, s.full,
                              s.broadcasts ? ", or 1" : ""),
                  s.broadcasts ? "Pass one of these, or STROBE_AUTO"
                               : "Pass that or STROBE_AUTO; keys do not broadcast");
  }
  if (p.lengths == STROBE_VARLEN) {
    const bool q_unknown = t.seqlen_q == 0 && p.total_q > 0;
    if (q_unknown || (t.seqlen_k == 0 && p.total_k > 0)) {
      return refuse(q_unknown ? "seqlen_q" : "seqlen_k", std::int64_t{0},
                    fmt::format("{} in a varlen problem needs an upper bound of the lengths", name),
                    "Pass the longest sequence's length");
    }
  }
  // Also broadcast, for dbias is contiguous.
  if (saturating_mul(saturating_mul(t.batch, t.heads), saturating_mul(t.seqlen_q, t.seqlen_k)) >
      kMaxElements) {
    return refuse(name + ".seqlen_q", t.seqlen_q,
                  fmt::format("{} would have more than 2^57 elements", name),
                  "Pass 1 for the sizes that broadcast");
  }
  STROBE_RETURN_IF_REFUSED(fill_strides(
      name, std::max<std::int64_t>(t.seqlen_k, 1), static_cast<int>(strobe_dtype_bytes(t.dtype)),
      std::array{Dim{".stride_q", t.seqlen_q, &t.stride_q},
                 Dim{".stride_head", t.heads, &t.stride_head},
                 Dim{".stride_batch", t.batch, &t.stride_batch}}));
  if (t.batch == 1) t.stride_batch = 0;
  if (t.heads == 1) t.stride_head = 0;
  if (t.seqlen_q == 1) t.stride_q = 0;
  return {};
}

}  // namespace

Status resolve_score_tensors(strobe_problem& p) {
  if (p.bias.dtype != STROBE_NONE) {
    if (p.bias.dtype != STROBE_F32 && p.bias.dtype != p.dtype) {
      return refuse(
          "bias.dtype", shown_enum(dtype_name(p.bias.dtype), p.bias.dtype),
          fmt::format("a bias is STROBE_F32 or the problem's dtype, {}", dtype_name(p.dtype)),
          "Pass one of these, or STROBE_NONE for no bias");
    }
    STROBE_RETURN_IF_REFUSED(resolve_score_tensor(p, "bias", p.bias));
  }
  if (p.mask.dtype != STROBE_NONE) {
    if (p.mask.dtype != STROBE_BOOL) {
      return refuse("mask.dtype", shown_enum(dtype_name(p.mask.dtype), p.mask.dtype),
                    "a mask holds one byte per element, 0 = masked",
                    "Pass STROBE_BOOL, or use bias for a mask that is added");
    }
    STROBE_RETURN_IF_REFUSED(resolve_score_tensor(p, "mask", p.mask));
  }
  return {};
}

Status resolve_strides(strobe_problem& p) {
  for (const StrideField& field : stride_fields()) {
    STROBE_RETURN_IF_REFUSED(resolve_one(p, field));
  }
  return {};
}

}  // namespace strobe::api
