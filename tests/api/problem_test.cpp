// Every refusal of a problem: its code, the argument it names, the value and the remedy.
#include <gtest/gtest.h>
#include <strobe/strobe.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "problems.h"

namespace strobe::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr std::int64_t kHuge = std::int64_t{1} << 62;

struct Refusal {
  std::string name;
  strobe_problem problem;
  const char* argument;
  std::vector<std::string> words;  // of the message: the value, the limit, the remedy
};

using Change = std::function<void(strobe_problem&)>;

Refusal refusal(std::string name, strobe_problem p, const Change& change, const char* argument,
                std::vector<std::string> words) {
  change(p);
  return {std::move(name), p, argument, std::move(words)};
}

std::vector<Refusal> kinds() {
  const strobe_problem p = dense_problem();
  return {
      refusal("op", p, [](auto& p) { p.op = 5; }, "op", {"5", "STROBE_KEEP_MASK"}),
      refusal("op_negative", p, [](auto& p) { p.op = -1; }, "op", {"-1", "STROBE_FORWARD"}),
      refusal("dtype", p, [](auto& p) { p.dtype = 99; }, "dtype", {"99", "STROBE_BF16"}),
      refusal("dtype_none", p, [](auto& p) { p.dtype = STROBE_NONE; }, "dtype",
              {"STROBE_NONE", "floating-point", "Pass STROBE_F32"}),
      refusal("dtype_bool", p, [](auto& p) { p.dtype = STROBE_BOOL; }, "dtype",
              {"STROBE_BOOL", "Pass STROBE_F32"}),
      refusal("layout", p, [](auto& p) { p.layout = 2; }, "layout", {"2", "Pass STROBE_BSHD"}),
      refusal("lengths", p, [](auto& p) { p.lengths = 3; }, "lengths", {"3", "STROBE_VARLEN"}),
      refusal("alibi", p, [](auto& p) { p.alibi = 3; }, "alibi", {"3", "STROBE_ALIBI_PER_HEAD"}),
      refusal("sinks", p, [](auto& p) { p.sinks = 2; }, "sinks", {"2", "Pass 0 or 1"}),
      refusal("deterministic", p, [](auto& p) { p.deterministic = -1; }, "deterministic",
              {"-1", "Pass 0 or 1"}),
      refusal("reserved", p, [](auto& p) { p.reserved = 7; }, "reserved", {"7", "Pass 0"}),
  };
}

