// info, explain, trace, check and bench, end to end.
#include "cli.h"

#include <cstddef>

namespace strobe::tools {
namespace {

TEST(Cli, HelpOfEveryCommand) {
  const auto folder = test_folder();
  const CliResult help = cli(folder, "--help");
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.out.find("Exit codes"), std::string::npos);
  for (const char* command : {"info", "run", "check", "emulate", "explain", "trace"}) {
    const CliResult one = cli(folder, std::string(command) + " --help");
    EXPECT_EQ(one.code, 0) << command;
    EXPECT_NE(one.out.find("Example"), std::string::npos) << command;
  }
}

TEST(Cli, WrongUse) {
  const auto folder = test_folder();
  expect_usage_fault(folder, "", "no command");
  expect_usage_fault(folder, "nonsense", "nonsense");
  expect_usage_fault(folder, "explain --nonsense", "--nonsense");
  expect_usage_fault(folder, "explain --head-dim 8", "--seqlen-q");
  expect_usage_fault(folder, "explain --seqlen-q x --head-dim 8", "--seqlen-q");
  expect_usage_fault(folder, "explain --seqlen-q 8 --head-dim 8 --heads 4 --kv-heads 3",
                     "kv_heads");
  expect_usage_fault(folder, "explain --seqlen-q 8 --head-dim 8 --kernel nonsense", "nonsense");
  expect_usage_fault(folder, "explain --seqlen-q 8 --head-dim 8 --dtype f17", "--dtype");
  expect_usage_fault(folder, "explain --seqlen-q 8 --head-dim 8 --window 3", "--window");
  expect_usage_fault(folder, "explain --seqlen-q 8 --head-dim 8 --window 3,0 --causal", "--causal");
}

TEST(Cli, InfoAndVersion) {
  const auto folder = test_folder();
  EXPECT_NE(cli(folder, "info").out.find("reference"), std::string::npos);
  EXPECT_EQ(cli(folder, "info --json").out.front(), '{');
  EXPECT_EQ(cli(folder, "--version").out, "0.1.0\n");
}

TEST(Cli, ExplainNamesTheKernel) {
  const auto folder = test_folder();
  const CliResult text =
      cli(folder, "explain --seqlen-q 128 --head-dim 64 --kernel reference --causal");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("reference"), std::string::npos);
  EXPECT_NE(text.out.find("8256 visible"), std::string::npos) << text.out;  // 128 * 129 / 2
  const CliResult window =
      cli(folder, "explain --seqlen-q 128 --head-dim 64 --kernel reference --window 5,0 --json");
  EXPECT_NE(window.out.find("\"visible_pairs\": 753.0"), std::string::npos) << window.out;
}

// The page shows what the command prints, between the fence after its marker and the next fence.
TEST(Cli, TracePageIsCurrent) {
  const auto folder = test_folder();
  const std::string page = read_text(STROBE_SOURCE_DIR "/docs/trace.md");
  const std::string open = "<!-- output of: strobe trace -->\n```\n";
  const std::size_t begin = page.find(open);
  ASSERT_NE(begin, std::string::npos);
  const std::size_t end = page.find("```\n", begin + open.size());
  const CliResult trace = cli(folder, "trace");
  EXPECT_EQ(trace.code, 0);
  EXPECT_EQ(page.substr(begin + open.size(), end - begin - open.size()), trace.out);
}

TEST(Cli, TraceOfMaskedKeys) {
  const auto folder = test_folder();
  const CliResult masked = cli(folder, "trace --scores -inf,-inf,-inf --block 2");
  EXPECT_NE(masked.out.find("LSE = -inf, equal"), std::string::npos) << masked.out;
  EXPECT_EQ(masked.out.find("nan"), std::string::npos) << masked.out;
  const CliResult first = cli(folder, "trace --scores -inf,-inf,5,5 --values 7,7,1,2");
  EXPECT_NE(first.out.find("O   = 1.5, equal"), std::string::npos) << first.out;
  expect_usage_fault(folder, "trace --scores 1,2 --values 1", "--values");
  expect_usage_fault(folder, "trace --scores inf", "--scores");
  expect_usage_fault(folder, "trace --block 0", "--block");
}

TEST(Cli, CheckPasses) {
  const auto folder = test_folder();
  const CliResult random = cli(folder, "check --seed 7 --count 3 --kernel reference");
  EXPECT_EQ(random.code, 0) << random.out << random.err;
  EXPECT_NE(random.out.find("3 checked, 3 within bound"), std::string::npos) << random.out;
  EXPECT_EQ(random.err, "");  // no progress in a pipe
  for (const char* problem : {"--seqlen-q 9 --head-dim 8 --causal --op backward --kv-heads 2 "
                              "--heads 4 --dlse --sinks --bias f32",
                              "--seqlen-q 12 --head-dim 8 --lengths varlen --seqlens-q 5,0,12 "
                              "--seqlens-k 6,2,1 --seqlen-k 6",
                              "--seqlen-q 12 --head-dim 8 --lengths padded --seqlens-q 5,0,12 "
                              "--dtype bf16 --alibi per-head"}) {
    const CliResult one = cli(folder, std::string("check --kernel reference ") + problem);
    EXPECT_EQ(one.code, 0) << problem << one.out << one.err;
  }
}

