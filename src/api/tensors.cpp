#include "api/tensors.h"

#include <algorithm>

#include "api/checked_math.h"

namespace strobe::api {
namespace {

using Sizes = std::array<std::int64_t, 4>;

constexpr StrideField kStrideFields[] = {
    {"q_strides", &strobe_problem::q_strides, false, StrideField::kHeadDim},
    {"k_strides", &strobe_problem::k_strides, true, StrideField::kHeadDim},
    {"v_strides", &strobe_problem::v_strides, true, StrideField::kHeadDimV},
    {"o_strides", &strobe_problem::o_strides, false, StrideField::kHeadDimV},
    {"lse_strides", &strobe_problem::lse_strides, false, StrideField::kNone},
    {"dout_strides", &strobe_problem::dout_strides, false, StrideField::kHeadDimV},
    {"dlse_strides", &strobe_problem::dlse_strides, false, StrideField::kNone},
    {"dq_strides", &strobe_problem::dq_strides, false, StrideField::kHeadDim},
    {"dk_strides", &strobe_problem::dk_strides, true, StrideField::kHeadDim},
    {"dv_strides", &strobe_problem::dv_strides, true, StrideField::kHeadDimV},
};
constexpr const StrideField &kQ = kStrideFields[0], &kK = kStrideFields[1], &kV = kStrideFields[2],
                            &kO = kStrideFields[3], &kLse = kStrideFields[4],
                            &kDout = kStrideFields[5], &kDlse = kStrideFields[6],
                            &kDq = kStrideFields[7], &kDk = kStrideFields[8],
                            &kDv = kStrideFields[9];

Sizes contiguous(const Sizes& sizes) {
  Sizes strides = {0, 0, 0, 1};
  for (int d = 2; d >= 0; --d) strides[d] = saturating_mul(strides[d + 1], sizes[d + 1]);
  return strides;
}

// Builds the list of one problem.
class Builder {
 public:
  explicit Builder(const strobe_problem& problem) : p_(problem) {}

  enum Kind { kReads, kMayRead, kWrites, kMayWrite };

  void strided(const char* name, std::size_t offset, const StrideField& field, Kind kind) {
    Tensor t = tensor_of(p_, field);
    place(name, offset, kind, &t);
    list_.add(t);
  }

  void packed(const char* name, std::size_t offset, const Sizes& sizes, int element_bytes,
              Kind kind) {
    Tensor t = {"", 0, false, false, element_bytes, element_bytes, sizes, contiguous(sizes)};
    place(name, offset, kind, &t);
    list_.add(t);
  }

  void vector(const char* name, std::size_t offset, std::int64_t count, int element_bytes,
              Kind kind) {
    packed(name, offset, {1, 1, 1, count}, element_bytes, kind);
  }

  void score_tensor(const char* name, std::size_t offset, const strobe_score_tensor& score) {
    Tensor t = {"",
                0,
                false,
                false,
                static_cast<int>(strobe_dtype_bytes(score.dtype)),
                static_cast<int>(strobe_dtype_bytes(score.dtype)),
                {score.batch, score.heads, score.seqlen_q, score.seqlen_k},
                {score.stride_batch, score.stride_head, score.stride_q, 1}};
    place(name, offset, kReads, &t);
    list_.add(t);
  }

  TensorList list() const { return list_; }

 private:
  static void place(const char* name, std::size_t offset, Kind kind, Tensor* t) {
    t->name = name;
    t->args_offset = offset;
    t->written = kind == kWrites || kind == kMayWrite;
    t->required = kind == kReads || kind == kWrites;
  }

  const strobe_problem& p_;
  TensorList list_;
};

#define STROBE_ARG(field) #field, offsetof(strobe_run_args, field)

void add_score_inputs(const strobe_problem& p, Builder* b) {
  const int aux = static_cast<int>(strobe_dtype_bytes(auxiliary_dtype(p)));
  if (p.bias.dtype != STROBE_NONE) b->score_tensor(STROBE_ARG(bias), p.bias);
  if (p.mask.dtype != STROBE_NONE) b->score_tensor(STROBE_ARG(mask), p.mask);
  if (p.alibi != STROBE_ALIBI_NONE) {
    const std::int64_t batch = p.alibi == STROBE_ALIBI_PER_BATCH_HEAD ? p.batch : 1;
    b->packed(STROBE_ARG(alibi_slopes), {1, 1, batch, p.heads}, aux, Builder::kReads);
  }
  if (p.sinks) b->vector(STROBE_ARG(sinks), p.heads, aux, Builder::kReads);
}

void add_lengths(const strobe_problem& p, Builder* b) {
  if (p.lengths == STROBE_DENSE) return;
  if (p.lengths == STROBE_VARLEN) {
    b->vector(STROBE_ARG(cu_seqlens_q), p.batch + 1, 4, Builder::kReads);
    b->vector(STROBE_ARG(cu_seqlens_k), p.batch + 1, 4, Builder::kReads);
  }
  b->vector(STROBE_ARG(seqlens_q), p.batch, 4, Builder::kMayRead);
  b->vector(STROBE_ARG(seqlens_k), p.batch, 4, Builder::kMayRead);
}

// probs or keep_mask, and the rows they are asked for.
void add_chosen_rows(const strobe_problem& p, const char* name, std::size_t offset,
                     int element_bytes, Builder* b) {
  const std::int64_t batch = p.lengths == STROBE_VARLEN ? 1 : p.batch;
  b->vector(STROBE_ARG(rows), p.num_rows, 8, Builder::kReads);
  b->packed(name, offset, {batch, p.heads, p.num_rows, p.seqlen_k}, element_bytes,
            Builder::kWrites);
}

void add_backward(const strobe_problem& p, Builder* b) {
  const int aux = static_cast<int>(strobe_dtype_bytes(auxiliary_dtype(p)));
  b->strided(STROBE_ARG(o), kO, Builder::kReads);
  b->strided(STROBE_ARG(lse), kLse, Builder::kReads);
  b->strided(STROBE_ARG(dout), kDout, Builder::kReads);
  b->strided(STROBE_ARG(dlse), kDlse, Builder::kMayRead);
  b->strided(STROBE_ARG(dq), kDq, Builder::kWrites);
  b->strided(STROBE_ARG(dk), kDk, Builder::kWrites);
  b->strided(STROBE_ARG(dv), kDv, Builder::kWrites);
  if (p.bias.dtype != STROBE_NONE) {
    b->packed(STROBE_ARG(dbias), {p.bias.batch, p.bias.heads, p.bias.seqlen_q, p.bias.seqlen_k},
              aux, Builder::kMayWrite);
  }
  if (p.sinks) b->vector(STROBE_ARG(dsinks), p.heads, aux, Builder::kMayWrite);
}

}  // namespace

std::int64_t Tensor::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    if (size == 0) return 0;
    count = saturating_mul(count, size);
  }
  return count;
}