std::vector<Refusal> sizes() {
  const strobe_problem p = dense_problem(), varlen = varlen_problem();
  return {
      refusal("batch", p, [](auto& p) { p.batch = -1; }, "batch", {"-1", "from 0", "Pass"}),
      refusal("batch_auto", p, [](auto& p) { p.batch = STROBE_AUTO; }, "batch",
              {"STROBE_AUTO", "from 0", "Pass"}),
      refusal("batch_huge", p, [](auto& p) { p.batch = kHuge; }, "batch", {"4611686018427387904"}),
      refusal("heads", p, [](auto& p) { p.heads = 0; }, "heads", {"0", "from 1", "query heads"}),
      refusal("kv_heads_zero", p, [](auto& p) { p.kv_heads = 0; }, "kv_heads",
              {"0", "divide heads, 4", "1, 2, 4"}),
      refusal("kv_heads_more", p, [](auto& p) { p.kv_heads = 8; }, "kv_heads", {"8", "1, 2, 4"}),
      refusal("kv_heads_odd", p, [](auto& p) { p.kv_heads = 3; }, "kv_heads",
              {"3", "divide heads, 4", "STROBE_AUTO"}),
      refusal("seqlen_q", p, [](auto& p) { p.seqlen_q = -5; }, "seqlen_q", {"-5", "rows of q"}),
      refusal("seqlen_k", p, [](auto& p) { p.seqlen_k = -6; }, "seqlen_k", {"-6", "rows of k"}),
      refusal("head_dim_zero", p, [](auto& p) { p.head_dim = 0; }, "head_dim",
              {"0", "from 1 to 512", "innermost"}),
      refusal("head_dim", p, [](auto& p) { p.head_dim = 513; }, "head_dim", {"513", "to 512"}),
      refusal("head_dim_v", p, [](auto& p) { p.head_dim_v = 513; }, "head_dim_v",
              {"513", "to 512", "STROBE_AUTO"}),
      refusal("head_dim_v_zero", p, [](auto& p) { p.head_dim_v = 0; }, "head_dim_v", {"0"}),
      refusal("merge_head_dim", dense_problem(STROBE_MERGE), [](auto& p) { p.head_dim = 0; },
              "head_dim", {"0", "from 1 to 512"}),
      refusal("total_q", varlen, [](auto& p) { p.total_q = -1; }, "total_q", {"-1", "rows of q"}),
      refusal("total_k", varlen, [](auto& p) { p.total_k = -2; }, "total_k", {"-2", "rows of k"}),
      refusal("alignment_zero", p, [](auto& p) { p.alignment_bytes = 0; }, "alignment_bytes",
              {"0", "power of two from 1 to 256", "Pass 16"}),
      refusal("alignment_12", p, [](auto& p) { p.alignment_bytes = 12; }, "alignment_bytes",
              {"12", "power of two"}),
      refusal("alignment_512", p, [](auto& p) { p.alignment_bytes = 512; }, "alignment_bytes",
              {"512", "to 256"}),
      refusal("alignment_lowest", p, [](auto& p) { p.alignment_bytes = INT32_MIN; },
              "alignment_bytes", {"-2147483648"}),
      refusal("too_many_rows", p,
              [](auto& p) {
                p.batch = std::int64_t{1} << 40;
                p.seqlen_q = std::int64_t{1} << 40;
              },
              "seqlen_q", {"batch * seqlen_q * heads * head_dim", "smaller"}),
      refusal("too_many_keys", varlen,
              [](auto& p) {
                p.total_k = std::int64_t{1} << 48;
                p.heads = p.kv_heads = 1 << 20;
              },
              "total_k", {"281474976710656", "2^57"}),
      refusal("too_many_heads", varlen,
              [](auto& p) {
                p.batch = std::int64_t{1} << 40;
                p.heads = p.kv_heads = 1 << 20;
              },
              "batch", {"batch * heads * head_dim", "2^57"}),
  };
}

std::vector<Refusal> scores() {
  const strobe_problem p = dense_problem();
  return {
      refusal("scale_nan", p, [](auto& p) { p.scale = kNan; }, "scale", {"nan", "finite", "Pass"}),
      refusal("scale_inf", p, [](auto& p) { p.scale = kInf; }, "scale", {"inf", "finite"}),
      refusal("scale_large", p, [](auto& p) { p.scale = 1e39; }, "scale",
              {"1e+39", "3.4e+38", "STROBE_SCALE_AUTO"}),
      refusal("softcap", p, [](auto& p) { p.softcap = -1; }, "softcap", {"-1", "Pass 0 for none"}),
      refusal("softcap_nan", p, [](auto& p) { p.softcap = kNan; }, "softcap", {"nan", "Pass 0"}),
      refusal("softcap_inf", p, [](auto& p) { p.softcap = kInf; }, "softcap", {"inf", "Pass 0"}),
      refusal("softcap_tiny", p, [](auto& p) { p.softcap = 1e-60; }, "softcap", {"1e-60"}),
      refusal("window_left", p, [](auto& p) { p.window_left = -3; }, "window_left",
              {"-3", "only -1 means unlimited", "Pass -1"}),
      refusal("window_right", p, [](auto& p) { p.window_right = STROBE_AUTO; }, "window_right",
              {"STROBE_AUTO", "Pass -1"}),
      refusal("query_offset", p, [](auto& p) { p.query_offset = kHuge; }, "query_offset",
              {"4611686018427387904", "STROBE_AUTO"}),
      refusal("query_offset_low", p, [](auto& p) { p.query_offset = -INT64_MAX; }, "query_offset",
              {"-9223372036854775807"}),
      refusal("dropout_one", p, [](auto& p) { p.dropout_p = 1; }, "dropout_p",
              {"1", "less than 1", "0 for none"}),
      refusal("dropout_negative", p, [](auto& p) { p.dropout_p = -0.5; }, "dropout_p", {"-0.5"}),
      refusal("dropout_nan", p, [](auto& p) { p.dropout_p = kNan; }, "dropout_p", {"nan"}),
  };
}

Change with_bias(std::function<void(strobe_score_tensor&)> change) {
  return [change](strobe_problem& p) {
    p.bias.dtype = STROBE_F32;
    change(p.bias);
  };
}

