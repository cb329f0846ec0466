// The test harness: cases, their data, and the three-way comparison with the float64 reference and
// the naive low-precision computation (docs/numerics.md, "Precision and error"). It uses the public
// API alone, so that it serves the tests and `strobe check` alike; whoever links it brings
// libstrobe or strobe_internal along.
//
//     const Case c = random_case(seed);
//     const CheckReport report = check_case(c, {.kernel = "cpu"});
//     if (report.outcome == Outcome::failed) puts(report.text().c_str());
#ifndef STROBE_TESTS_HARNESS_HARNESS_H_
#define STROBE_TESTS_HARNESS_HARNESS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <strobe/strobe.hpp>
#include <vector>

namespace strobe::harness {

// ---- Memory ----------------------------------------

// Exactly `bytes` bytes between two guard zones. Payload and guards start as poison: every byte is
// 0xFF, which is NaN in every floating dtype. The payload starts `misalign` bytes past a 256-byte
// boundary.
class Buffer {
 public:
  static constexpr std::size_t kGuardBytes = 1024;

  Buffer() = default;
  explicit Buffer(std::size_t bytes, std::size_t misalign = 0);

  unsigned char* data() { return storage_.data() + begin_; }
  const unsigned char* data() const { return storage_.data() + begin_; }
  std::size_t bytes() const { return bytes_; }
  void poison();               // the payload
  bool guards_intact() const;  // nothing was written outside the payload

  Buffer(const Buffer& other);
  Buffer(Buffer&&) noexcept = default;
  Buffer& operator=(Buffer other) noexcept;

 private:
  std::vector<unsigned char> storage_;
  std::size_t begin_ = 0;
  std::size_t bytes_ = 0;
  std::size_t misalign_ = 0;
};

using Index = std::array<std::int64_t, 4>;

// A strided tensor of up to four dimensions in a Buffer; strides in elements, zero and negative
// ones included. What lies between its rows is poison. Values cross as double, rounded once on the
// way in. Dimensions as strobe.h lists them, with size 1 in front where there are fewer:
//   q k v o ...   [batch, seq, heads, dim]; varlen: [1, total, heads, dim]
//   lse dlse      [batch, heads, seq, 1];   varlen: [1, heads, total, 1]
//   bias mask     [batch|1, heads|1, seq_q|1, seq_k]
//   sinks         [1, 1, 1, heads];  slopes [1, 1, batch|1, heads]
//   probs         [batch, heads, rows, seq_k]; varlen: [1, heads, rows, seq_k]
struct Tensor {
  DType dtype = DType::none;
  Index size{};
  Index stride{};
  std::int64_t origin = 0;  // element of the buffer that holds index {0, 0, 0, 0}
  Buffer buffer;

  Tensor() = default;
  Tensor(DType dtype, Index size, Index stride, std::size_t misalign = 0);
  Tensor(DType dtype, Index size);  // contiguous

  bool defined() const { return dtype != DType::none; }
  std::int64_t elements() const { return size[0] * size[1] * size[2] * size[3]; }
  void* data();  // of index {0, 0, 0, 0}; null where not defined
  const void* data() const;
  double get(const Index& at) const;
  void set(const Index& at, double value);
};

double round_to(DType dtype, double value);  // nearest even, once
double epsilon(DType dtype);                 // distance from 1 to the next number: 2^-23 for f32

// ---- Cases ----------------------------------------

// What the numbers are like. Everything not named is N(0, 1).
enum class Data {
  normal,
  x3,              // q, k, v three times as large
  large_mean,      // k and v far from zero: 10 + N(0, 1)
  equal_logits,    // every q.k of a row is the same
  very_negative,   // scale * q.k about -120: exp(-LSE) overflows float32
  one_huge_key,    // one key whose logits are 30 to 60 above the rest
  growing_maxima,  // each key's logit tops the one before: every block rescales
  one_hot_v,       // v of key j is 1 at j mod head_dim_v: shows which keys were seen
  v_head_index,    // v = 1 + kv head: shows which head was read
  v_ones,          // v = 1: shows the normalisation
  real_like        // a few channels of q and k are ten times as large, and key 0 attracts all rows
};
constexpr int kDataKinds = 11;
const char* name_of(Data data);

struct Case {
  std::string name;  // how to get it again, e.g. "random_case(17)"
  Problem problem;
  Data data = Data::normal;
  std::uint64_t seed = 0;  // of the data; dropout seed and offset follow from it

  bool lse = true;  // forward, merge: ask for lse
  bool dlse = false, dbias = false, dsinks = false;
  int misalign_bytes = 0;           // of every tensor's base; problem.alignment_bytes must allow it
  double bias_inf_share = 0;        // of bias entries that are -inf
  double bias_lowest_share = 0;     // of bias entries that are the lowest number of their dtype
  double mask_visible_share = 0.8;  // of mask entries that are true
  std::vector<bool> empty_partials;  // merge: parts that are empty everywhere

