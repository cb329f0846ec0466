// Problems, options and arguments made from bytes, through validation, planning, explaining and,
// where the problem is small, running on exactly sized buffers, so that a sanitizer sees any access
// outside them. Checked besides: what must be refused is, and a refused run writes nothing.
#include <strobe/strobe.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "api/plan.h"
#include "api/support.h"
#include "api/tensors.h"
#include "input.h"

namespace strobe::fuzz {
namespace {

constexpr std::int64_t kInteresting[] = {0,
                                         1,
                                         -1,
                                         2,
                                         3,
                                         7,
                                         8,
                                         16,
                                         17,
                                         255,
                                         256,
                                         4096,
                                         INT32_MAX,
                                         std::int64_t{INT32_MAX} + 1,
                                         INT32_MIN,
                                         std::int64_t{1} << 32,
                                         std::int64_t{1} << 48,
                                         (std::int64_t{1} << 48) + 1,
                                         std::int64_t{1} << 60,
                                         std::int64_t{1} << 62,
                                         INT64_MAX,
                                         INT64_MAX - 1,
                                         INT64_MIN,
                                         INT64_MIN + 1};

std::int64_t interesting(Input& in) {
  switch (in.below(4)) {
    case 0:
      return in.take<std::int64_t>();
    case 1:
      return in.take<std::int8_t>();
    case 2:
      return std::bit_cast<std::int64_t>(in.one_in(2) ? std::numeric_limits<double>::quiet_NaN()
                                                      : 1.0 / (1 + in.below(8)));
    default:
      return kInteresting[in.below(std::size(kInteresting))];
  }
}

// Overwrites a few 4- or 8-byte fields of a struct, whatever they are.
template <class T>
void mutate(Input& in, T* object, int at_most) {
  for (int n = in.below(at_most + 1); n > 0; --n) {
    const std::int64_t value = interesting(in);
    const std::size_t bytes = in.one_in(2) ? 4 : 8;
    const std::size_t at = in.take<std::uint16_t>() % (sizeof(T) / bytes) * bytes;
    std::memcpy(reinterpret_cast<char*>(object) + at, &value, bytes);
  }
}

strobe_strides some_strides(Input& in) {
  strobe_strides s = {STROBE_AUTO, STROBE_AUTO, STROBE_AUTO};
  if (in.one_in(4)) s.batch = in.take<std::int8_t>() * 8;
  if (in.one_in(4)) s.seq = in.take<std::int8_t>();
  if (in.one_in(4)) s.head = in.take<std::int8_t>();
  return s;
}

void some_score_tensor(Input& in, strobe_dtype dtype, strobe_score_tensor* t) {
  t->dtype = dtype;
  if (in.one_in(2)) t->batch = 1;
  if (in.one_in(2)) t->heads = 1;
  if (in.one_in(2)) t->seqlen_q = 1;
  if (in.one_in(4)) t->stride_q = in.take<std::int8_t>();
  if (in.one_in(4)) t->stride_head = in.take<std::int8_t>();
}

// Mostly valid and small.
strobe_problem small_problem(Input& in) {
  strobe_problem p;
  strobe_problem_init(&p);
  p.op = in.below(5);
  p.dtype = std::array{STROBE_F32, STROBE_BF16, STROBE_F16, STROBE_F64}[in.below(4)];
  p.layout = in.below(2);
  p.lengths = in.below(3);
  p.batch = in.below(4);
  p.kv_heads = 1 + in.below(3);
  p.heads = p.kv_heads * (1 + in.below(3));
  p.seqlen_q = in.below(9);
  p.seqlen_k = in.below(9);
  p.total_q = p.batch * p.seqlen_q;
  p.total_k = p.batch * p.seqlen_k + in.below(3);
  p.head_dim = 1 + in.below(12);
  if (in.one_in(3)) p.head_dim_v = 1 + in.below(12);
  p.alignment_bytes = 1 << in.below(9);
  if (p.op == STROBE_MERGE) p.partials = 1 + in.below(3);
  if (p.op == STROBE_PROBS || p.op == STROBE_KEEP_MASK) p.num_rows = in.below(4);
  for (const api::StrideField& field : api::stride_fields()) {
    if (in.one_in(3)) p.*field.strides = some_strides(in);
  }
  if (p.op == STROBE_MERGE) return p;
  if (in.one_in(3)) p.window_left = in.below(8);
  if (in.one_in(2)) p.window_right = in.below(8);
  if (in.one_in(4)) p.query_offset = in.take<std::int8_t>();
  if (in.one_in(4)) p.softcap = 1 + in.below(50);
  if (in.one_in(3)) p.alibi = in.below(3);
  if (in.one_in(3)) p.sinks = 1;
  if (in.one_in(3)) some_score_tensor(in, in.one_in(2) ? p.dtype : STROBE_F32, &p.bias);
  if (in.one_in(3)) some_score_tensor(in, STROBE_BOOL, &p.mask);
  if (in.one_in(3)) p.dropout_p = in.below(10) / 10.0;
  return p;
}

// The caller's struct in memory of just the size it claims, as far as Strobe may read it.
template <class T>
std::vector<std::max_align_t> exact_memory(const T& object) {
  const std::size_t bytes = std::min<std::size_t>(std::max(object.struct_size, 4u), sizeof(T));
  std::vector<std::max_align_t> memory((bytes + sizeof(std::max_align_t) - 1) /
                                       sizeof(std::max_align_t));
  std::memcpy(memory.data(), &object, bytes);
  return memory;
}

struct Destroy {
  void operator()(strobe_plan* plan) const { strobe_plan_destroy(plan); }
};
using PlanPtr = std::unique_ptr<strobe_plan, Destroy>;

PlanPtr make_plan(Input& in, const strobe_problem& p) {
  const std::vector<std::max_align_t> memory = exact_memory(p);
  const auto* problem = reinterpret_cast<const strobe_problem*>(memory.data());
  strobe_status status;
  const strobe_code checked = strobe_problem_check(problem, &status);
  require(checked == STROBE_OK || checked == STROBE_INVALID_ARGUMENT, "check says OK or invalid");
  require((checked == STROBE_OK) == (status.message[0] == '\0'), "a refusal has a message");

  strobe_plan_options options;
  strobe_plan_options_init(&options);
  static constexpr const char* kKernels[] = {"reference", "reference", "cpu", nullptr, "none"};
  static constexpr const char* kOverrides[] = {nullptr, nullptr, nullptr, "", "a=b,c=d", "=,"};
  options.kernel = kKernels[in.below(std::size(kKernels))];
  options.overrides = kOverrides[in.below(std::size(kOverrides))];
  options.threads = in.one_in(8) ? in.take<std::int32_t>() : 1;
  if (in.one_in(8)) options.device = in.take<std::int32_t>();
  if (in.one_in(8)) options.device_index = in.take<std::int32_t>();
  strobe_plan* plan = nullptr;
  const strobe_code planned = strobe_plan_create(problem, &options, &plan, &status);
  require((planned == STROBE_OK) == (plan != nullptr), "a plan iff OK");
  require(planned != STROBE_OK || checked == STROBE_OK, "only a valid problem is planned");
  require(planned != STROBE_INTERNAL, "no internal error in planning");
  return PlanPtr(plan);
}

void check_reports(const strobe_plan* plan) {
  strobe_plan_facts facts{};
  facts.struct_size = sizeof(facts);
  require(strobe_plan_get_facts(plan, &facts, nullptr) == STROBE_OK, "facts of every plan");
  for (const double fact : {facts.visible_pairs, facts.flops, facts.bytes, facts.workspace_bytes,
                            facts.standard_bytes}) {
    require(std::isfinite(fact) && fact >= 0, "facts are finite and not negative");
  }
  for (const strobe_format format : {STROBE_TEXT, STROBE_JSON}) {
    std::string text(strobe_plan_explain(plan, format, nullptr, 0), '#');
    require(strobe_plan_explain(plan, format, text.data(), text.size()) == text.size(),
            "explain has one size");
    require(text.find('\0') == text.size() - 1, "explain fills its buffer");
  }
}

// A tensor of a run in memory of exactly its extent.
class Placed {
 public:
  Placed(const api::Tensor& tensor, Input& in) : tensor_(tensor) {
    const api::Extent extent = api::extent_of(tensor);
    bytes_ = static_cast<std::size_t>(extent.end - extent.begin);
    // The pointer, not the lowest byte, is what must be aligned.
    const auto align = static_cast<std::size_t>(tensor.alignment_bytes);
    lead_ = static_cast<std::size_t>(-extent.begin);
    pad_ = (align - lead_ % align) % align;
    memory_.reset(
        static_cast<unsigned char*>(::operator new (pad_ + bytes_, std::align_val_t{256})));
    std::memset(memory_.get(), kPoison, pad_ + bytes_);
    if (!tensor.written) in.copy(memory_.get() + pad_, std::min<std::size_t>(bytes_, 64));
    before_.assign(memory_.get(), memory_.get() + pad_ + bytes_);
  }

