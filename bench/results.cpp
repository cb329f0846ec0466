#include "bench/results.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

namespace strobe::bench {
namespace {

// The value of the first line "key : value" of /proc/cpuinfo.
std::string cpuinfo(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

double rounded(double value, int digits) {
  const double factor = std::pow(10, digits);
  return std::round(value * factor) / factor;
}

// The place in `lines` of the result of the same case and metric.
std::size_t find_line(const std::vector<std::string>& lines, const ResultLine& result) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto line = nlohmann::json::parse(lines[i], nullptr, /*allow_exceptions=*/false);
    if (line.is_object() && line.value("case", nlohmann::json()) == result.bench_case &&
        line.value("metric", nlohmann::json()) == result.metric) {
      return i;
    }
  }
  return lines.size();
}

}  // namespace

std::string ResultLine::json() const {
  nlohmann::ordered_json line = {
      {"suite", suite}, {"case", bench_case}, {"metric", metric}, {"value", rounded(value, 2)}};
  if (!peer.empty()) line["ratio"] = {{peer, rounded(ratio, 3)}};
  line["machine"] = machine;
  if (clock_mhz) line["clock_mhz"] = *clock_mhz;
  line["preset"] = preset;
  line["commit"] = commit;
  line["date"] = date;
  return line.dump();
}

std::optional<std::string> merge_results(const std::string& path,
                                         const std::vector<ResultLine>& results) {
  std::vector<std::string> lines;
  std::ifstream in(path);
  if (!in && std::filesystem::exists(path)) return fmt::format("{}: cannot be read", path);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  in.close();
  for (const ResultLine& result : results) {
    const std::size_t at = find_line(lines, result);
    if (at == lines.size()) lines.emplace_back();
    lines[at] = result.json();
  }
  // Written next to the file and then renamed, so that a full disk leaves the old one.
  const std::string temporary = path + ".new";
  std::ofstream out(temporary);
  for (const std::string& line : lines) out << line << '\n';
  out.close();
  std::error_code code;
  if (!out)
    return fmt::format("{}: cannot be written; check its folder and the free space", temporary);
  std::filesystem::rename(temporary, path, code);
  if (code) return fmt::format("{}: {}", path, code.message());
  return std::nullopt;
}

std::string cpu_model() { return cpuinfo("model name"); }

std::optional<int> cpu_clock_mhz() {
  const std::string text = cpuinfo("cpu MHz");
  if (text.empty()) return std::nullopt;
  return static_cast<int>(std::lround(std::strtod(text.c_str(), nullptr)));
}

std::string git_commit() {
  const auto close = [](std::FILE* pipe) { pclose(pipe); };
  const std::unique_ptr<std::FILE, decltype(close)> pipe(
      popen("git describe --always --exclude '*' --dirty=+ 2>/dev/null", "r"), close);
  char text[64] = "";
  if (!pipe || !std::fgets(text, sizeof(text), pipe.get())) return "";
  const std::string commit = text;
  return commit.substr(0, commit.find('\n'));
}

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))); }

}  // namespace strobe::bench
