// Strobe's C++20 API: a header-only wrapper over strobe.h, which documents shapes, units and
// mathematics.
//
//     strobe::Problem problem{.batch = 2, .heads = 32, .kv_heads = 8, .seqlen_q = 4096, .seqlen_k =
//     4096,
//                             .head_dim = 128, .dtype = strobe::DType::bf16, .mask =
//                             strobe::Band::causal()};
//     strobe::Result<strobe::Plan> plan = strobe::make_plan(problem);
//     if (!plan) { report(plan.status().message()); return; }
//     strobe::HostWorkspace workspace(*plan);
//     strobe::Status status = plan->run({.q = q, .k = k, .v = v, .o = o, .workspace = workspace});
#ifndef STROBE_STROBE_HPP_
#define STROBE_STROBE_HPP_

#include <strobe/strobe.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace strobe {

enum class DType : strobe_dtype {
  none = STROBE_NONE,
  f32 = STROBE_F32,
  bf16 = STROBE_BF16,
  f16 = STROBE_F16,
  f64 = STROBE_F64,
  f8e4m3 = STROBE_F8E4M3,
  f8e5m2 = STROBE_F8E5M2,
  boolean = STROBE_BOOL
};
enum class Op : strobe_op {
  forward = STROBE_FORWARD,
  backward = STROBE_BACKWARD,
  merge = STROBE_MERGE,
  probs = STROBE_PROBS,
  keep_mask = STROBE_KEEP_MASK
};
enum class Layout : strobe_layout { bshd = STROBE_BSHD, bhsd = STROBE_BHSD };
enum class Lengths : strobe_lengths {
  dense = STROBE_DENSE,
  padded = STROBE_PADDED,
  varlen = STROBE_VARLEN
};
enum class Alibi : strobe_alibi {
  none = STROBE_ALIBI_NONE,
  per_head = STROBE_ALIBI_PER_HEAD,
  per_batch_head = STROBE_ALIBI_PER_BATCH_HEAD
};

// Bytes of one element.
inline std::size_t dtype_bytes(DType dtype) {
  return strobe_dtype_bytes(static_cast<strobe_dtype>(dtype));
}

// What went wrong, if anything. `argument` is the field at fault as spelled in strobe.h.
class [[nodiscard]] Status {
 public:
  Status() = default;
  explicit Status(const strobe_status& status)
      : code_(status.code), argument_(status.argument), message_(status.message) {}

  bool ok() const { return code_ == STROBE_OK; }
  explicit operator bool() const { return ok(); }
  strobe_code code() const { return code_; }
  const std::string& argument() const { return argument_; }
  const std::string& message() const { return message_; }

 private:
  strobe_code code_ = STROBE_OK;
  std::string argument_;
  std::string message_;
};

// A value, or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Status status) : state_(std::move(status)) {}

  bool has_value() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return has_value(); }
  T& operator*() { return std::get<T>(state_); }
  const T& operator*() const { return std::get<T>(state_); }
  T* operator->() { return &std::get<T>(state_); }
  const T* operator->() const { return &std::get<T>(state_); }
  Status status() const { return has_value() ? Status() : std::get<Status>(state_); }

 private:
  std::variant<T, Status> state_;
};

// Elements between neighbours along each dimension; the innermost stride of q, k, v, o is 1.
struct Strides {
  std::int64_t batch = STROBE_AUTO;
  std::int64_t seq = STROBE_AUTO;
  std::int64_t head = STROBE_AUTO;
};

// Which keys a query sees by position. Key j is visible to query i iff
// i + offset - left <= j <= i + offset + right; -1 is unlimited. Unset offset: bottom-right
// aligned.
struct Band {
  std::int64_t left = -1;
  std::int64_t right = -1;
  std::optional<std::int64_t> offset = std::nullopt;

  static Band full() { return {}; }
  static Band causal() { return {.right = 0}; }
  static Band window(std::int64_t left, std::int64_t right) {
    return {.left = left, .right = right};
  }
};

// Bias or boolean mask over the scores: [batch|1, heads|1, seqlen_q|1, seqlen_k], 1 broadcasts.
struct ScoreTensor {
  DType dtype = DType::none;
  std::int64_t batch = STROBE_AUTO;
  std::int64_t heads = STROBE_AUTO;
  std::int64_t seqlen_q = STROBE_AUTO;
  std::int64_t seqlen_k = STROBE_AUTO;
  std::int64_t stride_batch = STROBE_AUTO;
  std::int64_t stride_head = STROBE_AUTO;
  std::int64_t stride_q = STROBE_AUTO;
};

