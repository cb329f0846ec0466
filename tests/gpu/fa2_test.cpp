// FlashAttention-2 on the emulator, through the public API, against the float64 reference with its
// error bound. The emulator makes races, reads of what nobody wrote and accesses outside the
// tensors errors of the run; the harness poisons everything else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "fa2_cases.h"
#include "harness/harness.h"
#include "harness/shapes.h"

namespace strobe::harness {
namespace {

Case dense(std::int64_t seqlen_q, std::int64_t seqlen_k, std::int64_t head_dim,
           DType dtype = DType::bf16) {
  static std::uint64_t count = 0;
  Case c;
  c.seed = ++count;  // every case with another landing and order
  c.problem = {.seqlen_q = seqlen_q, .seqlen_k = seqlen_k, .head_dim = head_dim, .dtype = dtype};
  return c;
}

// ---- Shapes

TEST(Fa2Shapes, HeadDimsOnEveryRow) {
  constexpr std::int64_t kHeadDims[] = {1, 8, 40, 46, 64, 72, 80, 96, 120, 128, 160, 192, 256};
  for (const std::int64_t d : kHeadDims) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      const std::string row = dtype == DType::bf16 ? "" : ",row=full";
      expect_passes(dense(65, 97, d, dtype), row);
      Case c = dense(33, 70, d, dtype);  // v of another width
      c.problem.head_dim_v = d == 1 ? 256 : d / 2 + 1;
      c.problem.mask = Band::causal();
      expect_passes(c);
    }
  }
}

TEST(Fa2Shapes, EdgeLengths) {
  constexpr std::int64_t kLengths[] = {0, 1, 2, 7, 31, 32, 33, 63, 64, 65, 127, 128, 129, 192};
  int n = 0;
  for (const std::int64_t q : kLengths) {
    for (const std::int64_t k : kLengths) {
      if (++n % 3 != 0 && !kSlow && q * k > 4000) continue;
      Case c = dense(q, k, 64);
      if (n % 2 == 0) c.problem.mask = Band::causal();
      expect_passes(c);
    }
  }
}

TEST(Fa2Shapes, Bands) {
  const Band bands[] = {Band::causal(),
                        Band::window(33, 5),
                        Band::window(-1, 64),
                        Band::window(0, 0),
                        Band{.left = 64, .right = 0, .offset = 7},
                        Band{.left = -1, .right = 0, .offset = -100},
                        Band{.left = 3, .right = -1, .offset = 500}};
  for (const Band& band : bands) {
    for (const char* row : {"", ",row=full"}) {
      Case c = dense(200, 300, 64);
      c.problem.mask = band;
      c.data = Data::one_hot_v;
      expect_passes(c, row);
    }
  }
}

// The rows of 64 queries (gpu/family_fa2.cpp says when they are chosen).
TEST(Fa2Shapes, ShortRows) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const std::string row =
        dtype == DType::bf16 ? "fa2_fwd_bf16_d64_short" : "fa2_fwd_f16_d64_short";
    Case few = dense(64, 150, 64, dtype), banded = dense(150, 200, 56, dtype),
         grouped = dense(20, 90, 64, dtype);
    banded.problem.mask = Band::causal();
    banded.problem.sinks = true;
    grouped.problem.heads = 3;
    grouped.problem.kv_heads = 1;
    for (const Case& c : {few, banded, grouped}) {
      const Result<Plan> plan = make_plan(c.problem, options(c.seed));
      ASSERT_TRUE(plan) << plan.status().message();
      EXPECT_NE(plan->explain(STROBE_TEXT).find(row), std::string::npos);
      expect_passes(c);
    }
  }
}

