// The backward pass of FlashAttention-2 on the emulator, through the public API, against the
// float64 reference with its error bound. The emulator makes races, reads of what nobody wrote and
// accesses outside the tensors errors of the run; the harness poisons everything else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "fa2_cases.h"
#include "harness/harness.h"
#include "harness/shapes.h"

namespace strobe::harness {
namespace {

constexpr const char* kFullRow = ",row=full";

Case dense(std::int64_t seqlen_q, std::int64_t seqlen_k, std::int64_t head_dim,
           DType dtype = DType::bf16) {
  static std::uint64_t count = 0;
  Case c;
  c.seed = ++count;  // every case with another landing and order
  c.problem = {.seqlen_q = seqlen_q,
               .seqlen_k = seqlen_k,
               .head_dim = head_dim,
               .dtype = dtype,
               .op = Op::backward};
  c.problem.deterministic = count % 2 == 0;
  return c;
}

Case with_heads(std::int64_t seqlen_q, std::int64_t seqlen_k) {
  Case c = dense(seqlen_q, seqlen_k, 64);
  c.problem.batch = 2;
  c.problem.heads = 4;
  c.problem.kv_heads = 2;
  return c;
}

void make_padded(Case& c) {
  c.problem.lengths = Lengths::padded;
  c.seqlens_q = {3, static_cast<std::int32_t>(c.problem.seqlen_q)};
  c.seqlens_k = {static_cast<std::int32_t>(c.problem.seqlen_k), 0};
}

void make_varlen(Case& c) {
  Problem& p = c.problem;
  p.batch = 3;
  p.lengths = Lengths::varlen;
  c.cu_seqlens_q = {0, 70, 70, 75};
  c.cu_seqlens_k = {0, 31, 99, 199};
  p.total_q = 80;  // rows that no sequence holds
  p.total_k = 202;
}

// ---- Shapes

// Every row of kernels.def: two dtypes, five head dims, plain and full.
TEST(Fa2BackwardShapes, EveryRow) {
  for (const std::int64_t d : {64, 96, 128, 192, 256}) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      for (const char* row : {"", kFullRow}) expect_passes(dense(70, 136, d, dtype), row);
    }
  }
}

TEST(Fa2BackwardShapes, OddHeadDims) {
  for (const std::int64_t d : {1, 8, 40, 46, 72, 80, 120, 160}) {
    Case c = dense(33, 70, d);
    c.problem.head_dim_v = d == 1 ? 256 : d / 2 + 1;
    c.problem.mask = Band::causal();
    expect_passes(c);
    if (d % 8 == 0) expect_passes(dense(40, 35, d, DType::f16));  // padded by a plain row
  }
}

TEST(Fa2BackwardShapes, EdgeLengths) {
  constexpr std::int64_t kLengths[] = {0, 1, 7, 63, 64, 65, 96, 97, 129};
  int n = 0;
  for (const std::int64_t q : kLengths) {
    for (const std::int64_t k : kLengths) {
      if (++n % 3 != 0 && !kSlow && q * k > 500) continue;
      Case c = dense(q, k, 64);
      if (n % 2 == 0) c.problem.mask = Band::causal();
      expect_passes(c, n % 4 < 2 ? "" : kFullRow);
    }
  }
}

TEST(Fa2BackwardShapes, Bands) {
  const Band bands[] = {Band::causal(),
                        Band::window(33, 5),
                        Band::window(-1, 64),
                        Band::window(0, 0),
                        Band{.left = 64, .right = 0, .offset = 7},
                        Band{.left = -1, .right = 0, .offset = -100},
                        Band{.left = 3, .right = -1, .offset = 500}};
  for (const Band& band : bands) {
    for (const char* row : {"", kFullRow}) {
      Case c = dense(140, 230, 64);
      c.problem.mask = band;
      expect_passes(c, row);
    }
  }
}

// dK and dV are sums over the query heads of a group.
TEST(Fa2BackwardShapes, Groups) {
  for (const std::int64_t ratio : {1, 2, 3, 7, 12}) {
    for (const std::int64_t rows : {1, 20}) {
      Case c = dense(rows, 40, 64);
      c.problem.batch = 2;
      c.problem.kv_heads = 2;
      c.problem.heads = 2 * ratio;
      c.problem.mask = Band::causal();
      c.data = rows == 1 ? Data::v_head_index : Data::normal;
      expect_passes(c);
    }
  }
}

TEST(Fa2BackwardShapes, ManyBlocks) {
  for (const std::int64_t d : {64, 256}) {
    Case c = dense(kSlow ? 700 : 260, kSlow ? 900 : 330, d);
    c.data = Data::growing_maxima;
    expect_passes(c);
  }
}

TEST(Fa2BackwardData, EveryKind) {
  for (int kind = 0; kind < kDataKinds; ++kind) {
    Case c = dense(66, 130, 128, kind % 2 == 0 ? DType::bf16 : DType::f16);
    c.data = static_cast<Data>(kind);
    if (kind % 3 == 0) c.problem.mask = Band::causal();
    expect_passes(c);
    if (kSlow) expect_passes(c, kFullRow);
  }
}

