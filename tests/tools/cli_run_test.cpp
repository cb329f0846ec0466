// strobe run, end to end on the reference kernel.
#include <cmath>

#include "cli.h"
#include "io/npy.h"
#include "io/safetensors.h"

namespace strobe::tools {
namespace {

constexpr const char* kRun = "run --kernel reference --q q.npy --k k.npy --v v.npy ";

// Numbers without a pattern that a wrong index could hit by luck.
std::vector<float> numbers(std::size_t count, double phase) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(std::sin(phase + 1.7 * static_cast<double>(i)));
  }
  return values;
}

std::vector<float> read_floats(const std::filesystem::path& path) {
  FileResult<Array> array = read_npy(path);
  EXPECT_TRUE(array) << array.error().message();
  return array ? values_of<float>(*array) : std::vector<float>();
}

class CliRun : public testing::Test {
 protected:
  // q [1, 3, 2, 4], k and v [1, 5, 1, 4].
  void SetUp() override {
    folder_ = test_folder();
    put("q", {1, 3, 2, 4}, q_);
    put("k", {1, 5, 1, 4}, k_);
    put("v", {1, 5, 1, 4}, v_);
  }

  void put(const std::string& name, std::vector<std::int64_t> shape,
           const std::vector<float>& values) {
    ASSERT_FALSE(
        write_npy(folder_ / (name + ".npy"), array_of(Element::f32, std::move(shape), values)));
  }

  CliResult run(const std::string& rest) { return cli(folder_, kRun + rest); }

  // Causal attention, plainly: o [3, 2, 4], lse [2, 3].
  void expected(std::vector<double>* o, std::vector<double>* lse) const {
    o->assign(24, 0);
    lse->assign(6, 0);
    for (int i = 0; i < 3; ++i) {
      for (int h = 0; h < 2; ++h) {
        double l = 0;
        std::vector<double> sum(4, 0);
        for (int j = 0; j <= i + 2; ++j) {
          double s = 0;
          for (int d = 0; d < 4; ++d) s += 0.5 * q_[(i * 2 + h) * 4 + d] * k_[j * 4 + d];
          l += std::exp(s);
          for (int d = 0; d < 4; ++d) sum[d] += std::exp(s) * v_[j * 4 + d];
        }
        (*lse)[h * 3 + i] = std::log(l);
        for (int d = 0; d < 4; ++d) (*o)[(i * 2 + h) * 4 + d] = sum[d] / l;
      }
    }
  }

  std::filesystem::path folder_;
  std::vector<float> q_ = numbers(24, 0), k_ = numbers(20, 1), v_ = numbers(20, 2);
};

TEST_F(CliRun, ForwardMatchesPlainLoops) {
  const CliResult result = run("--causal --out-o o.npy --out-lse lse.npy");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("o float32 [1, 3, 2, 4] -> o.npy"), std::string::npos) << result.out;
  std::vector<double> o, lse;
  expected(&o, &lse);
  const std::vector<float> got_o = read_floats(folder_ / "o.npy"),
                           got_lse = read_floats(folder_ / "lse.npy");
  ASSERT_EQ(got_o.size(), o.size());
  ASSERT_EQ(got_lse.size(), lse.size());
  for (std::size_t i = 0; i < o.size(); ++i) EXPECT_NEAR(got_o[i], o[i], 1e-6) << i;
  for (std::size_t i = 0; i < lse.size(); ++i) EXPECT_NEAR(got_lse[i], lse[i], 1e-6) << i;
}

TEST_F(CliRun, SafetensorsGiveTheSameBits) {
  ASSERT_EQ(run("--causal --out-o o.npy").code, 0);
  ASSERT_FALSE(write_safetensors(folder_ / "in.safetensors",
                                 {{"query", array_of(Element::f32, {1, 3, 2, 4}, q_)},
                                  {"k", array_of(Element::f32, {1, 5, 1, 4}, k_)},
                                  {"v", array_of(Element::f32, {1, 5, 1, 4}, v_)}}));
  const CliResult result =
      cli(folder_,
          "run --kernel reference --in in.safetensors --q query --causal --out out.safetensors");
  ASSERT_EQ(result.code, 0) << result.err;
  FileResult<Safetensors> out = Safetensors::read(folder_ / "out.safetensors");
  ASSERT_TRUE(out) << out.error().message();
  FileResult<Array> o = out->array("o");
  ASSERT_TRUE(o) << o.error().message();
  EXPECT_EQ(values_of<float>(*o), read_floats(folder_ / "o.npy"));
  EXPECT_TRUE(out->has("lse"));
  expect_usage_fault(folder_, "run --in in.safetensors --out o.safetensors",
                     "query");  // there is no q
}

TEST_F(CliRun, VarlenEqualsALoop) {
  // Two sequences packed: rows 0 to 1 and 2 to 4 of five.
  put("q", {5, 1, 4}, k_);
  put("k", {5, 1, 4}, k_);
  put("v", {5, 1, 4}, v_);
  ASSERT_FALSE(write_npy(folder_ / "cu.npy", array_of<std::int64_t>(Element::i64, {3}, {0, 2, 5})));
  CliResult result = run("--causal --cu-seqlens-q cu.npy --cu-seqlens-k cu.npy --out-o packed.npy");
  ASSERT_EQ(result.code, 0) << result.err;
  std::vector<float> loop;
  for (const auto& [begin, end] : {std::pair(0, 2), std::pair(2, 5)}) {
    const auto rows = [b = begin, e = end](const std::vector<float>& all) {
      return std::vector<float>(all.begin() + 4 * b, all.begin() + 4 * e);
    };
    put("q", {1, end - begin, 1, 4}, rows(k_));
    put("k", {1, end - begin, 1, 4}, rows(k_));
    put("v", {1, end - begin, 1, 4}, rows(v_));
    result = run("--causal --out-o one.npy");
    ASSERT_EQ(result.code, 0) << result.err;
    const std::vector<float> one = read_floats(folder_ / "one.npy");
    loop.insert(loop.end(), one.begin(), one.end());
  }
  EXPECT_EQ(read_floats(folder_ / "packed.npy"), loop);
}