  const api::Tensor& tensor() const { return tensor_; }
  void* data() { return memory_.get() + pad_ + lead_; }
  bool empty() const { return bytes_ == 0; }
  void remember() { before_.assign(memory_.get(), memory_.get() + pad_ + bytes_); }
  bool unchanged() const { return std::equal(before_.begin(), before_.end(), memory_.get()); }

 private:
  static constexpr int kPoison = 0x3C;  // small numbers in every floating dtype
  struct Free {
    void operator()(unsigned char* p) const { ::operator delete (p, std::align_val_t{256}); }
  };
  api::Tensor tensor_;
  std::size_t bytes_ = 0, lead_ = 0, pad_ = 0;
  std::unique_ptr<unsigned char, Free> memory_;
  std::vector<unsigned char> before_;
};

void set_pointer(strobe_run_args* args, const api::Tensor& tensor, const void* pointer) {
  std::memcpy(reinterpret_cast<char*>(args) + tensor.args_offset, &pointer, sizeof(pointer));
}

bool small_enough(const strobe_problem& p) {
  double bytes = 0, pairs = static_cast<double>(p.batch + 1) * static_cast<double>(p.heads);
  pairs *= static_cast<double>(p.seqlen_q + p.total_q + p.num_rows + 1) *
           static_cast<double>(p.seqlen_k + p.total_k + 1);
  for (const api::Tensor& tensor : api::tensors_of(p)) {
    const api::Extent extent = api::extent_of(tensor);
    bytes += static_cast<double>(extent.end) - static_cast<double>(extent.begin);
  }
  return bytes < 1 << 18 && pairs < 1 << 16 && p.partials < 8;
}

// Values of the lengths and rows: valid, or now and then anything.
void fill_lengths(Input& in, const strobe_problem& p, Placed* placed) {
  const std::string name = placed->tensor().name;
  const bool q = name.back() == 'q';
  const std::int64_t bound = q ? p.seqlen_q : p.seqlen_k, total = q ? p.total_q : p.total_k;
  const bool wild = in.one_in(8);
  const std::int64_t count = placed->tensor().elements();
  if (name == "rows") {
    auto* rows = static_cast<std::int64_t*>(placed->data());
    const std::int64_t limit = p.lengths == STROBE_VARLEN ? p.total_q : p.seqlen_q;
    for (std::int64_t n = 0; n < count; ++n) {
      rows[n] = wild ? interesting(in) : limit == 0 ? 0 : in.take<std::uint8_t>() % limit;
    }
  } else if (name.rfind("cu_seqlens", 0) == 0) {
    auto* cu = static_cast<std::int32_t*>(placed->data());
    std::int64_t sum = 0;
    for (std::int64_t b = 0; b < count; ++b) {
      cu[b] = static_cast<std::int32_t>(wild ? interesting(in) : sum);
      const std::int64_t room = std::min(total - sum, bound > 0 ? bound : total);
      sum += in.take<std::uint8_t>() % (room + 1);
    }
  } else if (name.rfind("seqlens", 0) == 0) {
    auto* used = static_cast<std::int32_t*>(placed->data());
    for (std::int64_t b = 0; b < count; ++b) {
      used[b] =
          static_cast<std::int32_t>(wild ? interesting(in) : in.take<std::uint8_t>() % (bound + 1));
    }
  }
}

class Run {
 public:
  Run(Input& in, const strobe_plan& plan) : in_(in), plan_(plan), problem_(plan.problem) {
    strobe_run_args_init(&args_);
    for (const api::Tensor& tensor : api::tensors_of(problem_)) add(tensor);
    for (Placed& placed : placed_) {
      const bool leave_out = !placed.tensor().required && in_.one_in(3);
      if (!leave_out) set_pointer(&args_, placed.tensor(), placed.data());
    }
    for (int n = 0; n < problem_.partials; ++n) {
      for (const auto& [tensor, list] : {std::pair{api::partial_o_of(problem_), &partial_o_},
                                         std::pair{api::partial_lse_of(problem_), &partial_lse_}}) {
        add(tensor);
        list->push_back(placed_.back().data());
      }
    }
    if (problem_.op == STROBE_MERGE) {
      args_.partial_o = partial_o_.data();
      args_.partial_lse = partial_lse_.data();
    }
    args_.dropout_seed = in_.take<std::uint64_t>();
    workspace_.resize((plan.kernel->workspace_bytes() + 255) / 256);
    args_.workspace = workspace_.data();
    args_.workspace_bytes = plan.kernel->workspace_bytes();
  }

