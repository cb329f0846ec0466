// Bugs that users of other attention libraries met, as tests: indices that need more than 16, 31
// or 32 bits. The stride or the batch is huge, not the work. See users_scores_test.cpp.
#include <sys/mman.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>

#include "cpu_run.h"

namespace strobe::harness {
namespace {

class Users4BigIndex : public OnTarget {};

// Zeroed memory that exists only where it is touched.
class SparseMemory {
 public:
  explicit SparseMemory(std::size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~SparseMemory() {
    if (ok()) munmap(data_, bytes_);
  }
  SparseMemory(const SparseMemory&) = delete;

  bool ok() const { return data_ != MAP_FAILED; }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

// A tensor whose rows may lie gigabytes apart; index {0, 0, 0, 0} is `origin` elements from the
// start.
class FarTensor {
 public:
  FarTensor(const Tensor& like, Index stride) : like_(like), stride_(stride) {
    std::int64_t last = 0;
    for (int d = 0; d < 4; ++d) {
      const std::int64_t reach = (like.size[d] - 1) * stride[d];
      (reach < 0 ? origin_ : last) += std::abs(reach);
    }
    memory_ = std::make_unique<SparseMemory>(bytes_of(origin_ + last + 1));
  }

  bool ok() const { return memory_->ok(); }
  void* data() const { return memory_->data() + bytes_of(origin_); }

  void copy_in() {
    for_each_row([](std::byte* far, std::byte* row, std::size_t n) { std::memcpy(far, row, n); });
  }
  // The values now in the far memory, with the strides of `like`.
  Tensor copy_out() {
    for_each_row([](std::byte* far, std::byte* row, std::size_t n) { std::memcpy(row, far, n); });
    return like_;
  }

 private:
  std::size_t bytes_of(std::int64_t elements) const {
    return static_cast<std::size_t>(elements) * dtype_bytes(like_.dtype);
  }
  template <class Copy>
  void for_each_row(Copy copy) {
    for_each({like_.size[0], like_.size[1], like_.size[2], 1}, [&](const Index& at) {
      std::int64_t near = 0, far = 0;
      for (int d = 0; d < 3; ++d) {
        near += at[d] * like_.stride[d];
        far += at[d] * stride_[d];
      }
      copy(static_cast<std::byte*>(data()) + far * static_cast<std::int64_t>(bytes_of(1)),
           static_cast<std::byte*>(like_.data()) + near * static_cast<std::int64_t>(bytes_of(1)),
           bytes_of(like_.size[3]));
    });
  }

  Tensor like_;
  Index stride_;
  std::int64_t origin_ = 0;
  std::unique_ptr<SparseMemory> memory_;
};

// The plan's outputs when every tensor has these strides [batch, seq, head]; nothing where the
// system does not lend the address space.
std::optional<Outputs> run_far(const Case& c, Inputs& in, const Strides& s,
                               const PlanOptions& options) {
  Problem p = c.problem;
  p.q_strides = p.k_strides = p.v_strides = p.o_strides = s;
  p.dout_strides = p.dq_strides = p.dk_strides = p.dv_strides = s;
  const Result<Plan> plan = make_plan(p, options);
  EXPECT_TRUE(plan) << plan.status().message();
  if (!plan) return {};
  Outputs out = make_outputs(c);
  const Index stride = {s.batch, s.seq, s.head, 1};
  std::vector<std::unique_ptr<FarTensor>> far;
  const auto place = [&](Tensor& t, bool input) -> void* {
    if (!t.defined()) return nullptr;
    far.push_back(std::make_unique<FarTensor>(t, stride));
    if (!far.back()->ok()) return nullptr;
    if (input) far.back()->copy_in();
    return far.back()->data();
  };
  Args args(c, in, &out);
  const HostWorkspace workspace(*plan);
  args.workspace = workspace;
  args.q = place(in.q, true);
  args.k = place(in.k, true);
  args.v = place(in.v, true);
  args.dout = place(in.dout, true);
  args.o = in.o.defined() ? place(in.o, true) : place(out.o, false);
  const std::size_t first_gradient = far.size();
  args.dq = place(out.dq, false);
  args.dk = place(out.dk, false);
  args.dv = place(out.dv, false);
  for (const auto& t : far) {
    if (!t->ok()) return {};
  }
  const Status status = plan->run(args);
  EXPECT_TRUE(status) << status.argument() << ": " << status.message();
  if (out.o.defined()) out.o = far.back()->copy_out();
  if (out.dq.defined()) {
    out.dq = far[first_gradient]->copy_out();
    out.dk = far[first_gradient + 1]->copy_out();
    out.dv = far[first_gradient + 2]->copy_out();
  }
  return out;
}

constexpr std::int64_t kTwo31 = std::int64_t{1} << 31;

// Coordinate times stride beyond 2^31 elements and 2^32 bytes, in each
// dimension.
TEST_P(Users4BigIndex, B44_StridesBeyond32Bits) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (Op op : {Op::forward, Op::backward}) {
      Case c = dense(5, 5, 16, dtype, op);
      c.problem.batch = 3;
      c.problem.heads = 3;
      Inputs in = inputs_of(c);
      const Outputs expected = run_cpu(c, in);
      for (const Strides& s : {Strides{kTwo31 + 64, 64, 16}, Strides{512, kTwo31 / 3 + 4096, 32},
                               Strides{512, 64, kTwo31 + 1024}, Strides{512, 64, -kTwo31 - 1024}}) {
        if (s.head < 0 && op == Op::backward) continue;  // outputs too would run backwards
        std::optional<Outputs> out = run_far(c, in, s, options());
        if (!out) GTEST_SKIP() << "no address space for 32 GiB that is never touched";
        for (const auto& [name, tensor] : kOutputs) {
          EXPECT_TRUE(same_bits((*out).*tensor, expected.*tensor)) << name;
        }
      }
    }
  }
}

// A mask and a bias whose rows lie beyond 2^31 elements.
TEST_P(Users4BigIndex, B41_MaskAndBiasBeyond32Bits) {
  Case c = dense(4, 20, 8, DType::f32, Op::forward);
  c.problem.bias = {.dtype = DType::f32};
  c.problem.bool_mask = {.dtype = DType::boolean};
  const Inputs in = inputs_of(c);
  const Outputs expected = run_cpu(c, in);
  const std::int64_t stride = kTwo31 / 2 + 100;
  c.problem.bias.stride_q = c.problem.bool_mask.stride_q = stride;
  FarTensor bias(in.bias, {0, 0, stride, 1}), mask(in.mask, {0, 0, stride, 1});
  if (!bias.ok() || !mask.ok()) GTEST_SKIP() << "no address space for 12 GiB never touched";
  bias.copy_in();
  mask.copy_in();
  const Result<Plan> plan = make_plan(c.problem, options());
  ASSERT_TRUE(plan) << plan.status().message();
  Outputs out = make_outputs(c);
  const HostWorkspace workspace(*plan);
  Args args(c, in, &out);
  args.bias = bias.data();
  args.mask = static_cast<const std::uint8_t*>(mask.data());
  args.workspace = workspace;
  ASSERT_TRUE(plan->run(args));
  EXPECT_TRUE(same_bits(out, expected));
}

// Items whose data overlap: item n starts n elements into one small buffer.
Inputs sliding(Case& c, std::int64_t batch_stride, std::int64_t head_stride) {
  const auto slide = [&](Strides& s) { s = {batch_stride, c.problem.head_dim, head_stride}; };
  slide(c.problem.q_strides);
  slide(c.problem.k_strides);
  slide(c.problem.v_strides);
  Inputs in;
  const Dims dims(c.problem);
  const auto make = [&](std::int64_t rows, std::int64_t heads, std::uint64_t seed) {
    Tensor t(c.problem.dtype, {dims.batch, rows, heads, dims.d},
             {batch_stride, dims.d, head_stride, 1});
    Rng rng(seed);
    const std::int64_t elements =
        static_cast<std::int64_t>(t.buffer.bytes() / dtype_bytes(t.dtype));
    t.size = {1, 1, 1, elements};  // fill it once, end to end
    assign(t, [&](const Index&) { return rng.normal(); });
    t.size = {dims.batch, rows, heads, dims.d};
    return t;
  };
  in.q = make(dims.rows_q, dims.heads, 1);
  in.k = make(dims.rows_k, dims.kv_heads, 2);
  in.v = make(dims.rows_k, dims.kv_heads, 3);
  return in;
}

// The item (b, h) of `out` against a problem of that item alone.
void expect_item(const Case& c, const Inputs& in, const Outputs& out, std::int64_t b,
                 std::int64_t h, const PlanOptions& options) {
  Case one = dense(c.problem.seqlen_q, c.problem.seqlen_k, c.problem.head_dim, c.problem.dtype);
  Inputs item = inputs_of(one);
  assign(item.q, [&](const Index& at) { return in.q.get({b, at[1], h, at[3]}); });
  assign(item.k, [&](const Index& at) { return in.k.get({b, at[1], h, at[3]}); });
  assign(item.v, [&](const Index& at) { return in.v.get({b, at[1], h, at[3]}); });
  const Outputs alone = run_plan(one, item, options);
  for_each(alone.o.size, [&](const Index& at) {
    ASSERT_EQ(out.o.get({b, at[1], h, at[3]}), alone.o.get(at)) << "item " << b << ", " << h;
  });
  for_each(alone.lse.size, [&](const Index& at) {
    ASSERT_EQ(out.lse.get({b, h, at[2], 0}), alone.lse.get(at)) << "item " << b << ", " << h;
  });
}

Outputs run_unpoisoned(const Case& c, const Inputs& in, const PlanOptions& options) {
  Outputs out = make_outputs(c);
  const Result<Plan> plan = make_plan(c.problem, options);
  EXPECT_TRUE(plan) << plan.status().message();
  if (!plan) return out;
  const SparseMemory workspace(std::max<std::size_t>(plan->workspace_bytes(), 1));
  Args args(c, in, &out);
  args.workspace = {workspace.data(), plan->workspace_bytes()};
  const Status status = plan->run(args);
  EXPECT_TRUE(status) << status.argument() << ": " << status.message();
  return out;
}

TEST_P(Users4BigIndex, B38_BatchBeyond16Bits) {
  for (std::int64_t batch : {65536, 65537}) {
    Case c = dense(4, 5, 16);
    c.problem.batch = batch;
    const Inputs in = sliding(c, 4, 16);
    const Outputs out = run_unpoisoned(c, in, options());
    for (std::int64_t b : {std::int64_t{0}, std::int64_t{65535}, batch - 1}) {
      expect_item(c, in, out, b, 0, options());
    }
  }
}

TEST_P(Users4BigIndex, B38_HeadsBeyond16Bits) {
  Case c = dense(10, 10, 16, DType::bf16);
  c.problem.heads = 65537;
  const Inputs in = sliding(c, 0, 8);
  const Outputs out = run_unpoisoned(c, in, options());
  for (std::int64_t h : {0, 65535, 65536}) expect_item(c, in, out, 0, h, options());
}

// [1, 3, 71280, 128] read as batch, rows, heads, dim.
TEST_P(Users4BigIndex, B39_LengthGivenAsHeads) {
  Case c = dense(3, 3, 128, DType::bf16);
  c.problem.heads = 71280;
  const Inputs in = sliding(c, 0, 8);
  const Outputs out = run_unpoisoned(c, in, options());
  for (std::int64_t h : {0, 65535, 65536, 71279}) expect_item(c, in, out, 0, h, options());
}

// 49999^2 scores are more than 2^31; a narrow window keeps the work small.
TEST_P(Users4BigIndex, B41_LongSequence) {
  Case c = dense(49999, 49999, 8);
  c.problem.mask = Band::window(2, 0);
  Inputs in = sliding(c, 0, 8);
  const Outputs out = run_unpoisoned(c, in, options());
  // The last three rows alone: the last of them sees the same three keys.
  Case item = dense(3, 3, 8);
  item.problem.mask = c.problem.mask;
  Inputs last = inputs_of(item);
  for (Tensor Inputs::*t : {&Inputs::q, &Inputs::k, &Inputs::v}) {
    assign(last.*t, [&](const Index& at) { return (in.*t).get({0, 49996 + at[1], 0, at[3]}); });
  }
  const Outputs expected = run_cpu(item, last);
  for (std::int64_t d = 0; d < 8; ++d) {
    EXPECT_NEAR(out.o.get({0, 49998, 0, d}), expected.o.get({0, 2, 0, d}), 1e-6);
  }
  c.problem.op = Op::backward;
  c.problem.dout_strides = c.problem.q_strides;
  EXPECT_TRUE(all_finite(run_unpoisoned(c, backward_inputs(in, out, in.q), options())));
}

// 8300 sequences of one query: gradients of every sequence are those of the first.
TEST_P(Users4BigIndex, B42_ManyShortSequences) {
  Case c = dense(1, 1, 128, DType::bf16, Op::backward);
  c.problem.heads = 16;
  const Outputs expected = run_cpu(c, inputs_of(c));
  const Inputs first = inputs_of(c);
  c.problem.batch = 8300;
  for (Strides* s : {&c.problem.q_strides, &c.problem.k_strides, &c.problem.v_strides,
                     &c.problem.o_strides, &c.problem.dout_strides, &c.problem.lse_strides}) {
    s->batch = 0;  // every sequence reads the same
  }
  const Outputs out = run_unpoisoned(c, first, options());
  for (Tensor Outputs::*t : {&Outputs::dq, &Outputs::dk, &Outputs::dv}) {
    for (std::int64_t b : {0, 1, 4096, 8191, 8299}) {
      for_each((expected.*t).size, [&](const Index& at) {
        const Index index = {b, at[1], at[2], at[3]};
        ASSERT_EQ((out.*t).get(index), (expected.*t).get(at)) << text(index);
      });
    }
  }
}

STROBE_ON_EVERY_TARGET(Users4BigIndex);

}  // namespace
}  // namespace strobe::harness