  std::vector<std::int32_t> seqlens_q, seqlens_k;        // empty: null
  std::vector<std::int32_t> cu_seqlens_q, cu_seqlens_k;  // varlen
  std::vector<std::int64_t> rows;                        // probs, keep_mask
};

// A problem drawn from all of strobe.h: the same seed gives the same case everywhere. Work is
// bounded to about 3e7 (query, key, dim) triples, so that the reference takes a fraction of a
// second.
Case random_case(std::uint64_t seed);

std::string describe(const Case& c);  // on one line

// Where sequence b of a case lies. Row r of it is q[batch, q_begin + r].
struct Sequence {
  std::int64_t batch = 0;  // index of q's first dimension
  std::int64_t q_begin = 0, len_q = 0;
  std::int64_t k_begin = 0, len_k = 0;
  std::int64_t offset = 0;  // of the diagonal
};
std::vector<Sequence> sequences(const Case& c);

// ---- Tensors of a case ----------------------------------------

struct Inputs {
  Tensor q, k, v, o, lse, dout, dlse, bias, mask, alibi_slopes, sinks;
  std::vector<Tensor> partial_o, partial_lse;
};

struct Outputs {
  Tensor o, lse, dq, dk, dv, dbias, dsinks, probs, keep_mask;
};

// Every tensor with the problem's strides, filled. Rows outside the sequences and gaps between rows
// stay poison. For backward and probs the reference computes o and lse, rounded to their dtypes.
Result<Inputs> make_inputs(const Case& c);
Outputs make_outputs(const Case& c);  // poison

// Pointers into all of these, which must outlive it. workspace is left empty.
struct Args : RunArgs {
  Args(const Case& c, const Inputs& inputs, Outputs* outputs);
  Args(const Args&) = delete;  // it holds pointers into itself
  Args& operator=(const Args&) = delete;

 private:
  std::vector<const void*> partial_o_, partial_lse_;
};

// The same case and inputs in float64, contiguous: what the reference is given.
Case as_f64(const Case& c);
Inputs as_f64(const Case& c, const Inputs& inputs);

// Runs a plan on poisoned outputs and workspace and then checks every guard zone and every gap
// between rows; an overwritten one is STROBE_INTERNAL naming the tensor.
// With a CUDA device, which must be the plan's: in copies of all buffers on that GPU.
Status run(const Plan& plan, const Case& c, const Inputs& inputs, Outputs* outputs,
           Device device = {});

// ---- Comparison ----------------------------------------

// The plain low-precision computation, and what it knows about exactness and conditioning.
struct Naive {
  // Values in float32 (float64 for f64), rounded to the dtype where docs/numerics.md says so.
  Outputs outputs;
  // Boolean: what must equal the reference bit for bit. Last size 1: one value for the whole row.
  Outputs exact;
  // float64: sums of absolute values, whose float32 rounding any order of summation may lose.
  Outputs magnitude;
};
// keep: as STROBE_KEEP_MASK gives for all rows of q, in order; undefined without dropout.
Naive naive(const Case& c, const Inputs& inputs, const Tensor& keep);

// One output. ok iff error <= bound, and -inf and exact zeros are where they must be.
//   plain_bound = 2 max|naive - ref| + 4 eps max|ref|         eps of the output's dtype
//   bound       = plain_bound + eps(f32) max(magnitude) + 2^-116
// The last but one term is for outputs so few, or so cancelled (dq of a row with one key is 0),
// that the naive error is small by luck. It is far below the others for bf16 and f16; for f32 it is
// a few times as large, and rows that need it say so in text(). The last is for float32 subnormals,
// which may count as 0.
struct CheckRow {
  std::string tensor;
  bool ok = true;
  double error = 0, bound = 0, plain_bound = 0;
  double naive_error = 0, max_ref = 0;
  Index worst{};  // where |value - ref| is largest, or the first forbidden value
  double value = 0, ref = 0, naive = 0;
  std::string fault;  // what is wrong, in words; empty where ok
};
// Rows for the outputs that `got` and `ref` hold both.
std::vector<CheckRow> compare(const Outputs& got, const Outputs& ref, const Naive& naive);

enum class Outcome {
  passed,
  failed,  // a wrong value, an overwritten guard zone, or a run that returned an error
  refused  // STROBE_UNSUPPORTED: the backend does not take the problem
};

struct CheckReport {
  Outcome outcome = Outcome::passed;
  std::string description;  // of the case
  Status status;            // of planning and running
  std::vector<CheckRow> rows;

  std::string text() const;  // several lines: the description, then one per output or the status
};

// Plans and runs the case with `options`, with the reference in float64 and naively, and compares.
CheckReport check_case(const Case& c, const PlanOptions& options = {});
// With a plan for c.problem, made for that device.
CheckReport check_case(const Case& c, const Plan& plan, Device device);

}  // namespace strobe::harness

#endif  // STROBE_TESTS_HARNESS_HARNESS_H_