// V of key/value head g is 1 + g everywhere, so O shows which head was read.
TEST(Fa2Shapes, GroupsPackedAndApart) {
  for (const std::int64_t ratio : {1, 3, 5, 6, 7, 12, 16, 20}) {
    for (const std::int64_t rows : {1, 20}) {
      for (const std::string& pack : {std::string(), std::string("1"), std::to_string(ratio)}) {
        Case c = dense(rows, 40, 64);
        c.problem.batch = 2;
        c.problem.kv_heads = 2;
        c.problem.heads = 2 * ratio;
        c.problem.mask = Band::causal();
        c.data = rows == 1 ? Data::v_head_index : Data::normal;
        expect_passes(c, pack.empty() ? "" : ",pack=" + pack);
      }
    }
  }
}

// ---- Data

TEST(Fa2Data, EveryKind) {
  for (int kind = 0; kind < kDataKinds; ++kind) {
    for (const char* row : {"", ",row=full"}) {
      Case c = dense(100, 260, 128, kind % 2 == 0 ? DType::bf16 : DType::f16);
      c.data = static_cast<Data>(kind);
      if (kind % 3 == 0) c.problem.mask = Band::causal();
      expect_passes(c, row);
    }
  }
}

TEST(Fa2Data, ManyBlocksOfGrowingMaxima) {
  for (const std::int64_t d : {64, 192}) {
    Case c = dense(130, kSlow ? 2048 : 700, d);
    c.data = Data::growing_maxima;
    expect_passes(c);
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
    {"bias", [](Case& c) { c.problem.bias.dtype = DType::f32; }},
    {"bias in the dtype",
     [](Case& c) {
       c.problem.bias.dtype = c.problem.dtype;
       c.problem.bias.batch = 1;
       c.problem.bias.seqlen_q = 1;
     }},
    {"bias of -inf",
     [](Case& c) {
       c.problem.bias.dtype = DType::f32;
       c.problem.bias.heads = 1;
       c.bias_inf_share = 0.5;
     }},
    {"bias of the lowest number",
     [](Case& c) {
       c.problem.bias.dtype = DType::f32;
       c.bias_lowest_share = 0.2;
     }},
    {"mask", [](Case& c) { c.problem.bool_mask.dtype = DType::boolean; }},
    {"mask of few",
     [](Case& c) {
       c.problem.bool_mask.dtype = DType::boolean;
       c.problem.bool_mask.heads = 1;
       c.mask_visible_share = 0.05;
     }},
    {"sinks", [](Case& c) { c.problem.sinks = true; }},
    {"sinks above all",
     [](Case& c) {
       c.problem.sinks = true;
       c.data = Data::very_negative;
     }},
    {"dropout", [](Case& c) { c.problem.dropout_p = 0.3; }},
    {"scale 0", [](Case& c) { c.problem.scale = 0; }},
    {"negative scale", [](Case& c) { c.problem.scale = -0.5; }},
    {"tiny scale", [](Case& c) { c.problem.scale = 1e-40; }},
    {"no lse", [](Case& c) { c.lse = false; }},
};

Case with_heads(std::int64_t seqlen_q, std::int64_t seqlen_k) {
  Case c = dense(seqlen_q, seqlen_k, 64);
  c.problem.batch = 2;
  c.problem.heads = 4;
  c.problem.kv_heads = 2;
  return c;
}

TEST(Fa2Features, Dense) {
  for (const Feature& feature : kFeatures) {
    SCOPED_TRACE(feature.name);
    for (const bool causal : {false, true}) {
      Case c = with_heads(70, 100);
      feature.set(c);
      if (causal) c.problem.mask = Band::causal();
      expect_passes(c);
    }
  }
}

TEST(Fa2Features, Padded) {
  for (const Feature& feature : kFeatures) {
    SCOPED_TRACE(feature.name);
    Case c = with_heads(70, 100);
    c.problem.lengths = Lengths::padded;
    c.seqlens_q = {3, 70};
    c.seqlens_k = {100, 0};
    c.problem.mask = Band::causal();
    feature.set(c);
    expect_passes(c);
  }
}

TEST(Fa2Features, Varlen) {
  for (const Feature& feature : kFeatures) {
    SCOPED_TRACE(feature.name);
    Case c = with_heads(70, 100);
    Problem& p = c.problem;
    p.batch = 3;
    p.lengths = Lengths::varlen;
    c.cu_seqlens_q = {0, 70, 70, 75};
    c.cu_seqlens_k = {0, 31, 99, 199};
    p.total_q = 80;  // five rows that no sequence holds
    p.total_k = 199;
    feature.set(c);
    expect_passes(c);
    const bool needs_bounds = p.bias.dtype != DType::none || p.bool_mask.dtype != DType::none;
    if (needs_bounds) continue;
    p.seqlen_q = p.seqlen_k = 0;  // bounds unknown
    c.seqlens_k = {31, 5, 70};
    expect_passes(c);
  }
}

TEST(Fa2Features, VarlenWithoutSequences) {
  Case c = with_heads(0, 0);
  c.problem.lengths = Lengths::varlen;
  c.problem.batch = 0;
  c.problem.sinks = true;
  c.cu_seqlens_q = c.cu_seqlens_k = {0};
  c.problem.total_q = 9;
  expect_passes(c);
}

// ---- Memory

TEST(Fa2Layout, StridesAndAlignment) {
  for (const int align : {1, 2, 16}) {
    for (const Layout layout : {Layout::bshd, Layout::bhsd}) {
      Case c = with_heads(40, 66);
      Problem& p = c.problem;
      p.layout = layout;
      p.alignment_bytes = align;
      if (align < 16) c.misalign_bytes = 6;
      expect_passes(c);
      p.head_dim = 40;
      p.q_strides = p.o_strides = {40 * 4 * 56, 4 * 56, 56};  // gaps; whole chunks of 16 bytes
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

class Fa2Random : public testing::TestWithParam<int> {};

TEST_P(Fa2Random, AgreesWithTheReference) {
  const std::uint64_t begin = static_cast<std::uint64_t>(GetParam()) * 1000;
  const double max_work = kSlow ? 1e9 : 1.5e6;
  int checked = 0;
  for (std::uint64_t seed = begin; seed < begin + (kSlow ? 1000 : 150); ++seed) {
    Case c = random_case(seed);
    Problem& p = c.problem;
    if (p.op != Op::forward || std::max(p.head_dim, p.head_dim_v.value_or(0)) > 256) continue;
    if (work(c) > max_work) continue;
    if (p.dtype == DType::f32) {
      p.dtype = seed % 2 == 0 ? DType::bf16 : DType::f16;
      if (p.alignment_bytes == 4) p.alignment_bytes = 2;
    }
    if (p.bias.dtype != DType::none && p.bias.dtype != DType::f32) p.bias.dtype = p.dtype;
    c.seed += seed;
    expect_passes(c);
    ++checked;
  }
  EXPECT_GE(checked, 20);
}

INSTANTIATE_TEST_SUITE_P(Emulator, Fa2Random, testing::Range(0, 4));

// ---- Schedules

// The emulator's order of threads and landings changes no bit.
TEST(Fa2Schedules, SameBits) {
  Case c = dense(150, 200, 64);
  c.problem.mask = Band::causal();
  c.problem.dropout_p = 0.2;
  const Result<Inputs> inputs = make_inputs(c);
  ASSERT_TRUE(inputs);
  std::vector<unsigned char> first;
  for (std::uint64_t seed = 0; seed < (kSlow ? 300 : 9); ++seed) {
    const Result<Plan> plan = make_plan(c.problem, options(seed));
    ASSERT_TRUE(plan) << plan.status().message();
    Outputs out = make_outputs(c);
    const Status status = run(*plan, c, *inputs, &out);
    ASSERT_TRUE(status) << status.message();
    std::vector<unsigned char> bytes(out.o.buffer.data(),
                                     out.o.buffer.data() + out.o.buffer.bytes());
    bytes.insert(bytes.end(), out.lse.buffer.data(),
                 out.lse.buffer.data() + out.lse.buffer.bytes());
    if (seed == 0) first = bytes;
    EXPECT_EQ(bytes, first) << "seed " << seed;
  }
}

}  // namespace
}  // namespace strobe::harness