std::vector<Refusal> score_tensors() {
  const strobe_problem p = dense_problem();
  strobe_problem varlen = varlen_problem();
  varlen.seqlen_q = varlen.seqlen_k = 0;
  return {
      refusal("bias_dtype", p, [](auto& p) { p.bias.dtype = STROBE_BF16; }, "bias.dtype",
              {"STROBE_BF16", "STROBE_F32", "STROBE_NONE for no bias"}),
      refusal("bias_dtype_unknown", p, [](auto& p) { p.bias.dtype = 42; }, "bias.dtype", {"42"}),
      refusal("mask_dtype", p, [](auto& p) { p.mask.dtype = STROBE_F32; }, "mask.dtype",
              {"STROBE_F32", "Pass STROBE_BOOL"}),
      refusal("bias_batch", p, with_bias([](auto& t) { t.batch = 3; }), "bias.batch",
              {"3", "problem's batch, 2, or 1", "STROBE_AUTO"}),
      refusal("bias_heads", p, with_bias([](auto& t) { t.heads = 2; }), "bias.heads",
              {"2", "problem's heads, 4, or 1"}),
      refusal("bias_seqlen_q", p, with_bias([](auto& t) { t.seqlen_q = 0; }), "bias.seqlen_q",
              {"0", "problem's seqlen_q, 3, or 1"}),
      refusal("bias_seqlen_k", p, with_bias([](auto& t) { t.seqlen_k = 1; }), "bias.seqlen_k",
              {"1", "problem's seqlen_k, 5.", "keys do not broadcast"}),
      refusal("bias_reserved", p, with_bias([](auto& t) { t.reserved = 1; }), "bias.reserved",
              {"1", "Pass 0"}),
      refusal("bias_stride", p, with_bias([](auto& t) { t.stride_head = kHuge; }),
              "bias.stride_head", {"4611686018427387904", "2^60 bytes", "smaller"}),
      refusal("bias_large", p,
              [](auto& p) {
                p.bias.dtype = STROBE_F32;
                p.seqlen_q = p.seqlen_k = std::int64_t{1} << 30;
                p.bias.stride_q = p.bias.stride_head = p.bias.stride_batch = 0;
              },
              "bias.seqlen_q", {"2^57", "broadcast"}),
      refusal("bias_varlen_q", varlen, [](auto& p) { p.bias.dtype = STROBE_F32; }, "seqlen_q",
              {"0", "bias", "upper bound", "longest"}),
      refusal("mask_varlen_k", varlen,
              [](auto& p) {
                p.mask.dtype = STROBE_BOOL;
                p.mask.seqlen_q = 1;
              },
              "seqlen_k", {"0", "mask", "upper bound"}),
  };
}

std::vector<Refusal> operations() {
  const strobe_problem p = dense_problem(), merge = dense_problem(STROBE_MERGE);
  strobe_problem probs = varlen_problem(STROBE_PROBS);
  std::vector<Refusal> list = {
      refusal("partials", merge, [](auto& p) { p.partials = 0; }, "partials",
              {"0", "at least 1", "partial_o"}),
      refusal("partial_dtype", merge, [](auto& p) { p.partial_dtype = STROBE_F16; },
              "partial_dtype", {"STROBE_F16", "STROBE_F32", "STROBE_NONE"}),
      refusal("partial_dtype_f64", merge,
              [](auto& p) {
                p.dtype = STROBE_F64;
                p.partial_dtype = STROBE_F32;
              },
              "partial_dtype", {"STROBE_F32", "STROBE_F64"}),
      refusal("partials_forward", p, [](auto& p) { p.partials = 2; }, "partials",
              {"2", "STROBE_FORWARD", "STROBE_MERGE"}),
      refusal("partial_dtype_forward", p, [](auto& p) { p.partial_dtype = STROBE_F32; },
              "partial_dtype", {"STROBE_F32", "STROBE_FORWARD"}),
      refusal("num_rows_forward", p, [](auto& p) { p.num_rows = 1; }, "num_rows",
              {"1", "STROBE_FORWARD", "STROBE_PROBS"}),
      refusal("num_rows", probs, [](auto& p) { p.num_rows = -1; }, "num_rows", {"-1", "from 0"}),
      refusal("num_rows_huge", probs,
              [](auto& p) { p.num_rows = p.seqlen_k = std::int64_t{1} << 40; }, "num_rows",
              {"batch * heads * num_rows * seqlen_k", "2^57"}),
      refusal("probs_varlen", probs, [](auto& p) { p.seqlen_k = 0; }, "seqlen_k",
              {"0", "STROBE_PROBS", "upper bound"}),
      refusal("keep_mask_varlen", varlen_problem(STROBE_KEEP_MASK), [](auto& p) { p.seqlen_k = 0; },
              "seqlen_k", {"0", "STROBE_KEEP_MASK", "upper bound"}),
  };
  const std::pair<const char*, Change> features[] = {
      {"softcap", [](auto& p) { p.softcap = 1; }},
      {"window_left", [](auto& p) { p.window_left = 1; }},
      {"window_right", [](auto& p) { p.window_right = 0; }},
      {"query_offset", [](auto& p) { p.query_offset = 0; }},
      {"alibi", [](auto& p) { p.alibi = STROBE_ALIBI_PER_HEAD; }},
      {"sinks", [](auto& p) { p.sinks = 1; }},
      {"bias", [](auto& p) { p.bias.dtype = STROBE_F32; }},
      {"mask", [](auto& p) { p.mask.dtype = STROBE_BOOL; }},
      {"dropout_p", [](auto& p) { p.dropout_p = 0.5; }},
  };
  for (const auto& [field, change] : features) {
    list.push_back(refusal(std::string("merge_") + field, merge, change, field,
                           {"set", "STROBE_MERGE", "Leave it at its default"}));
  }
  return list;
}

