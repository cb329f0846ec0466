// Outputs, float64 twins, and running a plan among poison.
#include <algorithm>
#include <utility>

#include "harness/cuda_memory.h"
#include "harness/shapes.h"

namespace strobe::harness {
namespace {

// A contiguous float64 copy; booleans stay as they are.
Tensor copy_f64(const Tensor& t) {
  if (!t.defined()) return {};
  Tensor copy(t.dtype == DType::boolean ? DType::boolean : DType::f64, t.size);
  for_each(t.size, [&](const Index& at) { copy.set(at, t.get(at)); });
  return copy;
}

// Bytes of the payload that belong to no element, such as gaps between rows, still poison?
bool gaps_intact(const Tensor& t) {
  const std::size_t element_bytes = dtype_bytes(t.dtype);
  std::vector<bool> used(t.buffer.bytes(), false);
  for_each(t.size, [&](const Index& at) {
    std::int64_t element = t.origin;
    for (int d = 0; d < 4; ++d) element += at[d] * t.stride[d];
    const std::size_t first = static_cast<std::size_t>(element) * element_bytes;
    for (std::size_t byte = 0; byte < element_bytes; ++byte) used[first + byte] = true;
  });
  for (std::size_t byte = 0; byte < used.size(); ++byte) {
    if (!used[byte] && t.buffer.data()[byte] != 0xFF) return false;
  }
  return true;
}

Status damage(const char* argument, const char* message) {
  strobe_status status{};
  status.code = STROBE_INTERNAL;
  std::copy_n(argument, std::char_traits<char>::length(argument), status.argument);
  std::copy_n(message, std::char_traits<char>::length(message), status.message);
  return Status(status);
}

struct Named {
  const char* name;
  Tensor* tensor;
};

std::array<Named, 9> named(Outputs& out) {
  return {{{"o", &out.o},
           {"lse", &out.lse},
           {"dq", &out.dq},
           {"dk", &out.dk},
           {"dv", &out.dv},
           {"dbias", &out.dbias},
           {"dsinks", &out.dsinks},
           {"probs", &out.probs},
           {"keep_mask", &out.keep_mask}}};
}

// The device's address in place of the host's.
template <class T>
void translate(const CudaMemory& memory, T** pointer) {
  *pointer = static_cast<T*>(memory.translate(*pointer));
}

void add(CudaMemory* memory, const Buffer& buffer) {
  if (buffer.bytes() == 0) return;
  memory->add(const_cast<unsigned char*>(buffer.data()) - Buffer::kGuardBytes,
              buffer.bytes() + 2 * Buffer::kGuardBytes);
}
template <class T>
void add(CudaMemory* memory, const std::vector<T>& values) {
  if (!values.empty()) memory->add(const_cast<T*>(values.data()), values.size() * sizeof(T));
}

void add_all(CudaMemory* memory, const Case& c, const Inputs& in, Outputs* out) {
  for (const Tensor* t : {&in.q, &in.k, &in.v, &in.o, &in.lse, &in.dout, &in.dlse, &in.bias,
                          &in.mask, &in.alibi_slopes, &in.sinks}) {
    add(memory, t->buffer);
  }
  for (const Tensor& part : in.partial_o) add(memory, part.buffer);
  for (const Tensor& part : in.partial_lse) add(memory, part.buffer);
  for (const Named& output : named(*out)) add(memory, output.tensor->buffer);
  for (const auto* lengths : {&c.seqlens_q, &c.seqlens_k, &c.cu_seqlens_q, &c.cu_seqlens_k}) {
    add(memory, *lengths);
  }
  add(memory, c.rows);
}

// Everything is copied to the GPU and back, inputs too: a kernel that writes them shows.
Status run_on_gpu(const Plan& plan, const Case& c, const Inputs& in, Outputs* out,
                  Buffer* workspace, const RunArgs& host_args, int device_index) {
  CudaMemory memory(device_index);
  add_all(&memory, c, in, out);
  add(&memory, *workspace);
  RunArgs args = host_args;
  const auto move = [&](auto*... pointers) { (translate(memory, pointers), ...); };
  move(&args.q, &args.k, &args.v, &args.o, &args.lse, &args.dout, &args.dlse, &args.dq, &args.dk,
       &args.dv, &args.dbias, &args.dsinks, &args.bias, &args.mask, &args.alibi_slopes, &args.sinks,
       &args.cu_seqlens_q, &args.cu_seqlens_k, &args.seqlens_q, &args.seqlens_k, &args.rows,
       &args.probs, &args.keep_mask);
  std::vector<const void*> partial_o, partial_lse;
  for (const Tensor& part : in.partial_o) partial_o.push_back(memory.translate(part.data()));
  for (const Tensor& part : in.partial_lse) partial_lse.push_back(memory.translate(part.data()));
  if (!partial_o.empty()) args.partial_o = partial_o.data();
  if (!partial_lse.empty()) args.partial_lse = partial_lse.data();
  if (workspace->bytes() > 0) args.workspace.data = memory.translate(workspace->data());
  if (!memory.fault().empty()) return damage("device", memory.fault().c_str());
  const Status status = plan.run(args);
  memory.read_back();
  if (status && !memory.fault().empty()) return damage("device", memory.fault().c_str());
  return status;
}

template <class T>
const T* pointer_or_null(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

}  // namespace

Outputs make_outputs(const Case& c) {
  const Problem& p = c.problem;
  const Dims dims(p);
  const auto rows_of = [&](DType dtype) {
    return Tensor(dtype, {dims.batch, dims.heads, p.num_rows, p.seqlen_k});
  };
  Outputs out;
  switch (p.op) {
    case Op::forward:
    case Op::merge:
      out.o = make_tensor(c, dims.dtype, p.o_strides, dims.rows_q, dims.heads, dims.dv);
      if (c.lse) out.lse = make_lse(c, p.lse_strides);
      break;
    case Op::backward:
      out.dq = make_tensor(c, dims.dtype, p.dq_strides, dims.rows_q, dims.heads, dims.d);
      out.dk = make_tensor(c, dims.dtype, p.dk_strides, dims.rows_k, dims.kv_heads, dims.d);
      out.dv = make_tensor(c, dims.dtype, p.dv_strides, dims.rows_k, dims.kv_heads, dims.dv);
      if (c.dbias) out.dbias = Tensor(dims.aux, make_score_tensor(c, p.bias).size);
      if (c.dsinks) out.dsinks = Tensor(dims.aux, {1, 1, 1, dims.heads});
      break;
    case Op::probs:
      out.probs = rows_of(dims.aux);
      break;
    case Op::keep_mask:
      out.keep_mask = rows_of(DType::boolean);
      break;
  }
  return out;
}

Args::Args(const Case& c, const Inputs& in, Outputs* out) {
  q = in.q.data();
  k = in.k.data();
  v = in.v.data();
  // Backward and probs read o and lse, which the C API passes through the same pointers as outputs.
  o = in.o.defined() ? const_cast<void*>(in.o.data()) : out->o.data();
  lse = in.lse.defined() ? const_cast<void*>(in.lse.data()) : out->lse.data();
  dout = in.dout.data();
  dlse = in.dlse.data();
  dq = out->dq.data();
  dk = out->dk.data();
  dv = out->dv.data();
  dbias = out->dbias.data();
  dsinks = out->dsinks.data();
  bias = in.bias.data();
  mask = static_cast<const std::uint8_t*>(in.mask.data());
  alibi_slopes = in.alibi_slopes.data();
  sinks = in.sinks.data();
  cu_seqlens_q = pointer_or_null(c.cu_seqlens_q);
  cu_seqlens_k = pointer_or_null(c.cu_seqlens_k);
  seqlens_q = pointer_or_null(c.seqlens_q);
  seqlens_k = pointer_or_null(c.seqlens_k);
  dropout_seed = c.seed * 0x9E3779B97F4A7C15u + 1;
  dropout_offset = c.seed ^ 0x5DEECE66Du;
  for (const Tensor& part : in.partial_o) partial_o_.push_back(part.data());
  for (const Tensor& part : in.partial_lse) partial_lse_.push_back(part.data());
  partial_o = pointer_or_null(partial_o_);
  partial_lse = pointer_or_null(partial_lse_);
  rows = pointer_or_null(c.rows);
  probs = out->probs.data();
  keep_mask = static_cast<std::uint8_t*>(out->keep_mask.data());
}

Case as_f64(const Case& c) {
  Case result = c;
  Problem& p = result.problem;
  p.dtype = DType::f64;
  if (p.bias.dtype != DType::none) p.bias.dtype = DType::f64;
  if (p.partial_dtype != DType::none) p.partial_dtype = DType::f64;
  for (ScoreTensor* t : {&p.bias, &p.bool_mask}) {
    t->stride_batch = t->stride_head = t->stride_q = STROBE_AUTO;
  }
  for (Strides* s :
       {&p.q_strides, &p.k_strides, &p.v_strides, &p.o_strides, &p.lse_strides, &p.dout_strides,
        &p.dlse_strides, &p.dq_strides, &p.dk_strides, &p.dv_strides}) {
    *s = Strides{};
  }
  p.layout = Layout::bshd;
  p.alignment_bytes = 8;
  result.misalign_bytes = 0;
  return result;
}

Inputs as_f64(const Case& c, const Inputs& in) {
  Inputs copy;
  copy.q = copy_f64(in.q);
  copy.k = copy_f64(in.k);
  copy.v = copy_f64(in.v);
  copy.o = copy_f64(in.o);
  copy.lse = copy_f64(in.lse);
  copy.dout = copy_f64(in.dout);
  copy.dlse = copy_f64(in.dlse);
  copy.bias = copy_f64(in.bias);
  copy.mask = copy_f64(in.mask);
  copy.alibi_slopes = copy_f64(in.alibi_slopes);
  copy.sinks = copy_f64(in.sinks);
  for (int n = 0; n < c.problem.partials && c.problem.op == Op::merge; ++n) {
    copy.partial_o.push_back(copy_f64(in.partial_o[static_cast<std::size_t>(n)]));
    copy.partial_lse.push_back(copy_f64(in.partial_lse[static_cast<std::size_t>(n)]));
  }
  return copy;
}

Status run(const Plan& plan, const Case& c, const Inputs& inputs, Outputs* outputs, Device device) {
  for (const Named& output : named(*outputs)) output.tensor->buffer.poison();
  Buffer workspace(plan.workspace_bytes());
  Args args(c, inputs, outputs);
  if (workspace.bytes() > 0) args.workspace = {workspace.data(), workspace.bytes()};
  const Status status = device.kind == STROBE_DEVICE_CUDA
                            ? run_on_gpu(plan, c, inputs, outputs, &workspace, args, device.index)
                            : plan.run(args);
  if (!status) return status;
  if (!workspace.guards_intact()) return damage("workspace", "wrote outside the workspace");
  for (const Named& output : named(*outputs)) {
    if (!output.tensor->defined()) continue;
    if (!output.tensor->buffer.guards_intact())
      return damage(output.name, "wrote outside the tensor");
    if (!gaps_intact(*output.tensor)) return damage(output.name, "wrote between the tensor's rows");
  }
  return {};
}

}  // namespace strobe::harness
