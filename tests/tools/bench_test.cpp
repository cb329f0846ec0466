// Presets, results and samples of the benchmark driver. Timing itself is not tested.
#include <gtest/gtest.h>

#include <set>

#include "bench/fma_peak.h"
#include "bench/measure.h"
#include "bench/preset.h"
#include "bench/results.h"
#include "file_util.h"

namespace strobe::bench {
namespace {

Preset preset_of(const std::string& cases) {
  auto parsed = parse_preset(R"({"suite":"x","op":"forward","cases":)" + cases + "}");
  EXPECT_TRUE(std::holds_alternative<Preset>(parsed)) << std::get<std::string>(parsed);
  return std::get<Preset>(parsed);
}

std::vector<std::string> names_of(const Preset& preset) {
  std::vector<std::string> names;
  for (const BenchCase& c : preset.cases) names.push_back(c.name());
  return names;
}

TEST(BenchPreset, ListsStandForEveryCombination) {
  EXPECT_EQ(names_of(preset_of(R"([{"head_dim":[64,128],"seqlen":32,"mask":["full","causal"]}])")),
            (std::vector<std::string>{"d64-s32-full", "d64-s32-causal", "d128-s32-full",
                                      "d128-s32-causal"}));
}

TEST(BenchPreset, NamesSayWhatDiffers) {
  EXPECT_EQ(names_of(preset_of(R"([
      {"head_dim":8,"seqlen":9,"mask":"causal","window":5,"softcap":30,"alibi":true,"dtype":"bf16","threads":2},
      {"head_dim":8,"seqlen":9,"mask":"full","heads":4,"kv_heads":2,"lengths":[9,1],"dtype":"f16"},
      {"head_dim":8,"seqlen":9,"mask":"full","data":["real","growing"]}])")),
            (std::vector<std::string>{"d8-s9-causal-bf16-window5-softcap-alibi-t2",
                                      "d8-s9-full-f16-h4k2-varlen", "d8-s9-full-real",
                                      "d8-s9-full-growing"}));
}

TEST(BenchPreset, FlopsCountVisiblePairs) {
  const Preset preset = preset_of(R"([
      {"head_dim":8,"seqlen":10,"mask":["full","causal"],"heads":3,"batch":2},
      {"head_dim":8,"seqlen":10,"mask":"causal","window":2},
      {"head_dim":8,"seqlen":4,"mask":"causal","lengths":[4,0,2]}])");
  ASSERT_EQ(preset.cases.size(), 4u);
  EXPECT_EQ(preset.cases[0].flops(), 4 * 8 * 100 * 6);
  EXPECT_EQ(preset.cases[1].flops(), 4 * 8 * 55 * 6);
  EXPECT_EQ(preset.cases[2].flops(), 4 * 8 * (1 + 2 + 8 * 3));
  EXPECT_EQ(preset.cases[3].flops(), 4 * 8 * (10 + 3));
  BenchCase backward = preset.cases[0];
  backward.problem.op = Op::backward;
  EXPECT_EQ(backward.flops(), 10 * 8 * 100 * 6);
}

TEST(BenchPreset, EmbeddedOnesAreValid) {
  ASSERT_GE(embedded_presets().size(), 2u);
  for (const char* text : embedded_presets()) {
    const auto parsed = parse_preset(text);
    ASSERT_TRUE(std::holds_alternative<Preset>(parsed)) << std::get<std::string>(parsed);
    std::set<std::string> names;
    for (const BenchCase& c : std::get<Preset>(parsed).cases) {
      EXPECT_TRUE(names.insert(c.name()).second) << c.name() << " stands twice";
      EXPECT_TRUE(c.problem.check().ok()) << c.name() << c.problem.check().message();
    }
  }
}

TEST(BenchPreset, RefusesMistakes) {
  for (const char* text :
       {"", "{}", R"({"suite":"x"})", R"({"suite":"x","op":"sideways","cases":[]})",
        R"({"suite":"x","cases":[{"head_dim":8,"seqlen":8,"mask":"half"}]})",
        R"({"suite":"x","cases":[{"head_dim":8,"seqlen":8,"mask":"full","dtpye":"f32"}]})",
        R"({"suite":"x","cases":[{"head_dim":"8","seqlen":8,"mask":"full"}]})"}) {
    EXPECT_TRUE(std::holds_alternative<std::string>(parse_preset(text))) << text;
  }
}

TEST(BenchResults, MergeReplacesTheSameCaseAndMetric) {
  const std::string path = tools::test_folder() / "r.jsonl";
  ResultLine line;
  line.suite = "x";
  line.bench_case = "a";
  line.metric = "gflops";
  line.value = 1;
  line.date = "2026-01-02";
  ResultLine other = line;
  other.metric = "scaling";
  ASSERT_FALSE(merge_results(path, {line, other}).has_value());
  line.value = 2;
  line.peer = "fma_peak";
  line.ratio = 0.8126;
  ASSERT_FALSE(merge_results(path, {line}).has_value());
  EXPECT_EQ(tools::read_text(path), line.json() + "\n" + other.json() + "\n");
  EXPECT_NE(line.json().find(R"("ratio":{"fma_peak":0.813})"), std::string::npos) << line.json();
  EXPECT_TRUE(merge_results(path + "/no/folder", {line}).has_value());
}

TEST(BenchMeasure, BestAndMedian) {
  const Samples samples{{4, 9, 5}, {2, 3, 10}};
  EXPECT_EQ(samples.ratio_of_best(), 0.9);
  EXPECT_EQ(samples.median_ratio(), 2);
}

TEST(BenchMeasure, AlternatesAndCountsOperations) {
  std::string order;
  const auto work = [&](char name, double operations) {
    return [&order, name, operations](int calls) {
      order += name;
      volatile double x = 1;
      for (int i = 0; i < calls * 1000; ++i) x = x * 1.0000001;
      return operations * calls;
    };
  };
  Contest contest;
  contest.repeats = 3;
  contest.sample_seconds = 1e-4;
  const Samples samples = measure(work('a', 10), work('b', 0), contest);
  EXPECT_EQ(order.substr(order.size() - 6), "ababab");
  EXPECT_EQ(samples.a.size(), 3u);
  EXPECT_GT(samples.best_a(), 0);
  EXPECT_EQ(samples.best_b(), 0);
}

TEST(BenchFmaPeak, EveryTargetRuns) {
  ASSERT_FALSE(fma_targets().empty());
  for (const FmaTarget& target : fma_targets()) {
    EXPECT_GT(target.run(10), 0) << target.name;
    EXPECT_EQ(find_fma_target(target.name), &target);
  }
  EXPECT_EQ(find_fma_target(""), &fma_targets()[0]);
  EXPECT_EQ(find_fma_target("nonsense"), nullptr);
}

}  // namespace
}  // namespace strobe::bench
