// check_args(): what the arguments of one run must be.
#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "api/names.h"
#include "api/overlap.h"
#include "api/refuse.h"
#include "api/support.h"
#include "api/tensors.h"

namespace strobe::api {
namespace {

constexpr std::size_t kWorkspaceAlignment = 256;

const void* pointer_of(const strobe_run_args& args, const Tensor& tensor) {
  const void* pointer = nullptr;
  std::memcpy(&pointer, reinterpret_cast<const char*>(&args) + tensor.args_offset, sizeof(pointer));
  return pointer;
}

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
std::string shown_pointer(const void* pointer) { return fmt::format("{:#x}", address(pointer)); }

// Pointers that are given although the problem has no use for them, where that is surely a mistake.
Status check_unused(const strobe_problem& p, const strobe_run_args& args) {
  const bool backward = p.op == STROBE_BACKWARD;
  const bool merge = p.op == STROBE_MERGE;
  const bool scores = uses_scores(p.op);
  const bool has_bias = p.bias.dtype != STROBE_NONE;
  const struct {
    const char* name;
    const void* pointer;
    bool used;
    const char* missing;
  } rules[] = {
      {"dq", args.dq, backward, "op = STROBE_BACKWARD"},
      {"dk", args.dk, backward, "op = STROBE_BACKWARD"},
      {"dv", args.dv, backward, "op = STROBE_BACKWARD"},
      {"dbias", args.dbias, backward && has_bias, "op = STROBE_BACKWARD and a bias"},
      {"dsinks", args.dsinks, backward && p.sinks == 1, "op = STROBE_BACKWARD and sinks = 1"},
      {"probs", args.probs, p.op == STROBE_PROBS, "op = STROBE_PROBS"},
      {"keep_mask", args.keep_mask, p.op == STROBE_KEEP_MASK, "op = STROBE_KEEP_MASK"},
      {"partial_o", args.partial_o, merge, "op = STROBE_MERGE"},
      {"partial_lse", args.partial_lse, merge, "op = STROBE_MERGE"},
      {"bias", args.bias, !scores || has_bias, "a bias: bias.dtype is STROBE_NONE"},
      {"mask", args.mask, !scores || p.mask.dtype != STROBE_NONE,
       "a mask: mask.dtype is STROBE_NONE"},
      {"alibi_slopes", args.alibi_slopes, !scores || p.alibi != STROBE_ALIBI_NONE,
       "alibi: it is STROBE_ALIBI_NONE"},
      {"sinks", args.sinks, !scores || p.sinks == 1, "sinks = 1"},
      {"cu_seqlens_q", args.cu_seqlens_q, merge || p.lengths == STROBE_VARLEN,
       "lengths = STROBE_VARLEN"},
      {"cu_seqlens_k", args.cu_seqlens_k, merge || p.lengths == STROBE_VARLEN,
       "lengths = STROBE_VARLEN"},
      {"seqlens_q", args.seqlens_q, merge || p.lengths != STROBE_DENSE,
       "lengths = STROBE_PADDED or STROBE_VARLEN"},
      {"seqlens_k", args.seqlens_k, merge || p.lengths != STROBE_DENSE,
       "lengths = STROBE_PADDED or STROBE_VARLEN"},
  };
  for (const auto& rule : rules) {
    if (rule.pointer == nullptr || rule.used) continue;
    return refuse(rule.name, std::string("not NULL"),
                  fmt::format("the problem does not have {}", rule.missing),
                  "Pass NULL, or set that in the problem");
  }
  return {};
}

// A field, or one element of it: partial_o[3].
std::string element_name(const char* name, int index) {
  return index < 0 ? std::string(name) : fmt::format("{}[{}]", name, index);
}

Status check_pointer(const strobe_problem& p, const Tensor& tensor, const void* pointer,
                     int index = -1) {
  if (tensor.elements() == 0) return {};
  if (pointer == nullptr) {
    if (!tensor.required) return {};
    return refuse(element_name(tensor.name, index), std::string("NULL"),
                  fmt::format("{} {} its {} elements", op_name(p.op),
                              tensor.written ? "writes" : "reads", tensor.elements()),
                  "Pass a pointer to them");
  }
  if (address(pointer) % static_cast<unsigned>(tensor.alignment_bytes) != 0) {
    const bool promise = tensor.alignment_bytes > tensor.element_bytes;
    return refuse(element_name(tensor.name, index), shown_pointer(pointer),
                  fmt::format("{} a multiple of {} bytes",
                              promise ? "alignment_bytes promises" : "its elements need",
                              tensor.alignment_bytes),
                  promise ? "Align it, or plan with a smaller alignment_bytes"
                          : "Align it to its element size");
  }
  return {};
}

// An output against everything else that is read or written.
Status check_apart(const Tensor& output, const void* output_data, const Tensor& other,
                   const void* other_data, int index = -1) {
  if (!may_share(output, output_data, other, other_data)) return {};
  return refuse(output.name, shown_pointer(output_data),
                fmt::format("it shares memory with {} at {}, and an output may overlap nothing",
                            element_name(other.name, index), shown_pointer(other_data)),
                "Pass separate memory");
}

Tensor workspace_of(std::size_t bytes) {
  return {.name = "workspace",
          .args_offset = offsetof(strobe_run_args, workspace),
          .written = true,
          .required = true,
          .element_bytes = 1,
          .alignment_bytes = static_cast<int>(kWorkspaceAlignment),
          .sizes = {1, 1, 1, static_cast<std::int64_t>(bytes)},
          .strides = {0, 0, 0, 1}};
}

Status check_workspace(std::size_t needed, const strobe_run_args& args) {
  if (needed == 0) return {};
  const std::string allocate = fmt::format(
      "Pass {} bytes, aligned to {}: what "
      "strobe_plan_workspace_bytes() returns",
      needed, kWorkspaceAlignment);
  if (args.workspace == nullptr) {
    return refuse("workspace", std::string("NULL"), fmt::format("this plan needs {} bytes", needed),
                  allocate);
  }
  if (address(args.workspace) % kWorkspaceAlignment != 0) {
    return refuse("workspace", shown_pointer(args.workspace),
                  fmt::format("it must be a multiple of {} bytes", kWorkspaceAlignment), allocate);
  }
  if (args.workspace_bytes < needed) {
    return refuse("workspace_bytes", fmt::format("{}", args.workspace_bytes),
                  fmt::format("this plan needs {} bytes", needed), allocate);
  }
  return {};
}

// The tensors of a run with their pointers; those without elements or pointer left out.
struct Placed {
  TensorList tensors;
  std::array<const void*, TensorList::kCapacity> data;
  std::array<Span, TensorList::kCapacity> spans;