std::vector<Refusal> strides() {
  const strobe_problem p = dense_problem();
  const strobe_problem backward = dense_problem(STROBE_BACKWARD);
  return {
      refusal("o_broadcast", p, [](auto& p) { p.o_strides.head = 0; }, "o_strides",
              {"head 0", "share memory", "STROBE_AUTO"}),
      refusal("o_overlap", p, [](auto& p) { p.o_strides.seq = 31; }, "o_strides",
              {"seq 31", "share memory"}),
      refusal("o_negative_overlap", p, [](auto& p) { p.o_strides.seq = -31; }, "o_strides",
              {"seq -31"}),
      refusal("lse_same", p,
              [](auto& p) {
                p.lse_strides = {12, 1, 2};
              },
              "lse_strides", {"head 2", "share memory"}),
      refusal("dq_broadcast", backward, [](auto& p) { p.dq_strides.batch = 0; }, "dq_strides",
              {"batch 0", "share memory"}),
      refusal("dk_broadcast", backward, [](auto& p) { p.dk_strides.head = 0; }, "dk_strides",
              {"head 0"}),
      refusal("dv_overlap", backward, [](auto& p) { p.dv_strides.seq = 1; }, "dv_strides",
              {"seq 1"}),
      refusal("merge_o", dense_problem(STROBE_MERGE), [](auto& p) { p.o_strides.seq = 0; },
              "o_strides", {"seq 0"}),
      refusal("q_huge", p, [](auto& p) { p.q_strides.batch = kHuge; }, "q_strides.batch",
              {"4611686018427387904", "2^60 bytes", "smaller"}),
      refusal("k_huge_negative", p, [](auto& p) { p.k_strides.seq = -INT64_MAX; }, "k_strides.seq",
              {"-9223372036854775807", "2^60"}),
      refusal("unused_huge", p, [](auto& p) { p.dq_strides.seq = kHuge; }, "dq_strides.seq",
              {"2^60"}),
      refusal("empty_huge", p,
              [](auto& p) {
                p.seqlen_q = 0;
                p.q_strides.batch = kHuge;
              },
              "q_strides.batch", {"2^60"}),
  };
}

class ProblemRefusals : public testing::TestWithParam<Refusal> {};

