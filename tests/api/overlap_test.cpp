// The overlap test against brute force.
#include "api/overlap.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace strobe::test {
namespace {

using api::Tensor;

// Every byte address of a tensor, elements counted one by one.
std::vector<std::int64_t> addresses(const Tensor& t, std::int64_t base) {
  std::vector<std::int64_t> list;
  for (std::int64_t a = 0; a < t.sizes[0]; ++a) {
    for (std::int64_t b = 0; b < t.sizes[1]; ++b) {
      for (std::int64_t c = 0; c < t.sizes[2]; ++c) {
        for (std::int64_t d = 0; d < t.sizes[3]; ++d) {
          const std::int64_t element = a * t.strides[0] + b * t.strides[1] + c * t.strides[2] + d;
          for (int byte = 0; byte < t.element_bytes; ++byte) {
            list.push_back(base + element * t.element_bytes + byte);
          }
        }
      }
    }
  }
  return list;
}

Tensor tensor(std::array<std::int64_t, 4> sizes, std::array<std::int64_t, 4> strides,
              int element_bytes) {
  return {"t", 0, false, true, element_bytes, element_bytes, sizes, strides};
}

Tensor random_tensor(std::mt19937_64& random) {
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  return tensor({pick(0, 3), pick(1, 3), pick(1, 4), pick(1, 4)},
                {pick(-60, 60), pick(-30, 30), pick(-12, 12), 1}, static_cast<int>(pick(1, 4)));
}

const void* at(std::int64_t address) { return reinterpret_cast<const void*>(address); }

TEST(Overlap, AgreesWithBruteForceOnRandomViews) {
  std::mt19937_64 random(1);
  int shared = 0, apart_although_extents_cross = 0;
  for (int n = 0; n < 20000; ++n) {
    const Tensor a = random_tensor(random), b = random_tensor(random);
    const std::int64_t base_a = 10000;
    const std::int64_t base_b = base_a + std::uniform_int_distribution(-600, 600)(random);
    const std::vector<std::int64_t> bytes_a = addresses(a, base_a), bytes_b = addresses(b, base_b);
    const std::set<std::int64_t> set_a(bytes_a.begin(), bytes_a.end());
    bool meets = false;
    for (const std::int64_t byte : bytes_b) meets = meets || set_a.count(byte) != 0;
    ASSERT_EQ(api::may_share(a, at(base_a), b, at(base_b)), meets) << "view pair " << n;
    shared += meets;
    if (!meets && !bytes_a.empty() && !bytes_b.empty()) {
      const auto [low, high] = std::minmax_element(bytes_b.begin(), bytes_b.end());
      apart_although_extents_cross += *low <= *set_a.rbegin() && *high >= *set_a.begin();
    }
  }
  EXPECT_GT(shared, 1000);
  EXPECT_GT(apart_although_extents_cross, 300);
}

TEST(Overlap, ExtentIsWhatTheElementsCover) {
  std::mt19937_64 random(2);
  for (int n = 0; n < 2000; ++n) {
    const Tensor t = random_tensor(random);
    const std::vector<std::int64_t> bytes = addresses(t, 0);
    const api::Extent extent = api::extent_of(t);
    if (bytes.empty()) {
      EXPECT_EQ(extent.begin, extent.end);
      continue;
    }
    const auto [low, high] = std::minmax_element(bytes.begin(), bytes.end());
    EXPECT_EQ(extent.begin, *low);
    EXPECT_EQ(extent.end, *high + 1);
  }
}

// The stride rule never passes a tensor of which two elements meet.
TEST(Overlap, ElementsApartIsSafe) {
  std::mt19937_64 random(3);
  int passed = 0, refused = 0;
  for (int n = 0; n < 20000; ++n) {
    const Tensor t = random_tensor(random);
    const std::vector<std::int64_t> bytes = addresses(t, 0);
    const bool apart = std::set<std::int64_t>(bytes.begin(), bytes.end()).size() == bytes.size();
    if (api::elements_apart(t)) {
      EXPECT_TRUE(apart);
      ++passed;
    } else {
      ++refused;
    }
  }
  EXPECT_GT(passed, 100);
  EXPECT_GT(refused, 100);
}

TEST(Overlap, ElementsApartTakesEveryPermutationAndPadding) {
  EXPECT_TRUE(api::elements_apart(tensor({2, 3, 4, 8}, {96, 32, 8, 1}, 4)));
  EXPECT_TRUE(api::elements_apart(tensor({2, 3, 4, 8}, {96, 8, 24, 1}, 4)));
  EXPECT_TRUE(api::elements_apart(tensor({2, 3, 4, 8}, {8, 16, 48, 1}, 4)));
  EXPECT_TRUE(api::elements_apart(tensor({2, 3, 4, 8}, {1000, -100, -10, 1}, 4)));
  EXPECT_TRUE(api::elements_apart(tensor({1, 3, 1, 8}, {0, 8, 0, 1}, 4)));
  EXPECT_FALSE(api::elements_apart(tensor({2, 3, 4, 8}, {96, 32, 7, 1}, 4)));
  EXPECT_FALSE(api::elements_apart(tensor({2, 3, 4, 8}, {96, 32, 0, 1}, 4)));
}

// Strides without structure, where a full search would take for ever: quickly, and never "apart"
// wrongly.
TEST(Overlap, HardViewsAreCutShort) {
  const Tensor a = tensor({100000, 99991, 99989, 1}, {1000003, 999983, 999979, 1}, 1);
  const Tensor b = tensor({99971, 99961, 99929, 1}, {1000033, 1000037, 1000039, 1}, 1);
  EXPECT_TRUE(api::may_share(a, at(1 << 20), b, at((1 << 20) + 1)));
}

}  // namespace
}  // namespace strobe::test