  void add(const Tensor& tensor, const void* pointer) {
    data[tensors.size()] = pointer;
    spans[tensors.size()] = span_of(tensor, pointer);
    tensors.add(tensor);
  }
};

Status check_overlap(const strobe_problem& p, const strobe_run_args& args, const Placed& placed) {
  const Tensor* const first = placed.tensors.begin();
  for (const Tensor& output : placed.tensors) {
    if (!output.written) continue;
    const auto at = static_cast<std::size_t>(&output - first);
    const void* output_data = placed.data[at];
    for (const Tensor& other : placed.tensors) {
      const auto other_at = static_cast<std::size_t>(&other - first);
      // Of two outputs each pair is looked at once.
      if (other_at == at || (other.written && other_at < at)) continue;
      if (!placed.spans[at].meets(placed.spans[other_at])) continue;
      STROBE_RETURN_IF_REFUSED(check_apart(output, output_data, other, placed.data[other_at]));
    }
    if (p.op != STROBE_MERGE) continue;
    const Tensor o = partial_o_of(p), lse = partial_lse_of(p);
    for (int n = 0; n < p.partials; ++n) {
      if (args.partial_o != nullptr) {
        STROBE_RETURN_IF_REFUSED(check_apart(output, output_data, o, args.partial_o[n], n));
      }
      if (args.partial_lse != nullptr) {
        STROBE_RETURN_IF_REFUSED(check_apart(output, output_data, lse, args.partial_lse[n], n));
      }
    }
  }
  return {};
}

Status check_partials(const strobe_problem& p, const Tensor& tensor, const void* const* pointers) {
  if (tensor.elements() == 0) return {};
  if (pointers == nullptr) {
    return refuse(tensor.name, std::string("NULL"),
                  fmt::format("STROBE_MERGE reads its {} pointers", p.partials),
                  "Pass a host array of them");
  }
  for (int n = 0; n < p.partials; ++n) {
    STROBE_RETURN_IF_REFUSED(check_pointer(p, tensor, pointers[n], n));
  }
  return {};
}

}  // namespace

Status check_args(const strobe_problem& p, std::size_t workspace_bytes, const strobe_run_args* user,
                  void* stream, strobe_device_kind device, strobe_run_args* checked) {
  strobe_run_args args;
  strobe_run_args_init(&args);
  STROBE_RETURN_IF_REFUSED(copy_struct("args", "strobe_run_args", user, &args));
  if (args.reserved != 0) {
    return refuse("reserved", std::int64_t{args.reserved}, "it has no meaning yet", "Pass 0");
  }
  if (device != STROBE_DEVICE_CUDA && stream != nullptr) {
    return refuse("stream", shown_pointer(stream),
                  fmt::format("device {} has no streams", device_name(device)), "Pass NULL");
  }
  STROBE_RETURN_IF_REFUSED(check_unused(p, args));

  Placed placed;
  for (const Tensor& tensor : tensors_of(p)) {
    const void* pointer = pointer_of(args, tensor);
    STROBE_RETURN_IF_REFUSED(check_pointer(p, tensor, pointer));
    if (pointer == nullptr || tensor.elements() == 0) continue;
    placed.add(tensor, pointer);
  }
  if (p.op == STROBE_MERGE) {
    STROBE_RETURN_IF_REFUSED(check_partials(p, partial_o_of(p), args.partial_o));
    STROBE_RETURN_IF_REFUSED(check_partials(p, partial_lse_of(p), args.partial_lse));
  }
  STROBE_RETURN_IF_REFUSED(check_workspace(workspace_bytes, args));
  if (workspace_bytes > 0) placed.add(workspace_of(workspace_bytes), args.workspace);
  STROBE_RETURN_IF_REFUSED(check_overlap(p, args, placed));
  if (p.lengths == STROBE_PADDED && p.op != STROBE_MERGE && p.batch > 0 &&
      args.seqlens_q == nullptr && args.seqlens_k == nullptr) {
    return refuse("seqlens_k", std::string("NULL"),
                  "so is seqlens_q, and a padded problem needs at least one of them",
                  "Pass the lengths, or set lengths to STROBE_DENSE");
  }
  // What lies in a GPU's memory cannot be read here; its kernels clamp.
  if (device != STROBE_DEVICE_CUDA) STROBE_RETURN_IF_REFUSED(check_lengths(p, args));
  if (device == STROBE_DEVICE_CPU) {
    if (args.dropout_state != nullptr && uses_dropout(p)) {
      args.dropout_seed = args.dropout_state[0];
      args.dropout_offset = args.dropout_state[1];
    }
    args.dropout_state = nullptr;
  }
  *checked = args;
  return {};
}

}  // namespace strobe::api