TEST_F(CliRun, BackwardOfOneKey) {
  // With one key P is 1: dV is the sum of dO over queries and heads, dQ and dK are 0.
  put("k", {1, 1, 1, 4}, {1, 2, 3, 4});
  put("v", {1, 1, 1, 4}, {4, 3, 2, 1});
  put("dout", {1, 3, 2, 4}, q_);
  const CliResult result =
      run("--backward --dout dout.npy --out-dq dq.npy --out-dk dk.npy --out-dv dv.npy");
  ASSERT_EQ(result.code, 0) << result.err;
  const std::vector<float> dv = read_floats(folder_ / "dv.npy");
  ASSERT_EQ(dv.size(), 4u);
  for (std::size_t d = 0; d < 4; ++d) {
    double sum = 0;
    for (std::size_t row = 0; row < 6; ++row) sum += q_[row * 4 + d];
    EXPECT_NEAR(dv[d], sum, 1e-6);
  }
  for (const float x : read_floats(folder_ / "dq.npy")) EXPECT_NEAR(x, 0, 1e-6);
  for (const float x : read_floats(folder_ / "dk.npy")) EXPECT_NEAR(x, 0, 1e-6);
}

TEST_F(CliRun, BackwardOfAGivenForward) {
  put("dout", {1, 3, 2, 4}, numbers(24, 3));
  ASSERT_EQ(run("--causal --out-o o.npy --out-lse lse.npy").code, 0);
  ASSERT_EQ(run("--causal --backward --dout dout.npy --out-dk a.npy").code, 0);
  const CliResult result =
      run("--causal --backward --dout dout.npy --o o.npy --lse lse.npy --out-dk b.npy");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(read_floats(folder_ / "a.npy"), read_floats(folder_ / "b.npy"));
}

TEST_F(CliRun, BiasAndMaskActOnScores) {
  // A bias of -inf and a false mask hide the same keys.
  std::vector<float> bias(5, 0);
  std::vector<std::uint8_t> mask(5, 1);
  bias[1] = -INFINITY;
  mask[1] = 0;
  put("bias", {5}, bias);
  ASSERT_FALSE(write_npy(folder_ / "mask.npy", array_of(Element::boolean, {1, 1, 1, 5}, mask)));
  ASSERT_EQ(run("--bias bias.npy --out-o a.npy").code, 0);
  ASSERT_EQ(run("--mask mask.npy --out-o b.npy").code, 0);
  ASSERT_EQ(run("--out-o c.npy").code, 0);
  EXPECT_EQ(read_floats(folder_ / "a.npy"), read_floats(folder_ / "b.npy"));
  EXPECT_NE(read_floats(folder_ / "a.npy"), read_floats(folder_ / "c.npy"));
}

TEST_F(CliRun, FaultsNameTheOption) {
  put("dout", {1, 3, 2, 3}, numbers(18, 0));
  put("flat", {20}, k_);
  ASSERT_FALSE(write_npy(folder_ / "ints.npy", array_of<std::int32_t>(Element::i32, {2}, {-1, 3})));
  ASSERT_FALSE(write_npy(folder_ / "cu.npy", array_of<std::int32_t>(Element::i32, {2}, {0, 3})));
  write_text(folder_ / "bad.npy", "nonsense");
  const std::string qkv = kRun;
  expect_usage_fault(folder_, "run --q q.npy --v v.npy --out-o o.npy", "--k");
  expect_usage_fault(folder_, "run --q q.npy --k missing.npy --v v.npy --out-o o.npy",
                     "--k: missing.npy");
  expect_usage_fault(folder_, "run --q q.npy --k bad.npy --v v.npy --out-o o.npy", "--k: bad.npy");
  expect_usage_fault(folder_, "run --q q.npy --k flat.npy --v v.npy --out-o o.npy", "--k");
  expect_usage_fault(folder_, "run --q ints.npy --k k.npy --v v.npy --out-o o.npy", "--q");
  expect_usage_fault(folder_, qkv, "--out");
  expect_usage_fault(folder_, qkv + "--backward --out-dq dq.npy", "--dout");
  expect_usage_fault(folder_, qkv + "--backward --dout dout.npy --out-dq dq.npy", "--dout");
  expect_usage_fault(folder_, qkv + "--out-dq dq.npy", "--out-dq");
  expect_usage_fault(folder_, qkv + "--sinks flat.npy --out-o o.npy", "--sinks");
  expect_usage_fault(folder_, qkv + "--seqlens-k ints.npy --out-o o.npy", "--seqlens-k");
  expect_usage_fault(folder_, qkv + "--cu-seqlens-q cu.npy --out-o o.npy", "--cu-seqlens-k");
  expect_usage_fault(folder_, qkv + "--dropout 1.5 --out-o o.npy", "dropout_p");
  expect_usage_fault(folder_, qkv + "--window -5,0 --out-o o.npy", "window_left");
  expect_usage_fault(folder_, qkv + "--in bad.npy --out-o o.npy", "--in");
}

TEST_F(CliRun, UnwritableOutput) {
  const CliResult result = run("--out-o missing/o.npy");
  EXPECT_EQ(result.code, 3);
  EXPECT_NE(result.err.find("--out-o: missing/o.npy"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace strobe::tools
