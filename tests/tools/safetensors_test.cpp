#include "io/safetensors.h"

#include <gtest/gtest.h>

#include "file_util.h"

namespace strobe::tools {
namespace {

std::string file_of(const std::string& header, const std::string& data) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i));
  return file + header + data;
}

FileResult<Safetensors> parse(const std::string& file) {
  const auto bytes = bytes_of(file);
  return Safetensors::parse(Bytes(bytes.begin(), bytes.end()), "x.safetensors");
}

std::string fault(const std::string& file) {
  FileResult<Safetensors> result = parse(file);
  return result ? "" : result.error().message();
}

TEST(Safetensors, RoundTripsEveryElement) {
  std::map<std::string, Array> arrays;
  for (const ElementInfo& row : element_table()) {
    Array array = make_array(row.element, {3, 2});
    for (std::size_t i = 0; i < array.data.size(); ++i)
      array.data[i] = static_cast<std::byte>(i + 1);
    arrays[row.name] = std::move(array);
  }
  arrays["scalar"] = make_array(Element::f64, {});
  arrays["empty"] = make_array(Element::f32, {4, 0});
  const std::string path = test_folder() / "a.safetensors";
  ASSERT_FALSE(write_safetensors(path, arrays).has_value());
  FileResult<Safetensors> file = Safetensors::read(path);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(file->names().size(), arrays.size());
  for (const auto& [name, array] : arrays) {
    FileResult<Array> back = file->array(name);
    ASSERT_TRUE(back) << back.error().message();
    EXPECT_EQ(back->element, array.element) << name;
    EXPECT_EQ(back->shape, array.shape) << name;
    EXPECT_EQ(back->data, array.data) << name;
  }
}

TEST(Safetensors, ReadsMetadataAndEmptyFiles) {
  EXPECT_EQ(fault(file_of("{}", "")), "");
  EXPECT_EQ(
      fault(file_of(
          R"({"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}  )",
          "ab")),
      "");
}

TEST(Safetensors, UnsupportedTypeLeavesOthersReadable) {
  FileResult<Safetensors> file = parse(file_of(
      R"({"a":{"dtype":"C64","shape":[1],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}})",
      "123456789"));
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_TRUE(file->array("b"));
  FileResult<Array> a = file->array("a");
  ASSERT_FALSE(a);
  EXPECT_NE(a.error().message().find("C64"), std::string::npos);
}

TEST(Safetensors, MissingTensorNamesThoseThere) {
  FileResult<Safetensors> file =
      parse(file_of(R"({"query":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "a"));
  ASSERT_TRUE(file);
  EXPECT_NE(file->array("q").error().message().find("query"), std::string::npos);
}

TEST(Safetensors, RefusesEveryTruncation) {
  const std::string file =
      file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "12345678");
  for (std::size_t size = 0; size < file.size(); ++size)
    EXPECT_NE(fault(file.substr(0, size)), "") << size;
  EXPECT_EQ(fault(file), "");
  EXPECT_NE(fault(file + "x"), "");
}

TEST(Safetensors, RefusesBadHeaders) {
  const auto entry = [](const char* dtype, const char* shape, const char* offsets) {
    return std::string(R"({"a":{"dtype":)") + dtype + R"(,"shape":)" + shape +
           R"(,"data_offsets":)" + offsets + "}}";
  };
  const std::pair<std::string, const char*> refusals[] = {
      {"", "not a JSON object"},
      {"[]", "not a JSON object"},
      {"{", "not a JSON object"},
      {R"({"a":1})", "lacks"},
      {R"({"a":{"dtype":"F32"}})", "lacks"},
      {entry("5", "[2]", "[0,8]"), "lacks"},
      {entry("\"F32\"", "2", "[0,8]"), "list of sizes"},
      {entry("\"F32\"", "[-2]", "[0,8]"), "list of sizes"},
      {entry("\"F32\"", "[2.0]", "[0,8]"), "list of sizes"},
      {entry("\"F32\"", "[18446744073709551615]", "[0,8]"), "list of sizes"},
      {entry("\"F32\"", "[2]", "[0]"), "two numbers"},
      {entry("\"F32\"", "[2]", "[8,0]"), "do not lie"},
      {entry("\"F32\"", "[2]", "[0,9]"), "do not lie"},
      {entry("\"F32\"", "[2]", "[-8,0]"), "do not lie"},
      {entry("\"F32\"", "[2]", "[0,4]"), "does not take"},
      {entry("\"F32\"", "[4611686018427387904,4]", "[0,8]"), "does not take"},
      {entry("\"F32\"", "[1]", "[0,4]"), "belongs to no tensor"},
      {entry("\"F32\"", "[1]", "[4,8]"), "hole"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
       "overlap"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
       "twice"},
  };
  for (const auto& [header, says] : refusals) {
    const std::string text = fault(file_of(header, "12345678"));
    EXPECT_NE(text.find(says), std::string::npos) << header << "\n" << text;
  }
}

TEST(Safetensors, SurvivesDeepNesting) {
  const std::string deep(200000, '[');
  EXPECT_NE(fault(file_of(deep, "")), "");
  const std::string closed = deep + std::string(200000, ']');
  EXPECT_NE(
      fault(file_of(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[)" + closed + ",0]}}", "")),
      "");
}

}  // namespace
}  // namespace strobe::tools