// What to compute; field by field as strobe_problem.
struct Problem {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::optional<std::int64_t> kv_heads = std::nullopt;
  std::int64_t seqlen_q = 0;
  std::int64_t seqlen_k = 0;
  std::int64_t head_dim = 0;
  std::optional<std::int64_t> head_dim_v = std::nullopt;
  DType dtype = DType::f32;
  Band mask = {};
  Layout layout = Layout::bshd;
  Op op = Op::forward;

  Lengths lengths = Lengths::dense;
  std::int64_t total_q = 0;
  std::int64_t total_k = 0;

  std::optional<double> scale = std::nullopt;
  double softcap = 0;
  Alibi alibi = Alibi::none;
  bool sinks = false;
  ScoreTensor bias = {};
  ScoreTensor bool_mask = {};
  double dropout_p = 0;
  bool deterministic = false;

  Strides q_strides = {}, k_strides = {}, v_strides = {}, o_strides = {}, lse_strides = {};
  Strides dout_strides = {}, dlse_strides = {}, dq_strides = {}, dk_strides = {}, dv_strides = {};

  int alignment_bytes = 16;
  int partials = 0;
  DType partial_dtype = DType::none;
  std::int64_t num_rows = 0;

  strobe_problem to_c() const;
  Status check() const;
};

// Where a plan runs. Nothing ever falls back from one device to another.
struct Device {
  strobe_device_kind kind = STROBE_DEVICE_CPU;
  int index = 0;

  static Device cpu() { return {}; }
  static Device cuda(int index = 0) { return {STROBE_DEVICE_CUDA, index}; }
  static Device emulator() { return {STROBE_DEVICE_EMULATOR, 0}; }
};

struct PlanOptions {
  Device device = {};
  std::string kernel = {};     // empty: the cheapest
  std::string overrides = {};  // "key=value,key=value"
  int threads = 0;             // 0: all
  const strobe_executor* executor = nullptr;
};

// Pointers of one run; every field as in strobe_run_args, which says who reads and writes it.
struct RunArgs {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* o = nullptr;
  void* lse = nullptr;
  const void* dout = nullptr;
  const void* dlse = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  void* dbias = nullptr;
  void* dsinks = nullptr;
  const void* bias = nullptr;
  const std::uint8_t* mask = nullptr;
  const void* alibi_slopes = nullptr;
  const void* sinks = nullptr;
  const std::int32_t* cu_seqlens_q = nullptr;
  const std::int32_t* cu_seqlens_k = nullptr;
  const std::int32_t* seqlens_q = nullptr;
  const std::int32_t* seqlens_k = nullptr;
  std::uint64_t dropout_seed = 0;
  std::uint64_t dropout_offset = 0;
  const std::uint64_t* dropout_state = nullptr;
  const void* const* partial_o = nullptr;
  const void* const* partial_lse = nullptr;
  const std::int64_t* rows = nullptr;
  void* probs = nullptr;
  std::uint8_t* keep_mask = nullptr;

  // Borrowed memory: strobe::HostWorkspace converts to it.
  struct Workspace {
    void* data = nullptr;
    std::size_t bytes = 0;
  } workspace = {};

  strobe_run_args to_c() const;
};

// An immutable recipe for one Problem on one device. Copies share it; run() may be called from any
// thread.
class Plan {
 public:
  std::size_t workspace_bytes() const { return strobe_plan_workspace_bytes(plan_.get()); }
  strobe_plan_facts facts() const;
  std::string explain(strobe_format format = STROBE_TEXT) const;
  // stream: null on the CPU, a CUstream on CUDA. On error nothing was written.
  Status run(const RunArgs& args, void* stream = nullptr) const;
  const strobe_plan* get() const { return plan_.get(); }

 private:
  friend Result<Plan> make_plan(const Problem&, const PlanOptions&);
  explicit Plan(strobe_plan* plan) : plan_(plan, strobe_plan_destroy) {}
  std::shared_ptr<const strobe_plan> plan_;
};

// The plan, or every reason for refusing.
inline Result<Plan> make_plan(const Problem& problem, const PlanOptions& options = {});

// Aligned host memory of the size a plan asks for.
class HostWorkspace {
 public:
  explicit HostWorkspace(const Plan& plan) : HostWorkspace(plan.workspace_bytes()) {}
  explicit HostWorkspace(std::size_t bytes)
      : bytes_(bytes), data_(bytes ? ::operator new (bytes, std::align_val_t{256}) : nullptr) {}

  operator RunArgs::Workspace() const { return {data_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(void* data) const { ::operator delete (data, std::align_val_t{256}); }
  };
  std::size_t bytes_;
  std::unique_ptr<void, Free> data_;
};

inline std::string version() { return strobe_version(); }
inline std::string library_info(strobe_format format = STROBE_TEXT);

}  // namespace strobe

#include <strobe/detail/strobe_impl.hpp>

#endif  // STROBE_STROBE_HPP_
