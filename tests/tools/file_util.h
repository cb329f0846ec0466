// Files of the tests of tools/.
#ifndef STROBE_TESTS_TOOLS_FILE_UTIL_H_
#define STROBE_TESTS_TOOLS_FILE_UTIL_H_

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "io/array.h"

namespace strobe::tools {

// A folder of its own for the running test, empty.
inline std::filesystem::path test_folder() {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  const auto folder = std::filesystem::path(testing::TempDir()) /
                      (std::string("strobe_") + info->test_suite_name() + "_" + info->name());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

template <class T>
Array array_of(Element element, std::vector<std::int64_t> shape, const std::vector<T>& values) {
  Array array = make_array(element, std::move(shape));
  EXPECT_EQ(array.data.size(), values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(array.data.data(), values.data(), array.data.size());
  return array;
}

template <class T>
std::vector<T> values_of(const Array& array) {
  return std::vector<T>(array.as<T>(), array.as<T>() + array.data.size() / sizeof(T));
}

}  // namespace strobe::tools

#endif  // STROBE_TESTS_TOOLS_FILE_UTIL_H_