// ---- Features

struct Feature {
  const char* name;
  void (*set)(Case& c);
};
const Feature kFeatures[] = {
    {"softcap", [](Case& c) { c.problem.softcap = 5; }},
    {"alibi", [](Case& c) { c.problem.alibi = Alibi::per_head; }},
    {"alibi of each sequence", [](Case& c) { c.problem.alibi = Alibi::per_batch_head; }},
    {"bias, dBias",
     [](Case& c) {
       c.problem.bias.dtype = DType::f32;
       c.dbias = true;
     }},
    {"bias in the dtype, dBias summed over sequences and rows",
     [](Case& c) {
       c.problem.bias.dtype = c.problem.dtype;
       c.problem.bias.batch = 1;
       c.problem.bias.seqlen_q = 1;
       c.dbias = true;
     }},
    {"bias of -inf, dBias summed over heads",
     [](Case& c) {
       c.problem.bias.dtype = DType::f32;
       c.problem.bias.heads = 1;
       c.bias_inf_share = 0.5;
       c.dbias = true;
     }},
    {"bias without dBias", [](Case& c) { c.problem.bias.dtype = DType::f32; }},
    {"mask", [](Case& c) { c.problem.bool_mask.dtype = DType::boolean; }},
    {"mask of few",
     [](Case& c) {
       c.problem.bool_mask.dtype = DType::boolean;
       c.problem.bool_mask.heads = 1;
       c.mask_visible_share = 0.05;
     }},
    {"sinks, dSinks",
     [](Case& c) {
       c.problem.sinks = true;
       c.dsinks = true;
     }},
    {"sinks above all, without dSinks",
     [](Case& c) {
       c.problem.sinks = true;
       c.data = Data::very_negative;
     }},
    {"dLSE", [](Case& c) { c.dlse = true; }},
    {"dropout", [](Case& c) { c.problem.dropout_p = 0.3; }},
    {"scale 0", [](Case& c) { c.problem.scale = 0; }},
    {"negative scale", [](Case& c) { c.problem.scale = -0.5; }},
    {"everything",
     [](Case& c) {
       c.problem.softcap = 5;
       c.problem.alibi = Alibi::per_batch_head;
       c.problem.bias.dtype = DType::f32;
       c.problem.bool_mask.dtype = DType::boolean;
       c.problem.sinks = true;
       c.problem.dropout_p = 0.3;
       c.problem.mask = Band::window(60, 9);
       c.dbias = c.dsinks = c.dlse = true;
     }},
};

// fa2 sums dBias in any order, and refuses to promise more.
void set_feature(const Feature& feature, Case& c) {
  feature.set(c);
  if (c.problem.bias.dtype != DType::none) c.problem.deterministic = false;
}

TEST(Fa2BackwardFeatures, Dense) {
  int n = 0;
  for (const Feature& feature : kFeatures) {
    SCOPED_TRACE(feature.name);
    Case c = with_heads(70, 100);
    if (++n % 2 == 0 || kSlow) c.problem.mask = Band::causal();
    set_feature(feature, c);
    expect_passes(c);
  }
}

TEST(Fa2BackwardFeatures, Padded) {
  for (const Feature& feature : kFeatures) {
    SCOPED_TRACE(feature.name);
    Case c = with_heads(70, 100);
    make_padded(c);
    c.problem.mask = Band::causal();
    set_feature(feature, c);
    expect_passes(c);
  }
}

TEST(Fa2BackwardFeatures, Varlen) {
  for (const Feature& feature : kFeatures) {
    SCOPED_TRACE(feature.name);
    Case c = with_heads(70, 100);
    make_varlen(c);
    set_feature(feature, c);
    expect_passes(c);
    const Problem& p = c.problem;
    const bool needs_bounds = p.bias.dtype != DType::none || p.bool_mask.dtype != DType::none;
    if (needs_bounds || !kSlow) continue;
    c.problem.seqlen_q = c.problem.seqlen_k = 0;  // bounds unknown
    c.seqlens_k = {31, 5, 70};
    expect_passes(c);
  }
}

// Every feature with every head dim of the full rows.
TEST(Fa2BackwardFeatures, EverythingOnEveryFullRow) {
  const Feature& everything = kFeatures[std::size(kFeatures) - 1];
  for (const std::int64_t d : {64, 96, 128, 192, 256}) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      if (dtype == DType::f16 && !kSlow) continue;
      Case c = dense(70, 75, d, dtype);
      set_feature(everything, c);
      expect_passes(c);
    }
  }
}

TEST(Fa2BackwardFeatures, VarlenWithoutSequences) {
  Case c = with_heads(0, 0);
  Problem& p = c.problem;
  p.lengths = Lengths::varlen;
  p.batch = 0;
  p.sinks = c.dsinks = true;
  c.cu_seqlens_q = c.cu_seqlens_k = {0};
  p.total_q = 9;
  p.total_k = 4;
  expect_passes(c);
}

