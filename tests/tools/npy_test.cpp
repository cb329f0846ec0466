#include "io/npy.h"

#include <gtest/gtest.h>

#include "file_util.h"

namespace strobe::tools {
namespace {

// A file of the given version with this header and data.
std::string npy(const std::string& header, const std::string& data, int version = 1) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
    file += static_cast<char>(header.size() >> (8 * i));
  return file + header + data;
}

std::string floats(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

// The error of reading `file`, "" where there is none.
std::string fault(const std::string& file) {
  FileResult<Array> result = parse_npy(bytes_of(file), "x.npy");
  return result ? "" : result.error().message();
}

constexpr const char* kHeader = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
const std::string kData = floats({0, 1, 2, 3, 4, 5});

TEST(Npy, RoundTripsEveryElement) {
  const auto folder = test_folder();
  int written = 0;
  for (const ElementInfo& row : element_table()) {
    Array array = make_array(row.element, {2, 1, 3});
    for (std::size_t i = 0; i < array.data.size(); ++i) array.data[i] = static_cast<std::byte>(i);
    const std::string path = folder / row.name;
    if (!row.npy) {
      EXPECT_TRUE(write_npy(path, array).has_value()) << row.name;
      continue;
    }
    ASSERT_FALSE(write_npy(path, array).has_value()) << row.name;
    EXPECT_EQ(std::filesystem::file_size(path) % 64, array.data.size() % 64);
    FileResult<Array> back = read_npy(path);
    ASSERT_TRUE(back) << back.error().message();
    EXPECT_EQ(back->element, row.element);
    EXPECT_EQ(back->shape, array.shape);
    EXPECT_EQ(back->data, array.data);
    ++written;
  }
  EXPECT_EQ(written, 8);
}

TEST(Npy, RoundTripsEveryRank) {
  const auto folder = test_folder();
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{}, {1}, {5}, {0}, {2, 0, 3}, {1, 2, 3, 4, 1}}) {
    const Array array = make_array(Element::f32, shape);
    ASSERT_FALSE(write_npy(folder / "a", array).has_value());
    FileResult<Array> back = read_npy(folder / "a");
    ASSERT_TRUE(back) << back.error().message();
    EXPECT_EQ(back->shape, shape);
  }
}

TEST(Npy, ReadsEveryVersionAndKeyOrder) {
  for (int version = 1; version <= 3; ++version) EXPECT_EQ(fault(npy(kHeader, kData, version)), "");
  EXPECT_EQ(fault(npy("{ \"shape\":(2,3,) ,'fortran_order':False,'descr':\"<f4\"}", kData)), "");
}

TEST(Npy, TransposesFortranOrder) {
  const std::string file = npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n",
                               floats({0, 10, 1, 11, 2, 12}));
  FileResult<Array> array = parse_npy(bytes_of(file), "x.npy");
  ASSERT_TRUE(array) << array.error().message();
  EXPECT_EQ(values_of<float>(*array), (std::vector<float>{0, 1, 2, 10, 11, 12}));
}

TEST(Npy, RefusesEveryTruncation) {
  const std::string file = npy(kHeader, kData);
  for (std::size_t size = 0; size < file.size(); ++size)
    EXPECT_NE(fault(file.substr(0, size)), "") << size;
  EXPECT_EQ(fault(file), "");
  EXPECT_NE(fault(file + "x"), "");
}

struct Refusal {
  const char* header;
  const char* says;
};

TEST(Npy, RefusesBadHeaders) {
  const Refusal refusals[] = {
      {"", "not a dictionary"},
      {"{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3)}", "big-endian"},
      {"{'descr': '<c8', 'fortran_order': False, 'shape': (2, 3)}", "not supported"},
      {"{'descr': '|O', 'fortran_order': False, 'shape': (2, 3)}", "not supported"},
      {"{'descr': '|f4', 'fortran_order': False, 'shape': (2, 3)}", "not supported"},
      {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3)}", "structured"},
      {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3)}", "neither True nor False"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': [2, 3]}", "not a tuple"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (6)}", "','"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}", "','"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -3)}", "negative"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, x)}", "not a number"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 1)}", "64 bits"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 3)}",
       "overflows"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4)}", "needs 32 bytes"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}", "needs 16 bytes"},
      {"{'descr': '<f4', 'fortran_order': False}", "lacks"},
      {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", "twice"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'x': 1}", "unknown key"},
      {"{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3)}", "','"},
      {"{'descr': '<f4", "does not end"},
      {"{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (2, 3)}", "escape"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} + 1", "goes on"},
  };
  for (const Refusal& refusal : refusals) {
    EXPECT_NE(fault(npy(refusal.header, kData)).find(refusal.says), std::string::npos)
        << refusal.header << "\n"
        << fault(npy(refusal.header, kData));
  }
  std::string deep = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
  for (int i = 0; i < 33; ++i) deep += "1, ";
  EXPECT_NE(fault(npy(deep + ")}", kData)).find("32 dimensions"), std::string::npos);
}

TEST(Npy, RefusesOtherVersionsAndFiles) {
  EXPECT_NE(fault(npy(kHeader, kData, 4)).find("version 4.0"), std::string::npos);
  EXPECT_NE(fault("PK\x03\x04 an .npz file").find("not a .npy"), std::string::npos);
  EXPECT_FALSE(read_npy(test_folder() / "missing.npy"));
  EXPECT_FALSE(read_npy(test_folder()));  // a folder
}

TEST(Npy, ErrorNamesFileOffsetAndRemedy) {
  const std::string text =
      fault(npy("{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3)}", kData));
  EXPECT_NE(text.find("x.npy"), std::string::npos);
  EXPECT_NE(text.find("at byte 10"), std::string::npos);
  EXPECT_NE(text.find("astype"), std::string::npos);
}

}  // namespace
}  // namespace strobe::tools
