// SPDX-License-Identifier: Apache-2.0
#include "alloc/word_bitmap.h"

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace sluice {
namespace {

constexpr uint32_t kBits = WordBitmap::kBits;

uint32_t Next(const std::vector<bool>& model, bool value, uint32_t from, uint32_t end) {
  while (from < end && model[from] != value) ++from;
  return from;
}

TEST(WordBitmap, AgreesWithASimpleModel) {
  std::mt19937 random(1);
  WordBitmap bitmap;
  std::vector<bool> model(kBits, false);
  for (int round = 0; round < 2000; ++round) {
    const uint32_t first = random() % kBits;
    const uint32_t count = std::min<uint32_t>(kBits - first, 1 + random() % 300);
    const bool set = random() % 2 == 0;
    if (set) {
      bitmap.Set(first, count);
    } else {
      bitmap.Clear(first, count);
    }
    std::fill_n(model.begin() + first, count, set);
    const uint32_t from = random() % kBits;
    const uint32_t end = from + random() % (kBits - from + 1);
    ASSERT_EQ(bitmap.NextClear(from, end), Next(model, false, from, end));
    ASSERT_EQ(bitmap.NextSet(from, end), Next(model, true, from, end));
    const uint32_t clear = bitmap.NextClear(from, kBits);
    if (clear < kBits) {
      uint32_t start = clear;
      while (start > 0 && !model[start - 1]) --start;
      ASSERT_EQ(bitmap.ClearRunStart(clear), start);
    }
    ASSERT_EQ(bitmap.CountClear(end),
              static_cast<uint32_t>(std::count(model.begin(), model.begin() + end, false)));
  }
}

TEST(WordBitmap, FindsTheLongestRun) {
  WordBitmap bitmap;
  bitmap.Set(0, kBits);
  EXPECT_EQ(bitmap.LongestClear(kBits), 0u);
  bitmap.Clear(60, 10);
  bitmap.Clear(kBits - 20, 20);
  EXPECT_EQ(bitmap.LongestClear(kBits), 20u);
  EXPECT_EQ(bitmap.LongestClear(kBits - 15), 10u);
}

TEST(WordBitmap, HasTheBitOrderOfTheDisk) {
  std::array<std::byte, kBlockSize> block = {};
  format::SetBit(format::BlockSpan(block), 13);
  format::SetBit(format::BlockSpan(block), 64);
  WordBitmap bitmap;
  bitmap.CopyFrom(format::ConstBlockSpan(block));
  EXPECT_EQ(bitmap.NextSet(0, kBits), 13u);
  EXPECT_EQ(bitmap.NextSet(14, kBits), 64u);
  EXPECT_EQ(bitmap.CountClear(kBits), kBits - 2);
}

TEST(BitmapBytes, RangesAreExact) {
  std::array<std::byte, kBlockSize> block = {};
  const format::BlockSpan bytes(block);
  format::SetBits(bytes, 5, 100);
  EXPECT_TRUE(AllBitsSet(bytes, 5, 100));
  EXPECT_FALSE(AllBitsSet(bytes, 4, 101));
  EXPECT_FALSE(AllBitsSet(bytes, 5, 101));
  ClearBits(bytes, 17, 30);
  EXPECT_TRUE(AllBitsSet(bytes, 5, 12));
  EXPECT_TRUE(AllBitsSet(bytes, 47, 58));
  EXPECT_EQ(format::CountSetBits(bytes, kBits), 70u);
}

}  // namespace
}  // namespace sluice
