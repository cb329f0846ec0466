// Known answers of FIPS 180-4, and independence of how the input is cut.
#include "jit/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace strobe::jit {
namespace {

std::string of(const std::string& text, std::size_t piece = 1 << 20) {
  Sha256 hash;
  for (std::size_t i = 0; i < text.size(); i += piece) {
    hash.add(text.data() + i, std::min(piece, text.size() - i));
  }
  return hex(hash.finish());
}

TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(of(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesMakeNoDifference) {
  for (const std::size_t size : {1, 55, 56, 57, 63, 64, 65, 119, 120, 128, 1000}) {
    const std::string text(size, 'x');
    for (const std::size_t piece : {1, 3, 63, 64, 65}) EXPECT_EQ(of(text, piece), of(text)) << size;
  }
}

TEST(Sha256, FieldsDoNotRunTogether) {
  Sha256 a, b;
  a.add_field("ab"), a.add_field("c");
  b.add_field("a"), b.add_field("bc");
  EXPECT_NE(hex(a.finish()), hex(b.finish()));
}

}  // namespace
}  // namespace strobe::jit