  void go() {
    const bool must_refuse = break_something();
    strobe_status status;
    const strobe_code code = strobe_plan_run(&plan_, &args_, nullptr, &status);
    require(code != STROBE_INTERNAL, "no internal error in a run");
    require(!must_refuse || code == STROBE_INVALID_ARGUMENT, "a broken argument is refused");
    for (const Placed& placed : placed_) {
      if (code != STROBE_OK || !placed.tensor().written) {
        require(placed.unchanged(), "inputs stay, and all of it after a refusal");
      }
    }
  }

 private:
  struct alignas(256) Line {
    unsigned char bytes[256];
  };

  void add(const api::Tensor& tensor) {
    placed_.emplace_back(tensor, in_);
    fill_lengths(in_, problem_, &placed_.back());
    placed_.back().remember();
  }

  // Makes one argument wrong; false if it left all as it was.
  bool break_something() {
    if (placed_.empty()) return false;
    Placed& victim = placed_[static_cast<std::size_t>(in_.below(static_cast<int>(placed_.size())))];
    const api::Tensor& tensor = victim.tensor();
    const bool in_args = tensor.args_offset != 0;
    if (victim.empty() || !in_args) return false;
    switch (in_.below(6)) {
      case 0:
        set_pointer(&args_, tensor, nullptr);
        return tensor.required;
      case 1:
        if (tensor.alignment_bytes == 1) return false;
        set_pointer(&args_, tensor, static_cast<char*>(victim.data()) + 1);
        return true;
      case 2:
        if (!tensor.written || placed_.front().empty() || &placed_.front() == &victim ||
            placed_.front().tensor().args_offset == 0) {
          return false;
        }
        set_pointer(&args_, placed_.front().tensor(), placed_.front().data());
        set_pointer(&args_, tensor, placed_.front().data());
        return true;
      case 3:
        args_.struct_size = sizeof(args_) + 1;
        return true;
      default:
        return false;
    }
  }