TEST(Fa2BackwardFeatures, VarlenOfUnknownBounds) {
  Case c = with_heads(70, 100);
  make_varlen(c);
  c.problem.seqlen_q = c.problem.seqlen_k = 0;
  c.seqlens_k = {31, 5, 70};
  expect_passes(c);
}

// ---- Memory

TEST(Fa2BackwardLayout, StridesAndAlignment) {
  for (const int align : {1, 2, 16}) {
    for (const Layout layout : {Layout::bshd, Layout::bhsd}) {
      Case c = with_heads(40, 66);
      Problem& p = c.problem;
      p.layout = layout;
      p.alignment_bytes = align;
      if (align < 16) c.misalign_bytes = 6;
      p.head_dim = 40;
      p.q_strides = p.o_strides = p.dout_strides = {40 * 4 * 56, 4 * 56, 56};
      p.dq_strides = {40 * 4 * 48 + 16, 4 * 48, 48};  // gaps; whole chunks of 16 bytes
      p.k_strides = {-2 * 48, 2 * 2 * 48, 48};
      p.v_strides = {0, 2 * 44 + (align == 16 ? 8 : 1), 44};  // one sequence for all
      expect_passes(c);
    }
  }
}

// ---- Random problems

double work(const Case& c) {
  const Problem& p = c.problem;
  const bool varlen = p.lengths == Lengths::varlen;
  const double rows = static_cast<double>(varlen ? p.total_q + 128 : p.batch * (p.seqlen_q + 64));
  const double keys = static_cast<double>(varlen ? p.total_k : p.seqlen_k);
  return rows * static_cast<double>(p.heads) * (keys + 64);
}

class Fa2BackwardRandom : public testing::TestWithParam<int> {};

TEST_P(Fa2BackwardRandom, AgreesWithTheReference) {
  const std::uint64_t begin = 50000 + static_cast<std::uint64_t>(GetParam()) * 1000;
  const double max_work = kSlow ? 1e9 : 3e5;
  int checked = 0;
  for (std::uint64_t seed = begin; seed < begin + (kSlow ? 1000 : 250); ++seed) {
    Case c = random_case(seed);
    Problem& p = c.problem;
    if (p.op != Op::backward || std::max(p.head_dim, p.head_dim_v.value_or(0)) > 256) continue;
    if (work(c) > max_work) continue;
    if (p.dtype == DType::f32) {
      p.dtype = seed % 2 == 0 ? DType::bf16 : DType::f16;
      if (p.alignment_bytes == 4) p.alignment_bytes = 2;
    }
    if (p.bias.dtype != DType::none && p.bias.dtype != DType::f32) p.bias.dtype = p.dtype;
    if (p.bias.dtype != DType::none) p.deterministic = false;
    c.seed += seed;
    expect_passes(c);
    ++checked;
  }
  EXPECT_GE(checked, 15);
}

INSTANTIATE_TEST_SUITE_P(Emulator, Fa2BackwardRandom, testing::Range(0, 2));

// ---- Determinism

std::vector<unsigned char> gradients_of(const Case& c, const Inputs& inputs, std::uint64_t seed) {
  const Result<Plan> plan = make_plan(c.problem, options(seed));
  EXPECT_TRUE(plan) << plan.status().message();
  if (!plan) return {};
  Outputs out = make_outputs(c);
  const Status status = run(*plan, c, inputs, &out);
  EXPECT_TRUE(status) << status.message();
  std::vector<unsigned char> bytes;
  for (const Tensor* tensor : {&out.dq, &out.dk, &out.dv, &out.dsinks}) {
    const Buffer& buffer = tensor->buffer;
    bytes.insert(bytes.end(), buffer.data(), buffer.data() + buffer.bytes());
  }
  return bytes;
}

// Where the problem asks for it, the order of threads and landings changes no bit.
TEST(Fa2BackwardDeterministic, SameBits) {
  for (const std::int64_t d : {64, 128}) {
    Case c = dense(130, 300, d);
    Problem& p = c.problem;
    p.heads = 2;
    p.kv_heads = 1;
    p.mask = Band::causal();
    p.dropout_p = d == 64 ? 0.2 : 0;
    p.sinks = c.dsinks = true;
    p.deterministic = true;
    const Result<Inputs> inputs = make_inputs(c);
    ASSERT_TRUE(inputs);
    const std::vector<unsigned char> first = gradients_of(c, *inputs, 0);
    for (std::uint64_t seed = 1; seed < (kSlow ? 60 : 4); ++seed) {
      EXPECT_EQ(gradients_of(c, *inputs, seed), first) << "seed " << seed;
    }
  }
}

TEST(Fa2BackwardDeterministic, RefusedWithABias) {
  Case c = dense(8, 8, 64);
  c.problem.bias.dtype = DType::f32;
  c.problem.deterministic = true;
  const Result<Plan> plan = make_plan(c.problem, options(1));
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.status().argument(), "deterministic");
}

}  // namespace
}  // namespace strobe::harness
