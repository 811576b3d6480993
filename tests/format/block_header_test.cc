// SPDX-License-Identifier: Apache-2.0
#include "format/block_header.h"

#include <gtest/gtest.h>

#include <cstring>

#include "format/bitmap.h"
#include "format/debug_string.h"
#include "tests/format/sample_blocks.h"

namespace sluice::format {
namespace {

using testing::Block;
using testing::kSeed;

// Vectors of the XXH3-64 reference, so that a change of library or seed order is noticed.
TEST(ChecksumTest, IsXxh3With64BitSeed) {
  EXPECT_EQ(Checksum(0, {}), 0x2d06800538d394c2u);
  EXPECT_NE(Checksum(1, {}), Checksum(0, {}));
}

TEST(ChecksumTest, SkippingTakesTheFieldAsZero) {
  std::array<std::byte, 64> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i + 1);
  std::array<std::byte, 64> zeroed = bytes;
  std::memset(zeroed.data() + 24, 0, 8);
  EXPECT_EQ(ChecksumSkipping(7, bytes, 24), Checksum(7, zeroed));
  EXPECT_NE(ChecksumSkipping(7, bytes, 24), Checksum(7, bytes));
}

TEST(LeTest, LiesLittleEndianOnDisk) {
  const Le64 value = 0x0102030405060708;
  uint8_t bytes[8];
  std::memcpy(bytes, &value, 8);
  EXPECT_EQ(bytes[0], 8);
  EXPECT_EQ(bytes[7], 1);
  const LeS64 negative = -2;
  EXPECT_EQ(static_cast<int64_t>(negative), -2);
}

TEST(BlockHeaderTest, SealedBlockVerifies) {
  Block block{};
  const BlockIdentity identity = {BlockKind::kExtent, 12, 3};
  InitHeader(block, 500, identity);
  SealBlock(kSeed, block);
  EXPECT_EQ(VerifyBlock(kSeed, 500, identity, block), Error::kOk);
}

TEST(BlockHeaderTest, EveryOtherIdentityIsRefused) {
  Block block{};
  InitHeader(block, 500, {BlockKind::kExtent, 12, 3});
  SealBlock(kSeed, block);
  const char* reason = nullptr;
  EXPECT_EQ(VerifyBlock(kSeed, 501, {BlockKind::kExtent, 12, 3}, block, &reason), Error::kCorrupt);
  EXPECT_STREQ(reason, "block carries another block number");
  EXPECT_EQ(VerifyBlock(kSeed, 500, {BlockKind::kDirectory, 12, 3}, block), Error::kCorrupt);
  EXPECT_EQ(VerifyBlock(kSeed, 500, {BlockKind::kExtent, 13, 3}, block), Error::kCorrupt);
  EXPECT_EQ(VerifyBlock(kSeed, 500, {BlockKind::kExtent, 12, 4}, block), Error::kCorrupt);
  EXPECT_EQ(VerifyBlock(kSeed + 1, 500, {BlockKind::kExtent, 12, 3}, block), Error::kCorrupt);
}

TEST(BlockHeaderTest, EveryFlippedByteIsFound) {
  Block block = testing::SampleExtentLeaf(100);
  const BlockIdentity identity = {BlockKind::kExtent, 12, 1};
  ASSERT_EQ(VerifyBlock(kSeed, 100, identity, block), Error::kOk);
  for (size_t i = 0; i < block.size(); ++i) {
    block[i] ^= std::byte{0x10};
    EXPECT_EQ(VerifyBlock(kSeed, 100, identity, block), Error::kCorrupt) << "byte " << i;
    block[i] ^= std::byte{0x10};
  }
}

TEST(BlockHeaderTest, KindsWithoutHeaderPass) {
  const Block block{};
  EXPECT_EQ(VerifyBlock(kSeed, 9, {BlockKind::kInodeTable}, block), Error::kOk);
  EXPECT_EQ(VerifyBlock(kSeed, 9, {BlockKind::kGroupTable}, block), Error::kCorrupt);
}

TEST(BlockHeaderTest, KnownKindsAreThoseWithAName) {
  for (uint32_t kind = 0; kind <= 0xffff; ++kind) {
    const bool named = KindName(static_cast<uint16_t>(kind)).rfind("kind ", 0) != 0;
    EXPECT_EQ(IsKnownKind(static_cast<uint16_t>(kind)), named) << kind;
  }
}

TEST(BitmapTest, RangesAndCountsAgreeWithSingleBits) {
  for (const auto& [first, count] : std::vector<std::pair<uint32_t, uint32_t>>{
           {0, 0}, {0, 1}, {3, 2}, {7, 2}, {5, 100}, {32767, 1}, {0, 32768}, {8, 8}, {32760, 8}}) {
    Block by_range{};
    Block by_bit{};
    SetBits(by_range, first, count);
    for (uint32_t i = 0; i < count; ++i) SetBit(by_bit, first + i);
    EXPECT_EQ(by_range, by_bit) << first << "+" << count;
    EXPECT_EQ(CountSetBits(by_range, kBitsPerBlock), count);
    EXPECT_EQ(CountSetBits(by_range, first), 0u);
    if (count != 0) {
      EXPECT_TRUE(TestBit(by_range, first));
      ClearBit(by_range, first);
      EXPECT_FALSE(TestBit(by_range, first));
    }
  }
}

}  // namespace
}  // namespace sluice::format
