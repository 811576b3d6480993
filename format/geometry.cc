// SPDX-License-Identifier: Apache-2.0
#include "format/geometry.h"

#include <algorithm>

#include "base/check.h"
#include "format/bitmap.h"
#include "format/group_desc.h"

namespace sluice::format {

Result<Geometry> Geometry::Make(const Superblock& super) {
  const SuperSector0& fixed = super.fixed;
  Geometry geometry;
  geometry.block_count_ = fixed.block_count;
  geometry.group_count_ = static_cast<GroupNumber>(fixed.group_count);
  geometry.inodes_per_group_ = fixed.inodes_per_group;
  geometry.flex_shift_ = fixed.flex_group_shift;
  geometry.group_table_start_ = fixed.group_table_start;
  geometry.group_table_blocks_ = fixed.group_table_blocks;
  if (!geometry.PackedMetadataFits()) return Error::kCorrupt;
  for (uint32_t i = 0; i < fixed.journal_run_count; ++i) {
    const JournalRun& run = fixed.journal_runs[i];
    if (!geometry.IsDataRange(run.start, run.length)) return Error::kCorrupt;
  }
  return geometry;
}

bool Geometry::PackedMetadataFits() const {
  // All full flexible groups are alike but the first, which has the group table too, and the last,
  // which may have fewer groups or a shorter first group.
  for (const GroupNumber first : {GroupNumber{0}, FlexFirst(group_count_ - 1)}) {
    if (first != 0 && IsBackupGroup(first)) return false;
    const uint64_t base = FlexBase(first) - GroupStart(first);
    const uint64_t size = groups_per_flex();
    const uint64_t tables = uint64_t{FlexGroups(first)} * inode_table_blocks();
    if (base + 2 * size + tables > GroupBlocks(first)) return false;
  }
  return true;
}

uint32_t Geometry::GroupBlocks(GroupNumber group) const {
  SLUICE_DCHECK(group < group_count_);
  return static_cast<uint32_t>(
      std::min<uint64_t>(kBlocksPerGroup, block_count_ - GroupStart(group)));
}

BlockNumber Geometry::DescriptorBlock(GroupNumber group) const {
  return group_table_start_ + group / kGroupDescsPerBlock;
}

uint32_t Geometry::DescriptorIndex(GroupNumber group) const { return group % kGroupDescsPerBlock; }

BlockNumber Geometry::FlexBase(GroupNumber group) const {
  const GroupNumber first = FlexFirst(group);
  return first == 0 ? group_table_start_ + group_table_blocks_ : GroupStart(first);
}

uint32_t Geometry::FlexGroups(GroupNumber group) const {
  return std::min(groups_per_flex(), group_count_ - FlexFirst(group));
}

BlockNumber Geometry::BlockBitmap(GroupNumber group) const {
  return FlexBase(group) + (group - FlexFirst(group));
}

BlockNumber Geometry::InodeBitmap(GroupNumber group) const {
  return FlexBase(group) + groups_per_flex() + (group - FlexFirst(group));
}

BlockNumber Geometry::InodeTable(GroupNumber group) const {
  return FlexBase(group) + 2 * uint64_t{groups_per_flex()} +
         uint64_t{group - FlexFirst(group)} * inode_table_blocks();
}

BlockNumber Geometry::InodeBlock(InodeNumber ino) const {
  SLUICE_DCHECK(ValidInode(ino));
  return InodeTable(GroupOfInode(ino)) + IndexInGroup(ino) / kInodesPerBlock;
}

void Geometry::FixedRanges::Add(BlockNumber start, BlockCount count) {
  SLUICE_CHECK(count_ < ranges_.size());
  ranges_[count_++] = {start, count};
}

uint32_t Geometry::FixedRanges::blocks() const {
  BlockCount sum = 0;
  for (const BlockRange& range : ranges()) sum += range.count;
  return static_cast<uint32_t>(sum);
}

Geometry::FixedRanges Geometry::FixedBlocks(GroupNumber group) const {
  FixedRanges fixed;
  if (group == 0) {
    fixed.Add(0, 1);
    fixed.Add(group_table_start_, group_table_blocks_);
  } else if (IsBackupGroup(group)) {
    fixed.Add(GroupStart(group), 1);
  }
  if (group == FlexFirst(group)) {
    const uint32_t groups = FlexGroups(group);
    fixed.Add(BlockBitmap(group), groups);
    fixed.Add(InodeBitmap(group), groups);
    fixed.Add(InodeTable(group), uint64_t{groups} * inode_table_blocks());
  }
  return fixed;
}

bool Geometry::IsDataRange(BlockNumber block, BlockCount count) const {
  if (count == 0 || block >= block_count_ || count > block_count_ - block) return false;
  const GroupNumber last = GroupOfBlock(block + count - 1);
  for (GroupNumber group = GroupOfBlock(block); group <= last; ++group) {
    const FixedRanges fixed = FixedBlocks(group);
    for (const BlockRange& range : fixed.ranges()) {
      if (block < range.start + range.count && range.start < block + count) return false;
    }
  }
  return true;
}

uint32_t Geometry::MarkFixedBlocks(GroupNumber group, BlockSpan bitmap) const {
  const FixedRanges fixed = FixedBlocks(group);
  for (const BlockRange& range : fixed.ranges()) {
    SetBits(bitmap, static_cast<uint32_t>(range.start - GroupStart(group)),
            static_cast<uint32_t>(range.count));
  }
  const uint32_t blocks = GroupBlocks(group);
  SetBits(bitmap, blocks, kBlocksPerGroup - blocks);
  return fixed.blocks();
}

void Geometry::MarkInodePadding(BlockSpan bitmap) const {
  SetBits(bitmap, inodes_per_group_, kBitsPerBlock - inodes_per_group_);
}

}  // namespace sluice::format