Extent extent_of(const Tensor& tensor) {
  if (tensor.elements() == 0) return {};
  std::int64_t below = 0, above = 0;  // reach in elements
  for (int d = 0; d < 4; ++d) {
    std::int64_t& side = tensor.strides[d] < 0 ? below : above;
    side = saturating_add(side, saturating_mul(tensor.sizes[d] - 1, magnitude(tensor.strides[d])));
  }
  return {-saturating_mul(below, tensor.element_bytes),
          saturating_mul(saturating_add(above, 1), tensor.element_bytes)};
}

std::span<const StrideField> stride_fields() { return kStrideFields; }

bool is_output_of(strobe_op op, const StrideField& field) {
  const auto is = [&](const StrideField& f) { return f.strides == field.strides; };
  if (op == STROBE_FORWARD || op == STROBE_MERGE) return is(kO) || is(kLse);
  return op == STROBE_BACKWARD && (is(kDq) || is(kDk) || is(kDv));
}

strobe_dtype auxiliary_dtype(const strobe_problem& p) {
  return p.dtype == STROBE_F64 ? STROBE_F64 : STROBE_F32;
}

Tensor tensor_of(const strobe_problem& p, const StrideField& field) {
  const bool varlen = p.lengths == STROBE_VARLEN;
  const std::int64_t rows =
      varlen ? (field.keys ? p.total_k : p.total_q) : (field.keys ? p.seqlen_k : p.seqlen_q);
  const bool aux = field.inner == StrideField::kNone;
  const std::int64_t inner = aux                                    ? 1
                             : field.inner == StrideField::kHeadDim ? p.head_dim
                                                                    : p.head_dim_v;
  const int element_bytes =
      static_cast<int>(strobe_dtype_bytes(aux ? auxiliary_dtype(p) : p.dtype));
  const strobe_strides& s = p.*field.strides;
  return {.name = field.name,
          .args_offset = 0,
          .written = false,
          .required = false,
          .element_bytes = element_bytes,
          .alignment_bytes = aux ? element_bytes : std::max(p.alignment_bytes, element_bytes),
          .sizes = {varlen ? 1 : p.batch, rows, field.keys ? p.kv_heads : p.heads, inner},
          .strides = {s.batch, s.seq, s.head, 1}};
}

Tensor partial_o_of(const strobe_problem& p) {
  Tensor t = tensor_of(p, kO);
  t.name = "partial_o";
  t.element_bytes = static_cast<int>(strobe_dtype_bytes(p.partial_dtype));
  t.alignment_bytes = std::max(p.alignment_bytes, t.element_bytes);
  t.required = true;
  return t;
}

Tensor partial_lse_of(const strobe_problem& p) {
  Tensor t = tensor_of(p, kLse);
  t.name = "partial_lse";
  t.required = true;
  return t;
}

TensorList tensors_of(const strobe_problem& p) {
  Builder b(p);
  switch (p.op) {
    case STROBE_FORWARD:
    case STROBE_BACKWARD:
      b.strided(STROBE_ARG(q), kQ, Builder::kReads);
      b.strided(STROBE_ARG(k), kK, Builder::kReads);
      b.strided(STROBE_ARG(v), kV, Builder::kReads);
      if (p.op == STROBE_BACKWARD) {
        add_backward(p, &b);
        break;
      }
      [[fallthrough]];
    case STROBE_MERGE:
      b.strided(STROBE_ARG(o), kO, Builder::kWrites);
      b.strided(STROBE_ARG(lse), kLse, Builder::kMayWrite);
      break;
    case STROBE_PROBS:
      b.strided(STROBE_ARG(q), kQ, Builder::kReads);
      b.strided(STROBE_ARG(k), kK, Builder::kReads);
      b.strided(STROBE_ARG(lse), kLse, Builder::kReads);
      add_chosen_rows(p, STROBE_ARG(probs),
                      static_cast<int>(strobe_dtype_bytes(auxiliary_dtype(p))), &b);
      break;
    case STROBE_KEEP_MASK:
      add_chosen_rows(p, STROBE_ARG(keep_mask), 1, &b);
      break;
  }
  if (uses_scores(p.op)) add_score_inputs(p, &b);
  if (p.op != STROBE_MERGE) add_lengths(p, &b);
  if (uses_dropout(p)) b.vector(STROBE_ARG(dropout_state), 2, 8, Builder::kMayRead);
  return b.list();
}

#undef STROBE_ARG

}  // namespace strobe::api
