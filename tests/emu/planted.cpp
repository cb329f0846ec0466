#include "planted.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <memory>

namespace strobe::STROBE_TARGET::planted {
namespace {

constexpr u32 kGapWords = 64;  // that belong to no tensor

struct Kernel {
  void (*run)(const Args&);
  Args args;
};

const char* name(emu::Landing landing) {
  return landing == emu::Landing::kImmediate ? "immediate"
         : landing == emu::Landing::kLate    ? "late"
                                             : "random";
}

}  // namespace

Result run(void (*kernel)(const Args&), const Shape& s, std::uint64_t seed, emu::Landing landing) {
  const auto padded = [](u32 words) { return (words + 3) / 4 * 4 + kGapWords; };
  std::vector<u32> words(kGapWords + s.in + padded(s.out) + padded(s.state) + padded(s.sum),
                         0xFFFFFFFFu);
  u32* const in = words.data() + kGapWords;
  u32* const out = in + s.in;
  u32* const state = out + padded(s.out);
  auto* const sum = reinterpret_cast<f32*>(state + padded(s.state));
  for (u32 i = 0; i < s.in; ++i) in[i] = 100 + i;
  std::memset(state, 0, s.state * 4);
  std::memset(sum, 0, s.sum * 4);
  emu::Memory memory;
  memory.add("in", in, s.in * 4, emu::TensorKind::kInput);
  memory.add("out", out, s.out * 4, emu::TensorKind::kOutput);
  memory.add("state", state, s.state * 4, emu::TensorKind::kState);
  memory.add("sum", sum, s.sum * 4, emu::TensorKind::kState);

  Result result;
  const Kernel k = {kernel, {in, out, state, sum}};
  emu::Launch launch = {"test", s.grid, s.threads, s.shared, s.together, nullptr, &k};
  launch.entry = [](const void* params) {
    const auto& it = *static_cast<const Kernel*>(params);
    it.run(it.args);
  };
  launch.seed = seed;
  launch.landing = landing;
  launch.host_threads = s.host_threads;
  launch.go_on = s.go_on;
  emu::run(launch, memory, result.report);
  memory.add_traffic_to(result.report);
  result.out.assign(out, out + s.out);
  result.state.assign(state, state + s.state);
  result.sum.assign(sum, sum + s.sum);
  return result;
}

void expect_report(const emu::Report& report, const Expected& expected, const char* file) {
  ASSERT_FALSE(report.hazards.empty());
  const emu::Hazard& h = report.hazards.front();
  EXPECT_STREQ(emu::name(h.kind), emu::name(expected.kind)) << report.text();
  for (const int mark : expected.lines) {
    const std::string place = fmt::format("{}:{}", file, marks[mark]);
    // Not merely the beginning of another number.
    const std::string text = report.text();
    const auto at = text.find(place);
    ASSERT_NE(at, std::string::npos) << place << " is not in " << text;
    EXPECT_FALSE(std::isdigit(static_cast<unsigned char>(text[at + place.size()]))) << text;
  }
  for (const char* text : expected.texts) {
    EXPECT_NE(report.text().find(text), std::string::npos)
        << text << " is not in " << report.text();
  }
}

void expect_clean(void (*kernel)(const Args&), const Shape& shape) {
  for (const emu::Landing landing : kLandings) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Result r = run(kernel, shape, seed, landing);
      ASSERT_TRUE(r.report.clean()) << "landing " << name(landing) << ", seed " << seed << "\n"
                                    << r.report.text();
    }
  }
}

void expect_caught(void (*broken)(const Args&), void (*correct)(const Args&), const Shape& shape,
                   const Expected& expected) {
  expect_clean(correct, shape);
  for (const emu::Landing landing : kLandings) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(fmt::format("landing {}, seed {}", name(landing), seed));
      const Result r = run(broken, shape, seed, landing);
      expect_report(r.report, expected, "_test.cpp");
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace strobe::STROBE_TARGET::planted
