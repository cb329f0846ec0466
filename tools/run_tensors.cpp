#include "run_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "io/npy.h"
#include "io/safetensors.h"

namespace strobe::tools {
namespace {

using Fault = std::optional<std::string>;

constexpr std::array<InputSpec, 15> kInputs = {{
    {"q", "queries [batch, seqlen_q, heads, head_dim]; varlen: [total_q, heads, head_dim]"},
    {"k", "keys [batch, seqlen_k, kv_heads, head_dim]; varlen: [total_k, kv_heads, head_dim]"},
    {"v",
     "values [batch, seqlen_k, kv_heads, head_dim_v]; varlen: [total_k, kv_heads, head_dim_v]"},
    {"bias", "added to the scores [batch|1, heads|1, seqlen_q|1, seqlen_k]"},
    {"mask", "bool or uint8, 0 hides a score; shape as --bias"},
    {"slopes", "ALiBi slopes [heads] or [batch, heads]"},
    {"sinks", "one more logit per head [heads]"},
    {"cu_seqlens_q", "varlen: int [batch + 1], where each sequence begins in q"},
    {"cu_seqlens_k", "varlen: int [batch + 1], where each sequence begins in k"},
    {"seqlens_q", "int [batch], rows used of each sequence of q"},
    {"seqlens_k", "int [batch], rows used of each sequence of k"},
    {"o", "backward: o of the forward pass; needs --lse. Else forward is run first"},
    {"lse", "backward: lse of the forward pass [batch, heads, seqlen_q]; varlen: [heads, total_q]"},
    {"dout", "backward: gradient of o"},
    {"dlse", "backward: gradient of lse"},
}};

const char* const kIntegerInputs[] = {"cu_seqlens_q", "cu_seqlens_k", "seqlens_q", "seqlens_k"};

std::string text_of(const Array& array) {
  return fmt::format("{} {}", info(array.element).name, shape_text(array.shape));
}

// int32 or int64 to int32, with the range checked.
Fault to_int32(const std::string& name, const Array& array, std::vector<std::int32_t>* values) {
  if (array.shape.size() != 1 || (array.element != Element::i32 && array.element != Element::i64)) {
    return fmt::format("{}: is {}; give one dimension of int32 or int64", option_of(name),
                       text_of(array));
  }
  for (std::int64_t i = 0; i < array.shape[0]; ++i) {
    const std::int64_t value =
        array.element == Element::i32 ? array.as<std::int32_t>()[i] : array.as<std::int64_t>()[i];
    if (value < 0 || value > std::numeric_limits<std::int32_t>::max()) {
      return fmt::format("{}: element {} is {}; lengths lie between 0 and 2147483647",
                         option_of(name), i, value);
    }
    values->push_back(static_cast<std::int32_t>(value));
  }
  return std::nullopt;
}

// Type of lse, sinks and slopes.
Element auxiliary(DType dtype) { return dtype == DType::f64 ? Element::f64 : Element::f32; }

}  // namespace

std::span<const InputSpec> input_specs() { return kInputs; }

std::string option_of(const std::string& name) {
  std::string option = fmt::format("--{}", name);
  std::replace(option.begin(), option.end(), '_', '-');
  return option;
}

Fault RunTensors::load(const std::string& in_file,
                       const std::map<std::string, std::string>& given) {
  std::optional<Safetensors> tensors;
  if (!in_file.empty()) {
    FileResult<Safetensors> file = Safetensors::read(in_file);
    if (!file) return "--in: " + file.error().message();
    tensors = std::move(*file);
  }
  for (const auto& [name, value] : given) {
    FileResult<Array> array = tensors ? tensors->array(value) : read_npy(value);
    if (!array) return fmt::format("{}: {}", option_of(name), array.error().message());
    arrays_[name] = std::move(*array);
  }
  return std::nullopt;
}

std::vector<std::int64_t> RunTensors::shape_of(const Dims& dims) const {
  std::vector<std::int64_t> shape = {dims.batch, dims.seq, dims.heads, dims.dim};
  if (layout_ == Layout::bhsd) std::swap(shape[1], shape[2]);
  if (varlen_) shape.erase(shape.begin());
  return shape;
}

std::vector<std::int64_t> RunTensors::shape_like_q(std::int64_t head_dim) const {
  return shape_of({q_.batch, q_.seq, q_.heads, head_dim});
}

std::vector<std::int64_t> RunTensors::lse_shape() const {
  if (varlen_) return {q_.heads, q_.seq};
  return {q_.batch, q_.heads, q_.seq};
}

Fault RunTensors::read_dims(const std::string& name, Dims* dims) const {
  const Array& array = arrays_.at(name);
  if (array.shape.size() != (varlen_ ? 3 : 4)) {
    return fmt::format("{}: has {} dimensions {}; {}", option_of(name), array.shape.size(),
                       shape_text(array.shape),
                       varlen_ ? "varlen tensors have 3, without batch"
                               : "give 4: batch, seqlen, heads, head_dim");
  }
  std::vector<std::int64_t> shape = array.shape;
  if (varlen_) shape.insert(shape.begin(), 1);
  if (layout_ == Layout::bhsd) std::swap(shape[1], shape[2]);
  *dims = {shape[0], shape[1], shape[2], shape[3]};
  return std::nullopt;
}

Fault RunTensors::expect(const std::string& name, Element element,
                         const std::vector<std::int64_t>& shape) const {
  if (!has(name)) return std::nullopt;
  const Array& array = arrays_.at(name);
  if (array.element == element && array.shape == shape) return std::nullopt;
  return fmt::format("{}: is {}; the other tensors ask for {} {}", option_of(name), text_of(array),
                     info(element).name, shape_text(shape));
}

Fault RunTensors::describe(Problem* problem) {
  layout_ = problem->layout;
  if (Fault fault = read_lengths(problem)) return fault;
  if (Fault fault = read_qkv(problem)) return fault;
  if (Fault fault = read_score_tensors(problem)) return fault;
  return read_vectors(problem);
}

Fault RunTensors::read_lengths(Problem* problem) {
  for (const char* name : kIntegerInputs) {
    if (!has(name)) continue;
    if (Fault fault = to_int32(name, arrays_.at(name), &integers_[name])) return fault;
  }
  if (has("cu_seqlens_q") != has("cu_seqlens_k")) {
    return "--cu-seqlens-q and --cu-seqlens-k: only one is given; varlen needs both";
  }
  varlen_ = has("cu_seqlens_q");
  if (!varlen_) {
    if (has("seqlens_q") || has("seqlens_k")) problem->lengths = Lengths::padded;
    return std::nullopt;
  }
  problem->lengths = Lengths::varlen;
  const std::vector<std::int32_t>& begin = integers_["cu_seqlens_q"];
  if (begin.empty()) return "--cu-seqlens-q: is empty; give batch + 1 numbers, the first 0";
  problem->batch = static_cast<std::int64_t>(begin.size()) - 1;
  return std::nullopt;
}

Fault RunTensors::read_qkv(Problem* problem) {
  Dims v{};
  if (Fault fault = read_dims("q", &q_)) return fault;
  if (Fault fault = read_dims("k", &k_)) return fault;
  if (Fault fault = read_dims("v", &v)) return fault;
  const Element element = arrays_.at("q").element;
  problem->dtype = info(element).dtype;
  if (problem->dtype == DType::none || problem->dtype == DType::boolean) {
    return fmt::format("--q: is {}; convert it to a floating-point type", info(element).name);
  }
  if (Fault fault = expect("k", element, shape_of({q_.batch, k_.seq, k_.heads, q_.dim})))
    return fault;
  if (Fault fault = expect("v", element, shape_of({q_.batch, k_.seq, k_.heads, v.dim})))
    return fault;

  problem->heads = q_.heads;
  problem->kv_heads = k_.heads;
  problem->head_dim = q_.dim;
  problem->head_dim_v = v.dim;
  if (varlen_) {
    problem->total_q = q_.seq;
    problem->total_k = k_.seq;
  } else {
    problem->batch = q_.batch;
    problem->seqlen_q = q_.seq;
    problem->seqlen_k = k_.seq;
  }
  for (const char* name : {"o", "dout"}) {
    if (Fault fault = expect(name, element, shape_like_q(v.dim))) return fault;
  }
  for (const char* name : {"lse", "dlse"}) {
    if (Fault fault = expect(name, auxiliary(problem->dtype), lse_shape())) return fault;
  }
  return std::nullopt;
}

Fault RunTensors::read_score_tensors(Problem* problem) const {
  for (const auto& [name, tensor] :
       {std::pair("bias", &problem->bias), std::pair("mask", &problem->bool_mask)}) {
    if (!has(name)) continue;
    const Array& array = arrays_.at(name);
    if (array.shape.empty() || array.shape.size() > 4) {
      return fmt::format("{}: has {} dimensions; give up to 4: batch, heads, seqlen_q, seqlen_k",
                         option_of(name), array.shape.size());
    }
    tensor->dtype = array.element == Element::u8 ? DType::boolean : info(array.element).dtype;
    if (tensor->dtype == DType::none) {
      return fmt::format("{}: is {}, which is no type of it", option_of(name),
                         info(array.element).name);
    }
    std::vector<std::int64_t> shape(4 - array.shape.size(), 1);  // missing dimensions broadcast
    shape.insert(shape.end(), array.shape.begin(), array.shape.end());
    tensor->batch = shape[0];
    tensor->heads = shape[1];
    tensor->seqlen_q = shape[2];
    tensor->seqlen_k = shape[3];
    if (varlen_) {  // its sizes bound the lengths
      problem->seqlen_k = std::max(problem->seqlen_k, shape[3]);
      if (shape[2] > 1) problem->seqlen_q = std::max(problem->seqlen_q, shape[2]);
    }
  }
  return std::nullopt;
}

Fault RunTensors::read_vectors(Problem* problem) const {
  const Element element = auxiliary(problem->dtype);
  if (has("sinks")) problem->sinks = true;
  if (Fault fault = expect("sinks", element, {q_.heads})) return fault;
  if (has("slopes")) {
    const bool per_batch = arrays_.at("slopes").shape.size() == 2;
    problem->alibi = per_batch ? Alibi::per_batch_head : Alibi::per_head;
    std::vector<std::int64_t> shape = {q_.heads};
    if (per_batch) shape.insert(shape.begin(), problem->batch);
    if (Fault fault = expect("slopes", element, shape)) return fault;
  }
  const auto batch = static_cast<std::size_t>(problem->batch);
  for (const auto& [name, values] : integers_) {
    const std::size_t wanted = name.starts_with("cu_") ? batch + 1 : batch;
    if (values.size() != wanted) {
      return fmt::format("{}: has {} elements; batch {} asks for {}", option_of(name),
                         values.size(), batch, wanted);
    }
  }
  return std::nullopt;
}

const void* RunTensors::data(const std::string& name) const {
  const auto it = arrays_.find(name);
  return it == arrays_.end() ? nullptr : it->second.data.data();
}

RunArgs RunTensors::args() const {
  const auto lengths = [&](const char* name) {
    const auto it = integers_.find(name);
    return it == integers_.end() ? nullptr : it->second.data();
  };
  RunArgs args;
  args.q = data("q");
  args.k = data("k");
  args.v = data("v");
  args.dout = data("dout");
  args.dlse = data("dlse");
  args.bias = data("bias");
  args.mask = static_cast<const std::uint8_t*>(data("mask"));
  args.alibi_slopes = data("slopes");
  args.sinks = data("sinks");
  args.cu_seqlens_q = lengths("cu_seqlens_q");
  args.cu_seqlens_k = lengths("cu_seqlens_k");
  args.seqlens_q = lengths("seqlens_q");
  args.seqlens_k = lengths("seqlens_k");
  return args;
}

}  // namespace strobe::tools
