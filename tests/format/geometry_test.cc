// SPDX-License-Identifier: Apache-2.0
#include "format/geometry.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "format/bitmap.h"
#include "format/group_desc.h"
#include "tests/format/sample_blocks.h"

namespace sluice::format {
namespace {

using testing::Block;
using testing::SampleSuperblock;

Geometry MakeGeometry(uint64_t blocks, uint32_t inodes = 8192, uint32_t flex = 4) {
  Superblock super = SampleSuperblock(blocks, inodes, flex);
  Block block;
  SerializeSuperblock(super, 0, block);
  std::string reason;
  EXPECT_EQ(ParseSuperblock(block, &super, &reason), Error::kOk) << reason;
  Result<Geometry> geometry = Geometry::Make(super);
  EXPECT_TRUE(geometry.ok());
  return *geometry;
}

TEST(GeometryTest, PlacesOfAGibibyteImage) {
  const Geometry geometry = MakeGeometry(262144);  // 8 groups of 8192 inodes: tables of 512 blocks
  EXPECT_EQ(geometry.group_count(), 8u);
  EXPECT_EQ(geometry.DescriptorBlock(7), 1u);
  EXPECT_EQ(geometry.DescriptorIndex(7), 7u);
  EXPECT_EQ(geometry.BlockBitmap(0), 2u);
  EXPECT_EQ(geometry.BlockBitmap(7), 9u);
  EXPECT_EQ(geometry.InodeBitmap(0), 18u);
  EXPECT_EQ(geometry.InodeTable(0), 34u);
  EXPECT_EQ(geometry.InodeTable(7), 34u + 7 * 512);
  EXPECT_EQ(geometry.InodeBlock(1), 34u);
  EXPECT_EQ(geometry.InodeOffset(1), 0u);
  EXPECT_EQ(geometry.InodeBlock(17), 35u);
  EXPECT_EQ(geometry.InodeOffset(18), 256u);
  EXPECT_EQ(geometry.InodeBlock(8193), 34u + 512);
  EXPECT_EQ(geometry.GroupOfInode(8192), 0u);
  EXPECT_EQ(geometry.GroupOfInode(8193), 1u);
  EXPECT_FALSE(geometry.ValidInode(0));
  EXPECT_TRUE(geometry.ValidInode(8 * 8192));
  EXPECT_FALSE(geometry.ValidInode(8 * 8192 + 1));
}

TEST(GeometryTest, SecondFlexibleGroup) {
  const Geometry geometry = MakeGeometry(20 * kBlocksPerGroup + 5000);
  EXPECT_EQ(geometry.group_count(), 21u);
  EXPECT_EQ(geometry.GroupBlocks(20), 5000u);
  EXPECT_EQ(geometry.BlockBitmap(16), 16u * kBlocksPerGroup);
  EXPECT_EQ(geometry.BlockBitmap(20), 16u * kBlocksPerGroup + 4);
  EXPECT_EQ(geometry.InodeBitmap(16), 16u * kBlocksPerGroup + 16);
  EXPECT_EQ(geometry.InodeTable(17), 16u * kBlocksPerGroup + 32 + 512);
  // The places of groups 21..31, which do not exist, are data.
  EXPECT_TRUE(geometry.IsDataRange(16u * kBlocksPerGroup + 5, 11));
  EXPECT_FALSE(geometry.IsDataRange(16u * kBlocksPerGroup + 5, 12));
}

// Every fixed block has exactly one use, and FixedBlocks, MarkFixedBlocks and IsDataRange agree.
void ExpectConsistent(const Geometry& geometry) {
  std::set<BlockNumber> used;
  const auto take = [&](BlockNumber block) {
    EXPECT_TRUE(used.insert(block).second) << "block " << block << " has two uses";
  };
  take(0);
  for (GroupNumber group = 0; group < geometry.group_count(); ++group) {
    if (geometry.DescriptorIndex(group) == 0) take(geometry.DescriptorBlock(group));
    if (IsBackupGroup(group)) take(geometry.GroupStart(group));
    take(geometry.BlockBitmap(group));
    take(geometry.InodeBitmap(group));
    for (uint32_t i = 0; i < geometry.inode_table_blocks(); ++i) {
      take(geometry.InodeTable(group) + i);
    }
  }
  size_t marked = 0;
  for (GroupNumber group = 0; group < geometry.group_count(); ++group) {
    Block bitmap{};
    const uint32_t fixed = geometry.MarkFixedBlocks(group, bitmap);
    EXPECT_EQ(fixed, geometry.FixedBlocks(group).blocks());
    EXPECT_EQ(fixed, CountSetBits(bitmap, geometry.GroupBlocks(group)));
    EXPECT_EQ(CountSetBits(bitmap, kBitsPerBlock),
              fixed + kBlocksPerGroup - geometry.GroupBlocks(group));
    marked += fixed;
    for (uint32_t i = 0; i < geometry.GroupBlocks(group); ++i) {
      const BlockNumber block = geometry.GroupStart(group) + i;
      ASSERT_EQ(TestBit(bitmap, i), used.count(block) == 1) << block;
      ASSERT_EQ(geometry.IsDataRange(block, 1), used.count(block) == 0) << block;
    }
  }
  EXPECT_EQ(marked, used.size());
}

TEST(GeometryTest, EveryFixedBlockHasOneUse) {
  ExpectConsistent(MakeGeometry(kMinImageBlocks, 1024));
  ExpectConsistent(MakeGeometry(kMinImageBlocks, 1024, 0));
  ExpectConsistent(MakeGeometry(3 * kBlocksPerGroup + 1, 16));
  ExpectConsistent(MakeGeometry(18 * kBlocksPerGroup - 1, 32768, 2));
  ExpectConsistent(MakeGeometry(130 * uint64_t{kBlocksPerGroup}, 1024, 3));
}

TEST(GeometryTest, RangesOutsideTheImageAreNoData) {
  const Geometry geometry = MakeGeometry(100000);
  EXPECT_TRUE(geometry.IsDataRange(99999, 1));
  EXPECT_FALSE(geometry.IsDataRange(99999, 2));
  EXPECT_FALSE(geometry.IsDataRange(99999, ~uint64_t{0}));
  EXPECT_FALSE(geometry.IsDataRange(~uint64_t{0}, 1));
  EXPECT_FALSE(geometry.IsDataRange(100000, 1));
  EXPECT_FALSE(geometry.IsDataRange(50000, 0));
  // Across the copy at the start of group 1, and across two groups without one.
  EXPECT_FALSE(geometry.IsDataRange(kBlocksPerGroup - 1, 2));
  EXPECT_TRUE(geometry.IsDataRange(2 * kBlocksPerGroup - 1, 2));
}

TEST(GeometryTest, LayoutsThatDoNotFitAreCorrupt) {
  // 16 tables of 2048 blocks fill a group.
  EXPECT_FALSE(Geometry::Make(SampleSuperblock(16 * kBlocksPerGroup, 32768, 4)).ok());
  EXPECT_TRUE(Geometry::Make(SampleSuperblock(16 * kBlocksPerGroup, 32768, 3)).ok());
  // The last group is the first of its flexible group and too short for its table.
  EXPECT_FALSE(Geometry::Make(SampleSuperblock(16 * kBlocksPerGroup + 500, 8192, 4)).ok());
  EXPECT_TRUE(Geometry::Make(SampleSuperblock(16 * kBlocksPerGroup + 545, 8192, 4)).ok());
  // The group table alone would be longer than a group.
  EXPECT_FALSE(Geometry::Make(SampleSuperblock(kMaxImageBlocks, 16, 4)).ok());
}

TEST(GeometryTest, JournalOnFixedMetadataIsCorrupt) {
  Superblock super = SampleSuperblock(100000);
  super.fixed.journal_runs[0].start = 40;
  EXPECT_FALSE(Geometry::Make(super).ok());
  super.fixed.journal_runs[0].start = kBlocksPerGroup - 10;
  EXPECT_FALSE(Geometry::Make(super).ok());
  super.fixed.journal_runs[0].start = 2 * kBlocksPerGroup - 10;
  EXPECT_TRUE(Geometry::Make(super).ok());
}

TEST(GeometryTest, InodePaddingIsInUse) {
  Block bitmap{};
  MakeGeometry(100000, 1008).MarkInodePadding(bitmap);
  EXPECT_EQ(CountSetBits(bitmap, 1008), 0u);
  EXPECT_EQ(CountSetBits(bitmap, kBitsPerBlock), kBitsPerBlock - 1008);
}

GroupDesc UninitDesc(const Geometry& geometry, GroupNumber group) {
  GroupDesc desc{};
  desc.flags = kGroupBlockUninit | kGroupInodeUninit;
  desc.free_blocks = geometry.GroupBlocks(group) - geometry.FixedBlocks(group).blocks();
  desc.free_inodes = geometry.inodes_per_group();
  return desc;
}

TEST(GroupDescTest, AcceptsWhatTheGroupCanHave) {
  const Geometry geometry = MakeGeometry(100000);
  EXPECT_EQ(CheckGroupDesc(geometry, 1, UninitDesc(geometry, 1), nullptr), Error::kOk);
  GroupDesc desc = UninitDesc(geometry, 1);
  desc.flags = 0;
  desc.free_blocks = 0;
  desc.free_inodes = 8192 - 20;
  desc.directories = 20;
  desc.inode_table_used = 32;
  EXPECT_EQ(CheckGroupDesc(geometry, 1, desc, nullptr), Error::kOk);
}

TEST(GroupDescTest, RefusesImpossibleCounts) {
  const Geometry geometry = MakeGeometry(100000);
  const std::vector<std::pair<const char*, std::function<void(GroupDesc*)>>> changes = {
      {"flags", [](GroupDesc* d) { d->flags = 4; }},
      {"free_blocks", [](GroupDesc* d) { d->free_blocks = 32768; }},
      {"uninit free_blocks", [](GroupDesc* d) { d->free_blocks = 5; }},
      {"uninit checksum", [](GroupDesc* d) { d->block_bitmap_checksum = 5; }},
      {"free_inodes", [](GroupDesc* d) { d->free_inodes = 8193; }},
      {"uninit inodes", [](GroupDesc* d) { d->free_inodes = 8191, d->inode_table_used = 16; }},
      {"uninit inode checksum", [](GroupDesc* d) { d->inode_bitmap_checksum = 1; }},
      {"uninit mark", [](GroupDesc* d) { d->inode_table_used = 16; }},
      {"directories", [](GroupDesc* d) { d->directories = 1; }},
      {"mark beyond", [](GroupDesc* d) { d->flags = 0, d->inode_table_used = 8208; }},
      {"mark odd", [](GroupDesc* d) { d->flags = 0, d->inode_table_used = 17; }},
      {"mark low",
       [](GroupDesc* d) { d->flags = 0, d->free_inodes = 8000, d->inode_table_used = 16; }},
  };
  for (const auto& [name, change] : changes) {
    GroupDesc desc = UninitDesc(geometry, 1);
    change(&desc);
    const char* reason = nullptr;
    EXPECT_EQ(CheckGroupDesc(geometry, 1, desc, &reason), Error::kCorrupt) << name;
    EXPECT_NE(reason, nullptr) << name;
  }
}

}  // namespace
}  // namespace sluice::format
