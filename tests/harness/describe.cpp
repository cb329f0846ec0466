// A case in one line: what differs from the defaults, by the names of strobe.hpp.
#include <cstdio>

#include "harness/shapes.h"

namespace strobe::harness {
namespace {

// "key=value" words separated by blanks.
class Words {
 public:
  void add(const char* key, const std::string& value) {
    if (!text_.empty()) text_ += ' ';
    text_ += std::string(key) + "=" + value;
  }
  void add(const char* key, std::int64_t value) { add(key, std::to_string(value)); }
  void add(const char* key, double value) {
    char buffer[32];
    std::snprintf(buffer, sizeof(buffer), "%.9g", value);
    add(key, std::string(buffer));
  }
  template <class T>
  void add(const char* key, const std::vector<T>& values) {
    if (values.empty()) return;
    std::string list;
    for (const T& value : values) {
      if (!list.empty()) list += ',';
      list += std::to_string(value);
    }
    add(key, list);
  }
  void add(const char* key, const Strides& s) {
    if (s.batch == STROBE_AUTO && s.seq == STROBE_AUTO && s.head == STROBE_AUTO) return;
    add(key, number(s.batch) + "," + number(s.seq) + "," + number(s.head));
  }
  void add(const char* key, const ScoreTensor& t, const char* dtype) {
    if (t.dtype == DType::none) return;
    add(key, std::string(dtype) + "[" + number(t.batch) + "," + number(t.heads) + "," +
                 number(t.seqlen_q) + "," + number(t.seqlen_k) + "]/" + number(t.stride_batch) +
                 "," + number(t.stride_head) + "," + number(t.stride_q));
  }
  const std::string& text() const { return text_; }

 private:
  static std::string number(std::int64_t value) {
    return value == STROBE_AUTO ? "auto" : std::to_string(value);
  }

  std::string text_;
};

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::f64:
      return "f64";
    case DType::f8e4m3:
      return "f8e4m3";
    case DType::f8e5m2:
      return "f8e5m2";
    case DType::boolean:
      return "bool";
    default:
      return "none";
  }
}

const char* name_of(Op op) {
  constexpr const char* kNames[] = {"forward", "backward", "merge", "probs", "keep_mask"};
  return kNames[static_cast<int>(op)];
}

void add_scores(const Problem& p, Words& words) {
  if (p.scale) words.add("scale", *p.scale);
  if (p.softcap != 0) words.add("softcap", p.softcap);
  if (p.mask.left != -1) words.add("left", p.mask.left);
  if (p.mask.right != -1) words.add("right", p.mask.right);
  if (p.mask.offset) words.add("offset", *p.mask.offset);
  if (p.alibi == Alibi::per_head) words.add("alibi", std::string("per_head"));
  if (p.alibi == Alibi::per_batch_head) words.add("alibi", std::string("per_batch_head"));
  if (p.sinks) words.add("sinks", std::int64_t{1});
  words.add("bias", p.bias, name_of(p.bias.dtype));
  words.add("mask", p.bool_mask, name_of(p.bool_mask.dtype));
  if (p.dropout_p != 0) words.add("dropout", p.dropout_p);
}

void add_layout(const Case& c, Words& words) {
  const Problem& p = c.problem;
  if (p.layout == Layout::bhsd) words.add("layout", std::string("bhsd"));
  words.add("q_strides", p.q_strides);
  words.add("k_strides", p.k_strides);
  words.add("v_strides", p.v_strides);
  words.add("o_strides", p.o_strides);
  words.add("lse_strides", p.lse_strides);
  if (p.op == Op::backward) {
    words.add("dout_strides", p.dout_strides);
    words.add("dlse_strides", p.dlse_strides);
    words.add("dq_strides", p.dq_strides);
    words.add("dk_strides", p.dk_strides);
    words.add("dv_strides", p.dv_strides);
  }
  if (p.alignment_bytes != 16) words.add("align", std::int64_t{p.alignment_bytes});
  if (c.misalign_bytes != 0) words.add("misalign", std::int64_t{c.misalign_bytes});
}

}  // namespace

std::string describe(const Case& c) {
  const Problem& p = c.problem;
  const Dims dims(p);
  Words words;
  words.add("op", std::string(name_of(p.op)));
  words.add("dtype", std::string(name_of(p.dtype)));
  words.add("batch", p.batch);
  words.add("heads", p.heads);
  words.add("kv_heads", dims.kv_heads);
  words.add("seqlen_q", p.seqlen_q);
  words.add("seqlen_k", p.seqlen_k);
  words.add("head_dim", p.head_dim);
  if (dims.dv != dims.d) words.add("head_dim_v", dims.dv);
  if (p.lengths == Lengths::padded) words.add("lengths", std::string("padded"));
  if (p.lengths == Lengths::varlen) {
    words.add("lengths", std::string("varlen"));
    words.add("total_q", p.total_q);
    words.add("total_k", p.total_k);
  }
  words.add("cu_seqlens_q", c.cu_seqlens_q);
  words.add("cu_seqlens_k", c.cu_seqlens_k);
  words.add("seqlens_q", c.seqlens_q);
  words.add("seqlens_k", c.seqlens_k);
  add_scores(p, words);
  if (p.op == Op::merge) {
    words.add("partials", std::int64_t{p.partials});
    if (p.partial_dtype != DType::none)
      words.add("partial_dtype", std::string(name_of(p.partial_dtype)));
  }
  words.add("rows", c.rows);
  add_layout(c, words);
  if (p.deterministic) words.add("deterministic", std::int64_t{1});
  if (!c.lse) words.add("lse", std::int64_t{0});
  if (c.bias_inf_share != 0) words.add("bias_inf_share", c.bias_inf_share);
  if (c.bias_lowest_share != 0) words.add("bias_lowest_share", c.bias_lowest_share);
  if (p.bool_mask.dtype != DType::none) words.add("mask_visible_share", c.mask_visible_share);
  if (c.dlse) words.add("dlse", std::int64_t{1});
  if (c.dbias) words.add("dbias", std::int64_t{1});
  if (c.dsinks) words.add("dsinks", std::int64_t{1});
  words.add("data", std::string(name_of(c.data)));
  words.add("seed", std::to_string(c.seed));
  return (c.name.empty() ? std::string() : c.name + ": ") + words.text();
}

}  // namespace strobe::harness
