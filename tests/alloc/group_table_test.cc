// SPDX-License-Identifier: Apache-2.0
#include "alloc/group_table.h"

#include <array>

#include "format/inode.h"
#include "gtest/gtest.h"
#include "tests/alloc/test_image.h"

namespace sluice {
namespace {

constexpr uint64_t kSize = 1024 * TestImage::kMiB;

TEST(GroupTable, SumsWhatTheDescriptorsSay) {
  TestImage image(kSize);
  BlockCount free_blocks = 0;
  uint64_t free_inodes = 0;
  for (GroupNumber group = 0; group < image.geometry.group_count(); ++group) {
    free_blocks += image.groups->Get(group).free_blocks;
    free_inodes += image.groups->Get(group).free_inodes;
  }
  EXPECT_EQ(image.groups->totals().free_blocks, free_blocks);
  EXPECT_EQ(image.groups->totals().free_inodes, free_inodes);
  EXPECT_EQ(image.groups->totals().directories, 1u);
}

TEST(GroupTable, UpdatesReachTheDisk) {
  TestImage image(kSize);
  const SpaceTotals before = image.groups->totals();
  {
    Handle handle = image.Start(1);
    image.groups->Update(handle, 5, [](format::GroupDesc& desc) {
      desc.flags = desc.flags & ~format::kGroupBlockUninit;
      desc.free_blocks = desc.free_blocks - 7;
    });
  }
  EXPECT_EQ(image.groups->totals().free_blocks, before.free_blocks - 7);
  const uint32_t left = image.groups->Get(5).free_blocks;
  image.Reopen();
  EXPECT_EQ(image.groups->Get(5).free_blocks, left);
  EXPECT_EQ(image.groups->totals().free_blocks, before.free_blocks - 7);
}

TEST(GroupTable, RefusesADamagedBlock) {
  TestImage image(kSize);
  image.Close();
  image.Damage(image.geometry.DescriptorBlock(0), 64 + 4);
  BufferCache cache(&image.device, image.super.fixed.checksum_seed, 64);
  EXPECT_EQ(GroupTable::Load(&cache, image.geometry).error(), Error::kCorrupt);
}

TEST(GroupTable, RefusesImpossibleCountsWithARightChecksum) {
  TestImage image(kSize);
  {
    Handle handle = image.Start(1);
    image.groups->Update(handle, 3, [](format::GroupDesc& desc) { desc.free_blocks = 40000; });
  }
  image.Close();
  BufferCache cache(&image.device, image.super.fixed.checksum_seed, 64);
  EXPECT_EQ(GroupTable::Load(&cache, image.geometry).error(), Error::kCorrupt);
}

TEST(GroupTable, SealsEveryInodeOfATableBlock) {
  TestImage image(kSize);
  const GroupNumber group = 2;
  const InodeNumber first = group * image.geometry.inodes_per_group() + 33;
  alignas(kBlockSize) std::array<std::byte, kBlockSize> block = {};
  image.groups->Seal(image.geometry.InodeBlock(first), format::BlockKind::kInodeTable,
                     format::BlockSpan(block));
  for (uint32_t i = 0; i < format::kInodesPerBlock; ++i) {
    EXPECT_EQ(format::CheckInode(
                  image.super.fixed.checksum_seed, first + i, image.geometry.block_count(),
                  *format::As<format::Inode>(block.data() + i * format::kInodeSize), nullptr),
              Error::kOk);
  }
}

}  // namespace
}  // namespace sluice
