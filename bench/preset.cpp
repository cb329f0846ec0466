#include "bench/preset.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace strobe::bench {
namespace {

using nlohmann::json;

const std::map<std::string, DType> kDTypes = {
    {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}};
const std::map<std::string, DataKind> kData = {
    {"normal", DataKind::normal}, {"real", DataKind::real}, {"growing", DataKind::growing}};

// Every combination of the items of a case's lists.
std::vector<json> expand(const json& entry) {
  std::vector<json> cases = {json::object()};
  for (const auto& [key, value] : entry.items()) {
    const bool is_axis = value.is_array() && key != "lengths";
    const json items = is_axis ? value : json::array({value});
    std::vector<json> longer;
    for (const json& one : cases) {
      for (const json& item : items) {
        longer.push_back(one);
        longer.back()[key] = item;
      }
    }
    cases = std::move(longer);
  }
  return cases;
}

// Throws json's own exceptions and std::out_of_range on unknown words, for parse_preset to catch.
BenchCase parse_case(const json& entry, Op op) {
  static const char* const kKeys[] = {"head_dim", "seqlen",   "mask",   "dtype", "batch",
                                      "heads",    "kv_heads", "window", "alibi", "softcap",
                                      "lengths",  "data",     "threads"};
  for (const auto& [key, value] : entry.items()) {
    if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys)) {
      throw std::out_of_range(fmt::format("unknown key '{}'", key));
    }
  }
  BenchCase c;
  Problem& problem = c.problem;
  problem.op = op;
  problem.head_dim = entry.at("head_dim").get<std::int64_t>();
  problem.seqlen_q = problem.seqlen_k = entry.at("seqlen").get<std::int64_t>();
  problem.dtype = kDTypes.at(entry.value("dtype", "f32"));
  problem.batch = entry.value("batch", 1);
  problem.heads = entry.value("heads", 1);
  problem.kv_heads = entry.value("kv_heads", problem.heads);
  const std::string mask = entry.at("mask").get<std::string>();
  if (mask != "full" && mask != "causal")
    throw std::out_of_range("mask is neither full nor causal");
  if (mask == "causal") problem.mask = Band::causal();
  problem.mask.left = entry.value("window", -1);
  problem.softcap = entry.value("softcap", 0.0);
  if (entry.value("alibi", false)) problem.alibi = Alibi::per_head;
  c.data = kData.at(entry.value("data", "normal"));
  c.threads = entry.value("threads", 1);
  if (entry.contains("lengths")) {
    c.lengths = entry["lengths"].get<std::vector<std::int32_t>>();
    problem.lengths = Lengths::varlen;
    problem.batch = static_cast<std::int64_t>(c.lengths.size());
    for (const std::int32_t length : c.lengths) problem.total_q += length;
    problem.total_k = problem.total_q;
  }
  return c;
}

// (query, key) pairs that the band leaves visible in one square sequence.
double visible_pairs(std::int64_t length, const Band& band) {
  double pairs = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int64_t first = band.left < 0 ? 0 : std::max<std::int64_t>(0, i - band.left);
    const std::int64_t last = band.right < 0 ? length - 1 : std::min(length - 1, i + band.right);
    pairs += static_cast<double>(last - first + 1);
  }
  return pairs;
}

}  // namespace

std::string BenchCase::name() const {
  const Problem& p = problem;
  std::string name =
      fmt::format("d{}-s{}-{}", p.head_dim, p.seqlen_q, p.mask.right == 0 ? "causal" : "full");
  if (p.dtype == DType::bf16) name += "-bf16";
  if (p.dtype == DType::f16) name += "-f16";
  if (p.kv_heads.value_or(p.heads) != p.heads) name += fmt::format("-h{}k{}", p.heads, *p.kv_heads);
  if (!lengths.empty()) name += "-varlen";
  if (p.mask.left >= 0) name += fmt::format("-window{}", p.mask.left);
  if (p.softcap > 0) name += "-softcap";
  if (p.alibi != Alibi::none) name += "-alibi";
  if (data == DataKind::real) name += "-real";
  if (data == DataKind::growing) name += "-growing";
  if (threads > 1) name += fmt::format("-t{}", threads);
  return name;
}

double BenchCase::flops() const {
  double pairs = 0;
  if (lengths.empty()) {
    pairs = static_cast<double>(problem.batch) * visible_pairs(problem.seqlen_q, problem.mask);
  }
  for (const std::int32_t length : lengths) pairs += visible_pairs(length, problem.mask);
  const double per_pair = problem.op == Op::backward ? 10 : 4;
  return per_pair * static_cast<double>(problem.head_dim * problem.heads) * pairs;
}

std::variant<Preset, std::string> parse_preset(const std::string& json_text) {
  try {
    const json document = json::parse(json_text);
    Preset preset;
    preset.suite = document.at("suite").get<std::string>();
    preset.about = document.value("about", "");
    const std::string op = document.value("op", "forward");
    if (op != "forward" && op != "backward")
      return std::string("op is neither forward nor backward");
    for (const json& entry : document.at("cases")) {
      for (const json& one : expand(entry)) {
        preset.cases.push_back(parse_case(one, op == "backward" ? Op::backward : Op::forward));
      }
    }
    return preset;
  } catch (const std::exception& error) {  // json's, and those of parse_case
    return std::string(error.what());
  }
}

}  // namespace strobe::bench