TEST(Cli, CheckFailsOnAWrongElement) {
  if (*STROBE_SANITIZE) GTEST_SKIP() << "a sanitizer must be the first library of the process";
  const auto folder = test_folder();
  const std::string arguments =
      "check --seqlen-q 9 --head-dim 8 --causal --kernel reference --seed 3";
  const std::string preload = "LD_PRELOAD='" STROBE_DAMAGE "'";
  const CliResult text = cli(folder, arguments, preload);
  EXPECT_EQ(text.code, 1) << text.out << text.err;
  EXPECT_NE(text.out.find("worst element [0, 0, 0, 0]"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("1 failed"), std::string::npos) << text.out;
  // The command that repeats it is complete.
  const std::size_t again = text.out.find("again: strobe check ");
  ASSERT_NE(again, std::string::npos) << text.out;
  for (const char* option :
       {"--seqlen-q 9", "--head-dim 8", "--causal", "--kernel reference", "--seed 3"}) {
    EXPECT_NE(text.out.find(option, again), std::string::npos) << option << text.out;
  }
  const CliResult json = cli(folder, arguments + " --json", preload);
  EXPECT_EQ(json.code, 1);
  EXPECT_NE(json.out.find("\"failed\": 1"), std::string::npos) << json.out;
}

TEST(Cli, EmulateCountsAndFindsNoHazard) {
  const auto folder = test_folder();
  const std::string problem = "emulate --seqlen-q 33 --head-dim 64 --dtype bf16 --causal";
  if (cli(folder, "info").out.find("fa2 on emulator") == std::string::npos) {
    expect_usage_fault(folder, problem, "device is emulator");
    GTEST_SKIP() << "this build has no emulator";
  }
  const CliResult text = cli(folder, problem);
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("hazards: none"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("tensor core"), std::string::npos) << text.out;
  const CliResult json = cli(folder, problem + " --format json");
  EXPECT_EQ(json.code, 0) << json.err;
  EXPECT_NE(json.out.find("\"mma_flops\""), std::string::npos) << json.out;
  EXPECT_EQ(cli(folder, "check --device emulator --dtype f16 --seqlen-q 9 --head-dim 64").code, 0);
}

TEST(Cli, CheckRefusesToCheckNothing) {
  const auto folder = test_folder();
  expect_usage_fault(folder, "check --count 0", "nothing was checked");
  expect_usage_fault(folder, "check --causal", "--causal");
  expect_usage_fault(folder, "check --kernel nonsense --count 2", "nonsense");
  expect_usage_fault(folder, "check --seqlen-q 9 --head-dim 8 --lengths varlen", "--seqlens-q");
}

#ifdef STROBE_TOOLS_BENCH
TEST(Cli, BenchWritesResults) {
  const auto folder = test_folder();
  write_text(folder / "tiny.json",
             R"({"suite":"tiny","cases":[{"head_dim":8,"seqlen":32,"mask":["full","causal"]}]})");
  write_text(folder / "r.jsonl",
             "{\"suite\":\"tiny\",\"case\":\"other\",\"metric\":\"gflops\",\"value\":1}\n"
             "{\"suite\":\"tiny\",\"case\":\"d8-s32-full\",\"metric\":\"gflops\",\"value\":-7}\n");
  const CliResult bench = cli(
      folder, "bench --preset tiny.json --kernel reference --repeats 1 --csv --results r.jsonl");
  EXPECT_EQ(bench.code, 0) << bench.err;
  EXPECT_NE(bench.out.find("d8-s32-causal,gflops,"), std::string::npos) << bench.out;
  const std::string results = read_text(folder / "r.jsonl");
  EXPECT_NE(results.find("\"other\""), std::string::npos);
  EXPECT_NE(results.find("\"d8-s32-causal\""), std::string::npos);
  EXPECT_NE(results.find("\"ratio\":{\"fma_peak\":"), std::string::npos);
  EXPECT_EQ(results.find("-7"), std::string::npos);
}

TEST(Cli, BenchWrongUse) {
  const auto folder = test_folder();
  EXPECT_NE(cli(folder, "bench --list").out.find("cpu-bwd"), std::string::npos);
  expect_usage_fault(folder, "bench", "--preset");
  expect_usage_fault(folder, "bench --preset nonsense", "nonsense");
  expect_usage_fault(folder, "bench --preset cpu-fwd --filter nonsense", "--filter");
}
#endif

}  // namespace
}  // namespace strobe::tools
