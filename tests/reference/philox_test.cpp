// Philox4x32 of src/core and of the reference: known answers of Random123 (its kat_vectors), each
// other, and the keep rule of docs/numerics.md.
#include "core/philox.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "reference/dropout.h"
#include "reference_run.h"

namespace strobe::harness {
namespace {

using Words = std::array<std::uint32_t, 4>;

Words core_philox(int rounds, Words c, std::array<std::uint32_t, 2> key) {
  const core::PhiloxBlock counter = {{c[0], c[1], c[2], c[3]}};
  const core::PhiloxBlock block = rounds == 7 ? core::philox<7>(key[0], key[1], counter)
                                              : core::philox<10>(key[0], key[1], counter);
  return {block.word[0], block.word[1], block.word[2], block.word[3]};
}

TEST(Philox, KnownAnswers) {
  constexpr std::uint32_t kOnes = 0xFFFFFFFF;
  const struct {
    int rounds;
    Words counter;
    std::array<std::uint32_t, 2> key;
    Words answer;
  } kVectors[] = {{7, {0, 0, 0, 0}, {0, 0}, {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}},
                  {7,
                   {kOnes, kOnes, kOnes, kOnes},
                   {kOnes, kOnes},
                   {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}},
                  {7,
                   {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                   {0xa4093822, 0x299f31d0},
                   {0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}},
                  {10, {0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
                  {10,
                   {kOnes, kOnes, kOnes, kOnes},
                   {kOnes, kOnes},
                   {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
                  {10,
                   {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                   {0xa4093822, 0x299f31d0},
                   {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
  for (const auto& v : kVectors) {
    EXPECT_EQ(reference::philox4x32(v.rounds, v.counter, v.key), v.answer) << v.rounds;
    EXPECT_EQ(core_philox(v.rounds, v.counter, v.key), v.answer) << v.rounds;
  }
}

TEST(Philox, ReferenceAndCoreKeepTheSameElements) {
  strobe_problem problem;
  strobe_problem_init(&problem);
  problem.heads = 7;
  strobe_run_args args;
  strobe_run_args_init(&args);
  args.dropout_seed = 0x123456789ABCDEF0u;
  args.dropout_offset = 0xFEDCBA9800000001u;
  for (const double p : {0.0, 1.0 / 65536, 0.1, 0.5, 0.999}) {
    problem.dropout_p = p;
    for (const std::int64_t sequence : {std::int64_t{0}, std::int64_t{3}, std::int64_t{1} << 31}) {
      const std::int64_t head = 5;
      const reference::Dropout dropout(problem, args, sequence, head);
      const core::PhiloxBlock stream = core::dropout_stream(
          args.dropout_seed, args.dropout_offset, static_cast<std::uint64_t>(sequence * 7 + head));
      for (const std::int64_t i : {std::int64_t{0}, std::int64_t{1}, std::int64_t{70000}}) {
        for (std::int64_t j = 0; j < 100; ++j) {
          const core::PhiloxBlock bits = core::dropout_bits(stream, static_cast<std::uint32_t>(i),
                                                            static_cast<std::uint32_t>(j / 8));
          const bool kept = core::dropout_draw(bits, static_cast<std::uint32_t>(j % 8)) >=
                            core::dropout_threshold(p);
          ASSERT_EQ(dropout.kept(i, j), kept) << p << " " << sequence << " " << i << " " << j;
        }
      }
    }
  }
}

// Q = 0 and V = 1 at key j in channel j show P and its mask: 0, or 1 / (seqlen_k (1 - p)).
TEST(Dropout, MaskSeenThroughTheForwardPass) {
  Case c;
  c.seed = 4;
  c.problem = {.batch = 2, .heads = 3, .seqlen_q = 50, .seqlen_k = 64, .head_dim = 64};
  c.problem.dtype = DType::f64;
  c.problem.dropout_p = 0.25;
  c.data = Data::one_hot_v;
  Inputs in = inputs_of(c);
  assign_all(in.q, 0);
  const Outputs out = run_reference(c, in);

  Case rows = c;
  rows.problem.op = Op::keep_mask;
  rows.problem.num_rows = 50;
  for (std::int64_t i = 0; i < 50; ++i) rows.rows.push_back(i);
  const Outputs keep = run_reference(rows, Inputs());

  std::int64_t kept = 0;
  for_each_index(keep.keep_mask, [&](const Index& at) {
    const double o = out.o.get({at[0], at[2], at[1], at[3]});
    const bool keeps = keep.keep_mask.get(at) != 0;
    kept += keeps;
    ASSERT_NEAR(o, keeps ? 1 / (64 * 0.75) : 0, 1e-15);
  });
  const double n = 2 * 3 * 50 * 64;
  EXPECT_NEAR(static_cast<double>(kept), 0.75 * n, 4 * std::sqrt(n * 0.75 * 0.25));
}

}  // namespace
}  // namespace strobe::harness
