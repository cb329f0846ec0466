// Facts, explanations and library information.
#include "api/report.h"

#include <gtest/gtest.h>
#include <strobe/strobe.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/facts.h"
#include "api/support.h"
#include "call.h"
#include "problems.h"

namespace strobe::test {
namespace {

using nlohmann::json;

double pairs_by_counting(std::int64_t M, std::int64_t N, std::int64_t left, std::int64_t right,
                         std::int64_t offset) {
  double count = 0;
  for (std::int64_t i = 0; i < M; ++i) {
    for (std::int64_t j = 0; j < N; ++j) {
      const bool after = left < 0 || j >= i + offset - left;
      const bool before = right < 0 || j <= i + offset + right;
      count += after && before;
    }
  }
  return count;
}

TEST(Facts, VisiblePairsAgreeWithCounting) {
  for (const std::int64_t M : {0, 1, 4, 9}) {
    for (const std::int64_t N : {0, 1, 5, 12}) {
      for (const std::int64_t left : {-1, 0, 1, 3, 20}) {
        for (const std::int64_t right : {-1, 0, 2, 20}) {
          for (const std::int64_t offset : {-30, -3, 0, 1, 7, 30}) {
            EXPECT_EQ(api::visible_pairs(M, N, left, right, offset),
                      pairs_by_counting(M, N, left, right, offset))
                << M << " " << N << " " << left << " " << right << " " << offset;
          }
        }
      }
    }
  }
}

strobe_plan_facts facts_of(const strobe_problem& p) {
  strobe_plan_facts facts{};
  facts.struct_size = sizeof(facts);
  strobe_status status;
  EXPECT_EQ(strobe_plan_get_facts(reference_plan(p).get(), &facts, &status), STROBE_OK)
      << status.message;
  return facts;
}

TEST(Facts, Forward) {
  strobe_problem p = dense_problem();
  p.head_dim_v = 16;
  const strobe_plan_facts facts = facts_of(p);
  const double pairs = 2 * 4 * 3 * 5;
  EXPECT_EQ(facts.visible_pairs, pairs);
  EXPECT_EQ(facts.flops, pairs * 2 * (8 + 16));
  // q, k, v, o in float32
  EXPECT_EQ(facts.bytes, 4 * (2 * 3 * 4 * 8 + 2 * 5 * 2 * 8 + 2 * 5 * 2 * 16 + 2 * 3 * 4 * 16));
  EXPECT_EQ(facts.standard_bytes, 2 * 4 * pairs);
  EXPECT_EQ(facts.workspace_bytes, 0);
  EXPECT_EQ(facts.threads, 1);
}

TEST(Facts, CausalBackward) {
  strobe_problem p = dense_problem(STROBE_BACKWARD);
  p.window_right = 0;
  const strobe_plan_facts facts = facts_of(p);
  const double pairs = 2 * 4 * (3 + 4 + 5);
  EXPECT_EQ(facts.visible_pairs, pairs);
  EXPECT_EQ(facts.flops, pairs * 2 * (3 * 8 + 2 * 8));
  const double q = 4 * 2 * 3 * 4 * 8, k = 4 * 2 * 5 * 2 * 8, lse = 4 * 2 * 4 * 3;
  EXPECT_EQ(facts.bytes, 4 * q + 4 * k + lse);  // q o dout dq, k v dk dv
}

TEST(Facts, BroadcastElementsCountOnce) {
  strobe_problem p = dense_problem();
  p.k_strides.batch = p.v_strides.batch = 0;
  EXPECT_EQ(facts_of(p).bytes, 4 * (2 * (2 * 3 * 4 * 8) + 2 * (5 * 2 * 8)));
}

TEST(Facts, VarlenAtItsBounds) {
  strobe_problem p = varlen_problem();
  EXPECT_EQ(facts_of(p).visible_pairs, 2 * 4 * 3 * 5);
  p.seqlen_k = 0;  // unknown: one sequence of all rows
  EXPECT_EQ(facts_of(p).visible_pairs, 4 * 6 * 9);
}

TEST(Facts, OtherOperations) {
  EXPECT_EQ(facts_of(dense_problem(STROBE_MERGE)).flops, 0);
  EXPECT_EQ(facts_of(dense_problem(STROBE_MERGE)).bytes,
            (1 + 2) * 4 * 2 * 3 * 4 * 8 + 2 * 4 * 2 * 3 * 4);
  EXPECT_EQ(facts_of(dense_problem(STROBE_KEEP_MASK)).visible_pairs, 0);
  EXPECT_EQ(facts_of(dense_problem(STROBE_PROBS)).visible_pairs, 2 * 4 * 2 * 5);
}

TEST(Facts, StructSize) {
  const PlanPtr plan = reference_plan(dense_problem());
  strobe_status status;
  strobe_plan_facts facts{};
  facts.flops = -1;
  facts.struct_size = offsetof(strobe_plan_facts, flops);
  EXPECT_EQ(strobe_plan_get_facts(plan.get(), &facts, &status), STROBE_OK) << status.message;
  EXPECT_EQ(facts.struct_size, offsetof(strobe_plan_facts, flops));
  EXPECT_EQ(facts.visible_pairs, 2 * 4 * 3 * 5);
  EXPECT_EQ(facts.flops, -1);
  for (const std::size_t size : {std::size_t{0}, std::size_t{12}, sizeof(facts) + 8}) {
    facts.struct_size = static_cast<std::uint32_t>(size);
    EXPECT_EQ(strobe_plan_get_facts(plan.get(), &facts, &status), STROBE_INVALID_ARGUMENT);
    EXPECT_STREQ(status.argument, "struct_size");
  }
  EXPECT_EQ(strobe_plan_get_facts(plan.get(), nullptr, &status), STROBE_INVALID_ARGUMENT);
  EXPECT_STREQ(status.argument, "facts");
  EXPECT_EQ(strobe_plan_get_facts(nullptr, &facts, &status), STROBE_INVALID_ARGUMENT);
  EXPECT_STREQ(status.argument, "plan");
}

std::string explained(const strobe_plan* plan, strobe_format format) {
  std::string text(strobe_plan_explain(plan, format, nullptr, 0), '?');
  EXPECT_EQ(strobe_plan_explain(plan, format, text.data(), text.size()), text.size());
  EXPECT_EQ(text.back(), '\0');
  text.pop_back();
  EXPECT_EQ(text.find('\0'), std::string::npos);
  return text;
}

TEST(Explain, TextHasTheWholeStory) {
  strobe_problem p = dense_problem();
  p.seqlen_q = p.seqlen_k = 1024;
  p.dtype = STROBE_BF16;
  p.window_right = 0;
  p.softcap = 30;
  p.sinks = 1;
  const std::string text = explained(reference_plan(p).get(), STROBE_TEXT);
  for (const char* part :
       {"STROBE_FORWARD", "batch 2", "heads 4 (2 of k and v)", "seqlen 1024 x 1024", "head_dim 8",
        "STROBE_BF16", "causal", "softcap 30", "sinks", "reference on cpu", "float64", "FLOPs",
        "FLOPs per byte", "0 bytes workspace", "32 KiB LSE", "standard attention stores 64 MiB",
        "2048 times as much"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
  }
}

TEST(Explain, TextSaysWhyOthersWerePassed) {
  strobe_problem p = dense_problem();
  p.dtype = STROBE_F64;
  strobe_plan* plan = nullptr;
  ASSERT_EQ(strobe_plan_create(&p, nullptr, &plan, nullptr), STROBE_OK);
  const PlanPtr owner(plan);
  EXPECT_NE(explained(plan, STROBE_TEXT).find("others    cpu: "), std::string::npos)
      << explained(plan, STROBE_TEXT);
  const json report = json::parse(explained(plan, STROBE_JSON));
  EXPECT_EQ(report["others"][0]["backend"], "cpu");
  EXPECT_EQ(report["others"][0]["supported"], false);
  EXPECT_NE(report["others"][0]["reason"], "");
}

TEST(Explain, JsonHasTheSameNumbers) {
  strobe_problem p = dense_problem();
  const strobe_plan_facts facts = facts_of(p);
  const json report = json::parse(explained(reference_plan(p).get(), STROBE_JSON));
  EXPECT_EQ(report["problem"]["op"], "STROBE_FORWARD");
  EXPECT_EQ(report["problem"]["kv_heads"], 2);
  EXPECT_EQ(report["plan"]["backend"], "reference");
  EXPECT_EQ(report["plan"]["device"], "cpu");
  EXPECT_EQ(report["plan"]["threads"], 1);
  EXPECT_TRUE(report["plan"]["facts"].is_object());
  EXPECT_EQ(report["visible_pairs"], facts.visible_pairs);
  EXPECT_EQ(report["flops"], facts.flops);
  EXPECT_EQ(report["bytes"], facts.bytes);
  EXPECT_EQ(report["flops_per_byte"], facts.flops / facts.bytes);
  EXPECT_EQ(report["workspace_bytes"], facts.workspace_bytes);
  EXPECT_EQ(report["standard_bytes"], facts.standard_bytes);
  EXPECT_TRUE(report["others"].is_array());
}

TEST(Explain, EmptyProblemDividesByNothing) {
  strobe_problem p = dense_problem();
  p.batch = 0;
  const json report = json::parse(explained(reference_plan(p).get(), STROBE_JSON));
  EXPECT_EQ(report["flops_per_byte"], 0);
  EXPECT_EQ(report["standard_ratio"], 0);
}

TEST(Explain, BufferIsNeverOverrun) {
  const PlanPtr plan = reference_plan(dense_problem());
  const std::string whole = explained(plan.get(), STROBE_TEXT);
  for (const std::size_t capacity : {std::size_t{1}, std::size_t{10}, whole.size()}) {
    std::vector<char> buffer(capacity + 1, '#');
    EXPECT_EQ(strobe_plan_explain(plan.get(), STROBE_TEXT, buffer.data(), capacity),
              whole.size() + 1);
    EXPECT_EQ(std::string(buffer.data()), whole.substr(0, capacity - 1));
    EXPECT_EQ(buffer[capacity], '#');
  }
  char untouched = '#';
  EXPECT_EQ(strobe_plan_explain(plan.get(), STROBE_TEXT, &untouched, 0), whole.size() + 1);
  EXPECT_EQ(untouched, '#');
  EXPECT_EQ(strobe_plan_explain(nullptr, STROBE_TEXT, &untouched, 1), 1u);
  EXPECT_EQ(untouched, '\0');
}

TEST(HumanBytes, Units) {
  EXPECT_EQ(api::human_bytes(0), "0 bytes");
  EXPECT_EQ(api::human_bytes(1023), "1023 bytes");
  EXPECT_EQ(api::human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(api::human_bytes(3.0 * (1 << 30)), "3 GiB");
}

TEST(LibraryInfo, TextAndJson) {
  std::string text(strobe_library_info(STROBE_TEXT, nullptr, 0), '\0');
  strobe_library_info(STROBE_TEXT, text.data(), text.size());
  for (const char* part : {strobe_version(), "CPU targets", "threads", "reference", "cpu",
                           "device      cuda", "device      emulator"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
  }
  std::string dump(strobe_library_info(STROBE_JSON, nullptr, 0), '\0');
  strobe_library_info(STROBE_JSON, dump.data(), dump.size());
  dump.pop_back();
  const json info = json::parse(dump);
  EXPECT_EQ(info["version"], "0.1.0");
  EXPECT_FALSE(info["cpu_targets"].empty());
  EXPECT_GE(info["threads"]["default"], 1);
  EXPECT_GE(info["kernels"].size(), 2u);
  EXPECT_GE(info["devices"].size(), 2u);
  EXPECT_TRUE(info["kernels"][0]["overrides"].is_object());
}

TEST(DtypeBytes, AllValues) {
  const std::size_t expected[] = {0, 4, 2, 2, 8, 1, 1, 1};
  for (strobe_dtype dtype = 0; dtype < 8; ++dtype) {
    EXPECT_EQ(strobe_dtype_bytes(dtype), expected[dtype]);
  }
  EXPECT_EQ(strobe_dtype_bytes(8), 0u);
  EXPECT_EQ(strobe_dtype_bytes(-1), 0u);
}

}  // namespace
}  // namespace strobe::test
