// SPDX-License-Identifier: Apache-2.0
//
// Random damage, the same in every run: bytes are changed in valid structures, often with the
// checksum made right again so that the structural checks are what is tested. Whatever comes out,
// no check may read out of bounds (sanitizer builds see that), and what a check accepts must hold
// the properties the rest of the code relies on.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "format/debug_string.h"
#include "format/geometry.h"
#include "tests/format/sample_blocks.h"

namespace sluice::format {
namespace {

using testing::Block;
using testing::kHashSeed;
using testing::kSeed;

constexpr int kRounds = 20000;

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  bool Coin() { return Below(2) == 0; }
  uint32_t Below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }

  // Changes a few places: a flipped bit, a random byte, or an extreme 2-, 4- or 8-byte value.
  void Damage(std::byte* bytes, size_t size) {
    for (uint32_t n = 1 + Below(4); n > 0; --n) {
      const size_t at = Below(static_cast<uint32_t>(size));
      switch (Below(3)) {
        case 0:
          bytes[at] ^= std::byte(1u << Below(8));
          break;
        case 1:
          bytes[at] = std::byte(Below(256));
          break;
        default: {
          const size_t width = size_t{1} << Below(4);
          std::memset(bytes + at / width * width, Coin() ? 0xff : 0, std::min(width, size - at));
        }
      }
    }
  }

 private:
  std::mt19937 random_;
};

uint64_t ResealedChecksum(Inode inode) {
  SealInode(kSeed, 12, &inode);
  return inode.checksum;
}

TEST(MutationTest, Superblock) {
  Mutator mutator(1);
  int accepted = 0;
  for (int round = 0; round < kRounds; ++round) {
    Superblock super = testing::SampleSuperblock(100000);
    // Behind magic and checksum; SerializeSuperblock makes those right.
    mutator.Damage(reinterpret_cast<std::byte*>(&super.fixed) + 16, sizeof(super.fixed) - 16);
    Block block;
    SerializeSuperblock(super, super.fixed.backup_group, block);
    if (mutator.Coin()) mutator.Damage(block.data(), 2 * sizeof(SuperSector0));
    Superblock parsed;
    const Error error = ParseSuperblock(block, &parsed, nullptr);
    ASSERT_FALSE((DebugString(parsed.fixed) + DebugString(parsed.state)).empty());
    if (error != Error::kOk) continue;
    const Result<Geometry> geometry = Geometry::Make(parsed);
    if (!geometry.ok()) continue;
    ++accepted;
    const GroupNumber last = geometry->group_count() - 1;
    ASSERT_LE(geometry->InodeTable(last) + geometry->inode_table_blocks(), 100000u);
    ASSERT_LT(geometry->InodeBlock(geometry->inode_count()), 100000u);
  }
  EXPECT_GT(accepted, 100) << "the damage must leave something to accept";
  EXPECT_LT(accepted, kRounds);
}

TEST(MutationTest, Inode) {
  Mutator mutator(2);
  int accepted = 0;
  for (int round = 0; round < kRounds; ++round) {
    Inode inode = testing::SampleInode(12);
    mutator.Damage(reinterpret_cast<std::byte*>(&inode) + 8, sizeof(inode) - 8);
    const Error unsealed = CheckInode(kSeed, 12, 100000, inode, nullptr);
    const bool same = inode.checksum == ResealedChecksum(inode);
    ASSERT_EQ(unsealed == Error::kOk, same);
    SealInode(kSeed, 12, &inode);
    ASSERT_FALSE(DebugString(inode).empty());
    if (CheckInode(kSeed, 12, 100000, inode, nullptr) == Error::kOk) ++accepted;
  }
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, kRounds);
}

