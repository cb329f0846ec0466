// The generated tables, and which image a GPU gets.
#include "gpu/rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "test_rows.h"

namespace strobe::gpu {
namespace {

bool starts_with(const Image& image, std::string_view text) {
  return image.bytes() > text.size() && std::memcmp(image.begin, text.data(), text.size()) == 0;
}

TEST(Rows, TestTableIsAsWritten) {
  ASSERT_EQ(test_rows().size(), 3u);
  const Row& row = test_rows()[1];
  EXPECT_STREQ(row.name, "test_saxpy_64k");
  EXPECT_STREQ(row.header, "test_kernels.h");
  EXPECT_STREQ(row.type, "Saxpy<SaxpyConfig{.threads = 256, .shared_bytes = 65536}>");
  EXPECT_EQ(row.arch, 80);
  EXPECT_EQ(find_row("test_saxpy_64k", test_rows()), &row);
  EXPECT_EQ(find_row("test_saxpy_6", test_rows()), nullptr);
  EXPECT_EQ(row_source(row),
            "#include \"isa/kernel.h\"\n#include \"test_kernels.h\"\n"
            "STROBE_KERNEL(test_saxpy_64k, "
            "Saxpy<SaxpyConfig{.threads = 256, .shared_bytes = 65536}>)\n");
  EXPECT_EQ(find_row("test_cluster_size", test_rows())->arch, 90);
}

TEST(Rows, ImagesAreWhatTheySay) {
  for (const Row& row : test_rows()) {
    if (!STROBE_TEST_IMAGES) {
      EXPECT_TRUE(row.images.empty()) << row.name;
      continue;
    }
    ASSERT_EQ(row.images.size(), row.arch == 80 ? 3u : 1u) << row.name;
    for (const Image& image : row.images) {
      EXPECT_EQ(*image.end, 0) << row.name;
      if (STROBE_TEST_COMPRESSED) {
        EXPECT_TRUE(starts_with(image, "\x50\xed\x55\xba")) << row.name << ": no fat binary";
      } else if (image.kind == ImageKind::kCubin) {
        EXPECT_TRUE(starts_with(image, "\177ELF")) << row.name;
      } else {
        const std::string text(reinterpret_cast<const char*>(image.begin), image.bytes());
        EXPECT_NE(text.find(".target sm_80"), std::string::npos) << row.name;
        EXPECT_NE(text.find(row.name), std::string::npos) << row.name;
      }
    }
  }
  EXPECT_EQ(toolkit_version() != 0, static_cast<bool>(STROBE_TEST_IMAGES));
}

TEST(Rows, LibraryRowsAreSound) {
  std::set<std::string> names, seen;
  for (const Row& row : rows()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    const bool first = seen.insert(row.header).second;
    const bool compiled = STROBE_TEST_IMAGES && (first || !STROBE_TEST_SAMPLE);
    EXPECT_EQ(!row.images.empty(), compiled) << row.name;
    bool found = false;
    for (const Header& header : row.headers()) {
      found = found || std::strcmp(header.name, row.header) == 0;
    }
    EXPECT_TRUE(found) << row.name << ": " << row.header << " is not embedded";
  }
}

TEST(Rows, HeadersAreEmbeddedWhole) {
  std::set<std::string> names;
  for (const Header& header : embedded_headers()) {
    names.insert(header.name);
    EXPECT_EQ(std::strlen(header.text), header.bytes) << header.name;
    EXPECT_NE(std::strstr(header.text, "#endif"), nullptr) << header.name;
  }
  EXPECT_EQ(names.count("core/philox.h"), 1u);
  EXPECT_EQ(names.count("isa/kernel.h"), 1u);
}

constexpr Image kGeneral[] = {
    {ImageKind::kCubin, 80}, {ImageKind::kCubin, 90}, {ImageKind::kPtx, 80}};
constexpr Image kSpecific[] = {{ImageKind::kCubin, 90}};

TEST(Rows, GeneralRowsTakeTheirFamilyThenPtx) {
  const Row row{"r", "h", "T", 80, kGeneral};
  for (const int capability : {80, 86, 89}) EXPECT_EQ(choose_image(row, capability), &kGeneral[0]);
  EXPECT_EQ(choose_image(row, 90), &kGeneral[1]);
  for (const int capability : {100, 103, 120})
    EXPECT_EQ(choose_image(row, capability), &kGeneral[2]);
  EXPECT_EQ(choose_image(row, 75), nullptr);
  EXPECT_FALSE(row_fits(row, 75));
  EXPECT_TRUE(row_fits(row, 120));
}

TEST(Rows, SpecificRowsTakeTheirOwnArchitectureAlone) {
  const Row row{"r", "h", "T", 90, kSpecific};
  EXPECT_EQ(choose_image(row, 90), &kSpecific[0]);
  EXPECT_EQ(choose_image(row, 100), nullptr);
  EXPECT_TRUE(row_fits(row, 90));
  EXPECT_FALSE(row_fits(row, 80));
  EXPECT_FALSE(row_fits(row, 100));
  const Row blackwell{"r", "h", "T", 100, {}};
  EXPECT_TRUE(row_fits(blackwell, 100));
  EXPECT_TRUE(row_fits(blackwell, 103));  // compiled there from source
  EXPECT_FALSE(row_fits(blackwell, 120));
}

}  // namespace
}  // namespace strobe::gpu