TEST_P(ProblemRefusals, NameArgumentValueAndRemedy) {
  const Refusal& r = GetParam();
  strobe_status status;
  std::memset(&status, 0xAB, sizeof(status));
  const strobe_code code = strobe_problem_check(&r.problem, &status);
  EXPECT_EQ(code, STROBE_INVALID_ARGUMENT);
  EXPECT_EQ(status.code, code);
  EXPECT_STREQ(status.argument, r.argument);
  const std::string message = status.message;
  for (const std::string& word : r.words) {
    EXPECT_NE(message.find(word), std::string::npos) << "no '" << word << "' in: " << message;
  }
  EXPECT_EQ(message.rfind(r.argument, 0), 0u) << message;
  EXPECT_EQ(message.back(), '.') << message;

  // The same through a plan, which must not come into being.
  strobe_plan* plan = reinterpret_cast<strobe_plan*>(0x1);
  strobe_status again;
  EXPECT_EQ(strobe_plan_create(&r.problem, nullptr, &plan, &again), STROBE_INVALID_ARGUMENT);
  EXPECT_EQ(plan, nullptr);
  EXPECT_STREQ(again.message, status.message);
}

std::string name_of(const testing::TestParamInfo<Refusal>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Kinds, ProblemRefusals, testing::ValuesIn(kinds()), name_of);
INSTANTIATE_TEST_SUITE_P(Sizes, ProblemRefusals, testing::ValuesIn(sizes()), name_of);
INSTANTIATE_TEST_SUITE_P(Scores, ProblemRefusals, testing::ValuesIn(scores()), name_of);
INSTANTIATE_TEST_SUITE_P(ScoreTensors, ProblemRefusals, testing::ValuesIn(score_tensors()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Operations, ProblemRefusals, testing::ValuesIn(operations()), name_of);
INSTANTIATE_TEST_SUITE_P(Strides, ProblemRefusals, testing::ValuesIn(strides()), name_of);

TEST(ProblemCheck, AcceptsTheUnmodifiedProblems) {
  for (const strobe_op op :
       {STROBE_FORWARD, STROBE_BACKWARD, STROBE_MERGE, STROBE_PROBS, STROBE_KEEP_MASK}) {
    for (const strobe_problem& p : {dense_problem(op), padded_problem(op), varlen_problem(op)}) {
      strobe_status status;
      EXPECT_EQ(strobe_problem_check(&p, &status), STROBE_OK) << status.message;
      EXPECT_STREQ(status.argument, "");
      EXPECT_STREQ(status.message, "");
    }
  }
}

TEST(ProblemCheck, NullProblemAndNullStatus) {
  strobe_status status;
  EXPECT_EQ(strobe_problem_check(nullptr, &status), STROBE_INVALID_ARGUMENT);
  EXPECT_STREQ(status.argument, "problem");
  EXPECT_EQ(strobe_problem_check(nullptr, nullptr), STROBE_INVALID_ARGUMENT);
}

TEST(ProblemCheck, StructSize) {
  strobe_problem p = dense_problem();
  strobe_status status;
  for (const std::uint32_t size : {0u, 1u, 3u, 4u, 7u, 12u, 97u}) {
    p.struct_size = size;
    EXPECT_EQ(strobe_problem_check(&p, &status), STROBE_INVALID_ARGUMENT) << size;
    EXPECT_STREQ(status.argument, "struct_size");
    EXPECT_NE(std::string(status.message).find("strobe_problem_init"), std::string::npos);
  }
  for (const std::size_t size : {sizeof(p) + 1, sizeof(p) + 8, std::size_t{0xFFFFFFFF}}) {
    p.struct_size = static_cast<std::uint32_t>(size);
    EXPECT_EQ(strobe_problem_check(&p, &status), STROBE_INVALID_ARGUMENT) << size;
    EXPECT_STREQ(status.argument, "struct_size");
    EXPECT_NE(std::string(status.message).find(std::to_string(size)), std::string::npos);
    EXPECT_NE(std::string(status.message).find(std::to_string(sizeof(p))), std::string::npos);
  }
}

// A caller whose header ended before `scale`: what follows in its memory is not ours to read.
TEST(ProblemCheck, ShorterStructMeansDefaults) {
  const strobe_problem whole = dense_problem();
  constexpr std::size_t kSize = offsetof(strobe_problem, scale);
  std::vector<unsigned char> memory(kSize);  // exactly sized: a sanitizer sees a read past it
  std::memcpy(memory.data(), &whole, kSize);
  const auto size = static_cast<std::uint32_t>(kSize);
  std::memcpy(memory.data(), &size, sizeof(size));
  strobe_status status;
  EXPECT_EQ(strobe_problem_check(reinterpret_cast<const strobe_problem*>(memory.data()), &status),
            STROBE_OK)
      << status.message;
}

}  // namespace
}  // namespace strobe::test
