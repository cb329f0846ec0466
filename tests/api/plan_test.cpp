// Planning: options, overrides, and the choice among backends, with rows made up for the purpose.
#include "api/plan.h"

#include <gtest/gtest.h>
#include <strobe/strobe.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/refuse.h"
#include "problems.h"

namespace strobe::test {
namespace {

class FakeKernel final : public api::PlannedKernel {
 public:
  explicit FakeKernel(const api::Options& options) : options_(options) {}
  std::size_t workspace_bytes() const override { return 256; }
  int threads() const override { return options_.threads; }
  api::Facts facts() const override { return {{"tile", "64 x 64"}}; }
  api::Status run(const strobe_run_args&, void*) const override { return {}; }

 private:
  api::Options options_;
};

api::Status takes(const strobe_problem&, const api::Options&) { return {}; }
api::Status refuses(const strobe_problem&, const api::Options&) {
  return api::unsupported("softcap", "softcap is 30, but this row takes none. Pass 0.");
}
double cheap(const strobe_problem&, const api::Options&) { return 10; }
double dear(const strobe_problem&, const api::Options&) { return 1e9; }
api::Status plans(const strobe_problem&, const api::Options& options,
                  std::unique_ptr<api::PlannedKernel>* planned) {
  *planned = std::make_unique<FakeKernel>(options);
  return {};
}
api::Status dislikes_tile(const strobe_problem&, const api::Options& options,
                          std::unique_ptr<api::PlannedKernel>*) {
  const auto tile = options.overrides.find("tile");
  return api::invalid("overrides",
                      tile == options.overrides.end() ? "no tile" : "tile is " + tile->second);
}
api::Status runs_out(const strobe_problem&, const api::Options&,
                     std::unique_ptr<api::PlannedKernel>*) {
  return {STROBE_OUT_OF_MEMORY, "", "out of memory"};
}

constexpr api::OverrideKey kTile[] = {{"tile", "a number"}, {"split", "a number"}};
constexpr auto kCpu = STROBE_DEVICE_CPU;
const api::Backend kCheap = {"cheap", kCpu, kTile, "a cheap row", takes, cheap, plans};
const api::Backend kDear = {"dear", kCpu, {}, "a dear row", takes, dear, plans};
const api::Backend kRefusing = {"refusing", kCpu, {}, "", refuses, cheap, plans};
const api::Backend kPicky = {"picky", kCpu, kTile, "", takes, cheap, dislikes_tile};
const api::Backend kStarved = {"starved", kCpu, {}, "", takes, cheap, runs_out};
const api::Backend kGpu = {"gpu", STROBE_DEVICE_CUDA, {}, "", takes, cheap, plans};

using Rows = std::vector<const api::Backend*>;

struct Made {
  api::Status status;
  std::unique_ptr<strobe_plan> plan;
};

Made make(const Rows& rows, const strobe_plan_options& options,
          const strobe_problem& problem = dense_problem()) {
  Made made;
  made.status = api::make_plan(&problem, &options, rows, &made.plan);
  EXPECT_EQ(made.status.ok(), made.plan != nullptr);
  return made;
}

strobe_plan_options defaults() {
  strobe_plan_options options;
  strobe_plan_options_init(&options);
  return options;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Choice, CheapestThatSupports) {
  const Made made = make({&kGpu, &kDear, &kRefusing, &kCheap}, defaults());
  ASSERT_NE(made.plan, nullptr);
  EXPECT_STREQ(made.plan->backend->name, "cheap");
  EXPECT_EQ(made.plan->cost, 10);
  ASSERT_EQ(made.plan->passed.size(), 2u);
  EXPECT_EQ(made.plan->passed[0].name, "refusing");
  EXPECT_EQ(made.plan->passed[0].reason.code, STROBE_UNSUPPORTED);
  EXPECT_EQ(made.plan->passed[1].name, "dear");
  EXPECT_TRUE(made.plan->passed[1].reason.ok());
  EXPECT_EQ(made.plan->passed[1].cost, 1e9);
}

TEST(Choice, NextWhenPlanningFails) {
  const Made made = make({&kPicky, &kDear}, defaults());
  ASSERT_NE(made.plan, nullptr);
  EXPECT_STREQ(made.plan->backend->name, "dear");
  EXPECT_EQ(made.plan->passed.at(0).reason.message, "no tile");
}

TEST(Choice, OutOfMemoryEndsTheSearch) {
  EXPECT_EQ(make({&kStarved, &kDear}, defaults()).status.code, STROBE_OUT_OF_MEMORY);
}

TEST(Choice, NoneGivesEveryReason) {
  const Made made = make({&kRefusing, &kPicky}, defaults());
  EXPECT_EQ(made.status.code, STROBE_UNSUPPORTED);
  EXPECT_TRUE(contains(made.status.message, "refusing: softcap is 30")) << made.status.message;
  EXPECT_TRUE(contains(made.status.message, "\npicky: no tile")) << made.status.message;
}

TEST(Choice, ByName) {
  strobe_plan_options options = defaults();
  options.kernel = "dear";
  const Made made = make({&kCheap, &kDear}, options);
  ASSERT_NE(made.plan, nullptr);
  EXPECT_STREQ(made.plan->backend->name, "dear");
  EXPECT_TRUE(made.plan->passed.empty());
}

TEST(Choice, NamedKernelRefusesInItsOwnWords) {
  strobe_plan_options options = defaults();
  options.kernel = "refusing";
  const Made made = make({&kCheap, &kRefusing}, options);
  EXPECT_EQ(made.status.argument, "softcap");
  EXPECT_EQ(made.status.message, "softcap is 30, but this row takes none. Pass 0.");
}

TEST(Choice, UnknownNameListsTheNames) {
  strobe_plan_options options = defaults();
  options.kernel = "fast";
  const Made made = make({&kCheap, &kDear, &kGpu}, options);
  EXPECT_EQ(made.status.code, STROBE_INVALID_ARGUMENT);
  EXPECT_EQ(made.status.argument, "kernel");
  EXPECT_TRUE(contains(made.status.message, "\"fast\"")) << made.status.message;
  EXPECT_TRUE(contains(made.status.message, "cheap, dear.")) << made.status.message;
}

TEST(Choice, DeviceWithoutBackend) {
  for (const strobe_device_kind device : {STROBE_DEVICE_CUDA, STROBE_DEVICE_EMULATOR}) {
    strobe_plan_options options = defaults();
    options.device = device;
    const Made made = make({&kCheap}, options);
    EXPECT_EQ(made.status.code, STROBE_UNSUPPORTED);
    EXPECT_EQ(made.status.argument, "device");
    EXPECT_TRUE(contains(made.status.message, "no backend")) << made.status.message;
    EXPECT_TRUE(contains(made.status.message, "STROBE_DEVICE_CPU")) << made.status.message;
  }
}

TEST(Overrides, ReachTheKernelThatHasTheirKeys) {
  strobe_plan_options options = defaults();
  options.overrides = "tile=32,split=a=b";
  const Made made = make({&kDear, &kCheap}, options);
  ASSERT_NE(made.plan, nullptr) << made.status.message;
  EXPECT_STREQ(made.plan->backend->name, "cheap");
  EXPECT_EQ(made.plan->options.overrides.at("tile"), "32");
  EXPECT_EQ(made.plan->options.overrides.at("split"), "a=b");
  EXPECT_TRUE(contains(made.plan->passed.at(0).reason.message, "dear has no keys"));
}

TEST(Overrides, UnknownKeyNamesTheKeys) {
  strobe_plan_options options = defaults();
  options.overrides = "tiel=32";
  const Made made = make({&kCheap, &kDear}, options);
  EXPECT_EQ(made.status.code, STROBE_INVALID_ARGUMENT);
  EXPECT_EQ(made.status.argument, "overrides");
  EXPECT_TRUE(contains(made.status.message, "\"tiel\"")) << made.status.message;
  EXPECT_TRUE(contains(made.status.message, "cheap has the keys tile, split"));
}

TEST(Overrides, BadValueIsTheKernelsToRefuse) {
  strobe_plan_options options = defaults();
  options.overrides = "tile=3";
  const Made made = make({&kPicky, &kDear}, options);
  EXPECT_EQ(made.status.code, STROBE_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(made.status.message, "tile is 3")) << made.status.message;
}

TEST(Overrides, Syntax) {
  for (const char* text : {"tile", "=3", "tile=", "tile=3,", "tile=3,,split=2", "tile=3,tile=4"}) {
    strobe_plan_options options = defaults();
    options.overrides = text;
    const Made made = make({&kCheap}, options);
    EXPECT_EQ(made.status.code, STROBE_INVALID_ARGUMENT) << text;
    EXPECT_EQ(made.status.argument, "overrides") << text;
  }
}

void serial_for(void*, std::int64_t count, strobe_task task, void* arg) {
  for (std::int64_t i = 0; i < count; ++i) task(arg, i, 0);
}

struct OptionsRefusal {
  const char* name;
  void (*change)(strobe_plan_options&, strobe_executor&);
  const char* argument;
  std::vector<std::string> words;
};

class OptionsRefusals : public testing::TestWithParam<OptionsRefusal> {};

TEST_P(OptionsRefusals, NameArgumentValueAndRemedy) {
  const OptionsRefusal& r = GetParam();
  strobe_plan_options options = defaults();
  strobe_executor executor = {nullptr, serial_for, 3, 0};
  options.executor = &executor;
  r.change(options, executor);
  const Made made = make({&kCheap, &kGpu}, options);
  EXPECT_EQ(made.status.code, STROBE_INVALID_ARGUMENT);
  EXPECT_EQ(made.status.argument, r.argument) << made.status.message;
  for (const std::string& word : r.words) {
    EXPECT_TRUE(contains(made.status.message, word)) << word << " in " << made.status.message;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plan, OptionsRefusals,
    testing::Values(OptionsRefusal{"device",
                                   [](auto& o, auto&) { o.device = 3; },
                                   "device",
                                   {"3", "STROBE_DEVICE_CPU"}},
                    OptionsRefusal{"device_index",
                                   [](auto& o, auto&) { o.device_index = 1; },
                                   "device_index",
                                   {"1", "one cpu", "Pass 0"}},
                    OptionsRefusal{"cuda_index",
                                   [](auto& o, auto&) {
                                     o.device = STROBE_DEVICE_CUDA;
                                     o.device_index = -1;
                                   },
                                   "device_index",
                                   {"-1", "count from 0"}},
                    OptionsRefusal{"threads",
                                   [](auto& o, auto&) { o.threads = -1; },
                                   "threads",
                                   {"-1", "from 0", "STROBE_NUM_THREADS"}},
                    OptionsRefusal{"threads_many",
                                   [](auto& o, auto&) { o.threads = 1 << 20; },
                                   "threads",
                                   {"1048576", "4096"}},
                    OptionsRefusal{"threads_executor",
                                   [](auto& o, auto&) { o.threads = 2; },
                                   "threads",
                                   {"2", "executor has 3", "Pass 0"}},
                    OptionsRefusal{"function",
                                   [](auto&, auto& e) { e.parallel_for = nullptr; },
                                   "executor.parallel_for",
                                   {"NULL", "Pass a function"}},
                    OptionsRefusal{"executor_threads",
                                   [](auto&, auto& e) { e.threads = 0; },
                                   "executor.threads",
                                   {"0", "from 1"}},
                    OptionsRefusal{"executor_reserved",
                                   [](auto&, auto& e) { e.reserved = 9; },
                                   "executor.reserved",
                                   {"9", "Pass 0"}},
                    OptionsRefusal{"struct_size",
                                   [](auto& o, auto&) { o.struct_size += 8; },
                                   "struct_size",
                                   {std::to_string(sizeof(strobe_plan_options) + 8), "libstrobe"}},
                    OptionsRefusal{"struct_short",
                                   [](auto& o, auto&) { o.struct_size = 9; },
                                   "struct_size",
                                   {"9", "strobe_plan_options_init"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(PlanOptions, ExecutorGivesTheThreads) {
  strobe_plan_options options = defaults();
  const strobe_executor executor = {nullptr, serial_for, 3, 0};
  options.executor = &executor;
  const Made made = make({&kCheap}, options);
  ASSERT_NE(made.plan, nullptr);
  EXPECT_EQ(made.plan->kernel->threads(), 3);
  ASSERT_TRUE(made.plan->options.executor.has_value());
  EXPECT_EQ(made.plan->options.executor->parallel_for, &serial_for);
}

// A caller whose header had neither kernel nor overrides nor executor.
TEST(PlanOptions, ShorterStructMeansDefaults) {
  strobe_plan_options options = defaults();
  options.struct_size = offsetof(strobe_plan_options, kernel);
  options.threads = 2;
  options.kernel = reinterpret_cast<const char*>(0x1);
  const Made made = make({&kCheap}, options);
  ASSERT_NE(made.plan, nullptr) << made.status.message;
  EXPECT_EQ(made.plan->options.threads, 2);
  EXPECT_TRUE(made.plan->options.kernel.empty());
}

TEST(PlanOptions, NullMeansDefaults) {
  const strobe_problem problem = dense_problem();
  std::unique_ptr<strobe_plan> plan;
  const Rows rows = {&kCheap};
  EXPECT_TRUE(api::make_plan(&problem, nullptr, rows, &plan).ok());
  EXPECT_EQ(plan->options.device, STROBE_DEVICE_CPU);
}

// The real registry. Only the reference computes in float64, and only for that it is chosen.
TEST(Registry, ReferenceServesFloat64) {
  strobe_problem problem = dense_problem();
  problem.dtype = STROBE_F64;
  std::unique_ptr<strobe_plan> plan;
  ASSERT_TRUE(api::make_plan(&problem, nullptr, api::backends(), &plan).ok());
  EXPECT_STREQ(plan->backend->name, "reference");
}

TEST(Registry, NamesAreUniqueAndWhole) {
  std::vector<std::pair<strobe_device_kind, std::string>>
      names;  // one family may serve two devices
  for (const api::Backend* backend : api::backends()) {
    const std::pair<strobe_device_kind, std::string> name = {backend->device, backend->name};
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 0) << backend->name;
    names.push_back(name);
    EXPECT_NE(std::string(backend->note), "");
  }
  EXPECT_GE(names.size(), 2u);
}

TEST(CAbi, PlanPointerMayNotBeNull) {
  const strobe_problem problem = dense_problem();
  strobe_status status;
  EXPECT_EQ(strobe_plan_create(&problem, nullptr, nullptr, &status), STROBE_INVALID_ARGUMENT);
  EXPECT_STREQ(status.argument, "plan");
  strobe_plan_destroy(nullptr);
  EXPECT_EQ(strobe_plan_workspace_bytes(nullptr), 0u);
}

TEST(CAbi, LongMessagesAreCutBetweenCharacters) {
  char buffer[12];
  api::copy_cut("eleven char", buffer, sizeof(buffer));
  EXPECT_STREQ(buffer, "eleven char");
  api::copy_cut("twelve chars", buffer, sizeof(buffer));
  EXPECT_STREQ(buffer, "twelve c...");
  api::copy_cut("seven..\u00e9 and more", buffer, sizeof(buffer));  // bytes 7 and 8 are one letter
  EXPECT_STREQ(buffer, "seven.....");
  api::copy_cut("", buffer, sizeof(buffer));
  EXPECT_STREQ(buffer, "");
}

TEST(CAbi, PlansAreMadeAndRunFromManyThreads) {
  std::vector<std::thread> threads;
  std::vector<int> failures(8);
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([t, &failures] {
      for (int n = 0; n < 20; ++n) {
        strobe_problem problem = dense_problem();
        problem.seqlen_q = 1 + n % 4;
        problem.window_right = t % 2 == 0 ? 0 : -1;
        strobe_plan_options options = defaults();
        options.kernel = "reference";
        strobe_plan* plan = nullptr;
        failures[t] += strobe_plan_create(&problem, &options, &plan, nullptr) != STROBE_OK;
        failures[t] += strobe_plan_explain(plan, STROBE_JSON, nullptr, 0) < 100;
        problem.heads = -t;
        strobe_plan* none = nullptr;
        failures[t] += strobe_plan_create(&problem, &options, &none, nullptr) == STROBE_OK;
        strobe_plan_destroy(plan);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, std::vector<int>(8));
}

}  // namespace
}  // namespace strobe::test