  Input& in_;
  const strobe_plan& plan_;
  const strobe_problem& problem_;
  strobe_run_args args_;
  std::vector<Placed> placed_;
  std::vector<const void*> partial_o_, partial_lse_;
  std::vector<Line> workspace_;
};

// Any bytes as arguments of a device that the host does not read: checked, never run.
void check_wild_args(Input& in, const strobe_problem& resolved) {
  if (resolved.op == STROBE_MERGE) return;  // its pointer arrays are read on the host
  strobe_run_args args, checked;
  strobe_run_args_init(&args);
  if (in.one_in(2)) in.copy(&args, sizeof(args));
  mutate(in, &args, 8);
  const std::vector<std::max_align_t> memory = exact_memory(args);
  const api::Status status =
      api::check_args(resolved, 256, reinterpret_cast<const strobe_run_args*>(memory.data()),
                      nullptr, STROBE_DEVICE_CUDA, &checked);
  require(status.ok() || status.code == STROBE_INVALID_ARGUMENT, "arguments: OK or invalid");
}

void test_one(Input& in) {
  strobe_problem p{};
  if (in.one_in(4)) {
    in.copy(&p, sizeof(p));
  } else {
    p = small_problem(in);
    if (in.one_in(2)) mutate(in, &p, 4);
  }
  const PlanPtr plan = make_plan(in, p);
  if (plan == nullptr) return;
  check_reports(plan.get());
  check_wild_args(in, plan->problem);
  if (small_enough(plan->problem)) Run(in, *plan).go();
}

}  // namespace
}  // namespace strobe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  strobe::fuzz::Input input(data, size);
  strobe::fuzz::test_one(input);
  return 0;
}