TEST(MutationTest, ExtentNode) {
  Mutator mutator(3);
  int accepted = 0;
  for (int round = 0; round < kRounds; ++round) {
    Block block = testing::SampleExtentLeaf(mutator.Below(kExtentsPerBlock + 1));
    std::byte* node = block.data() + kExtentNodeOffset;
    mutator.Damage(node, mutator.Coin() ? sizeof(ExtentHeader) : kBlockSize - kExtentNodeOffset);
    if (CheckExtentNode(node, kExtentsPerBlock, -1, 0, 6000, 100000, nullptr) != Error::kOk) {
      continue;
    }
    ++accepted;
    const uint32_t entries = ExtentHeaderOf(node)->entries;
    ASSERT_LE(entries, kExtentsPerBlock);
    if (ExtentHeaderOf(node)->depth != 0) continue;
    for (uint32_t i = 0; i < entries; ++i) {
      const Extent& extent = ExtentsOf(node)[i];
      ASSERT_LE(uint64_t{extent.physical} + extent.length, 100000u);
      ASSERT_LE(uint64_t{extent.logical} + extent.length, 6000u);
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, kRounds);
}

TEST(MutationTest, Directory) {
  Mutator mutator(4);
  const Block leaf = testing::SampleDirLeaf(
      {"alpha", "beta", "gamma", "delta", "epsilon", std::string_view("zeta\n", 5)});
  const Block index = testing::SampleDirIndex(kDirIndexCapacity);
  int accepted = 0;
  for (int round = 0; round < kRounds; ++round) {
    Block block = mutator.Coin() ? leaf : index;
    const size_t from = mutator.Coin() ? kDirNodeOffset : kBlockSize - 120;
    const size_t size = from == kDirNodeOffset ? 24 : 120;
    mutator.Damage(block.data() + from, size);
    if (CheckDirBlock(kHashSeed, block, -1, 0, kEndDirKey, 1000, nullptr) == Error::kOk) ++accepted;
  }
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, kRounds);
}

TEST(MutationTest, RandomBytesAreNeverAccepted) {
  Mutator mutator(5);
  for (int round = 0; round < 2000; ++round) {
    Block block;
    for (std::byte& byte : block) byte = std::byte(mutator.Below(256));
    Superblock super;
    EXPECT_NE(ParseSuperblock(block, &super, nullptr), Error::kOk);
    EXPECT_NE(VerifyBlock(kSeed, 5, {BlockKind::kOrphan, 3, 1}, block), Error::kOk);
    EXPECT_NE(CheckExtentNode(block.data(), 252, -1, 0, kMaxFileBlocks, 1u << 30, nullptr),
              Error::kOk);
    EXPECT_NE(CheckDirBlock(kHashSeed, block, -1, 0, kEndDirKey, 1000, nullptr), Error::kOk);
    EXPECT_NE(CheckOrphanBlock(block, 1000, nullptr), Error::kOk);
    EXPECT_NE(CheckInode(kSeed, 12, 1000, *As<Inode>(block.data()), nullptr), Error::kOk);
    EXPECT_NE(CheckJournalSuper(kSeed, *As<JournalSuper>(block.data()), 1024), Error::kOk);
  }
}

TEST(DebugStringTest, NamesWhatItShows) {
  EXPECT_EQ(DebugString(testing::SampleInode(12)).rfind("Inode mode=0100644 flags=0x0", 0), 0u);
  EXPECT_EQ(KindName(5), "extent");
  EXPECT_EQ(KindName(77), "kind 77");
  EXPECT_EQ(PrintableText("a\x01\\b\0c", 6), "a\\x01\\x5cb");
  const uint8_t uuid[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255};
  EXPECT_EQ(UuidText(uuid), "00010203-0405-0607-0809-0a0b0c0d0eff");
  const std::string text = DebugString(testing::SampleSuperblock(100000).fixed);
  EXPECT_NE(text.find("block_count=100000"), std::string::npos) << text;
  EXPECT_NE(text.find("label=sample "), std::string::npos) << text;
}

}  // namespace
}  // namespace sluice::format
