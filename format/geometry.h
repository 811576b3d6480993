// SPDX-License-Identifier: Apache-2.0
//
// Where things lie in an image, computed from the superblock alone. 128 MiB groups; the bitmaps
// and inode tables of a flexible group (up to 16 groups) are packed at the start of its first
// group:
//
//   group 0:  [superblock][group table][bb 0..15][ib 0..15][inode tables 0..15] data ...
//   group 16: [bb 16..31][ib 16..31][inode tables 16..31] data ...
//   a backup group: [superblock copy] data ...        (never the first group of a flexible group
//   but group 0, so a copy never meets packed metadata; checked by Geometry::Make)
//
// The distances within a flexible group are those of a full one (2^flex_group_shift groups), also
// where the image ends sooner: group i of the flexible group has its block bitmap at base + i, its
// inode bitmap at base + size + i, its inode table at base + 2 * size + i * table length. Places of
// groups that do not exist are ordinary data blocks.
//
// Everything is an offset from these rules, so a lost group table can be rebuilt from the bitmaps.
#ifndef SLUICE_FORMAT_GEOMETRY_H_
#define SLUICE_FORMAT_GEOMETRY_H_

#include <array>
#include <cstddef>
#include <span>

#include "base/error.h"
#include "base/units.h"
#include "format/block_header.h"
#include "format/superblock.h"

namespace sluice::format {

inline constexpr uint32_t kInodeSize = 256;
inline constexpr uint32_t kInodesPerBlock = kBlockSize / kInodeSize;  // 16

struct BlockRange {
  BlockNumber start = 0;
  BlockCount count = 0;
};

// Immutable; freely copied.
class Geometry {
 public:
  // Requires a superblock that ParseSuperblock accepted. kCorrupt if the layout does not fit:
  // packed metadata or group table reach past the group they begin in, or the journal's runs lie on
  // fixed metadata.
  static Result<Geometry> Make(const Superblock& super);

  BlockCount block_count() const { return block_count_; }
  GroupNumber group_count() const { return group_count_; }
  uint32_t inodes_per_group() const { return inodes_per_group_; }
  uint64_t inode_count() const { return uint64_t{group_count_} * inodes_per_group_; }
  uint32_t inode_table_blocks() const { return inodes_per_group_ / kInodesPerBlock; }
  uint32_t groups_per_flex() const { return 1u << flex_shift_; }

  GroupNumber GroupOfBlock(BlockNumber block) const {
    return static_cast<GroupNumber>(block / kBlocksPerGroup);
  }
  BlockNumber GroupStart(GroupNumber group) const { return BlockNumber{group} * kBlocksPerGroup; }
  // Blocks in the group: 32768, fewer in the last.
  uint32_t GroupBlocks(GroupNumber group) const;

  // Group table block that holds the group's descriptor, and the index within it.
  BlockNumber DescriptorBlock(GroupNumber group) const;
  uint32_t DescriptorIndex(GroupNumber group) const;

  BlockNumber BlockBitmap(GroupNumber group) const;
  BlockNumber InodeBitmap(GroupNumber group) const;
  BlockNumber InodeTable(GroupNumber group) const;

  // Inode numbers start at 1. Requires ValidInode(ino).
  bool ValidInode(InodeNumber ino) const { return ino >= 1 && ino <= inode_count(); }
  GroupNumber GroupOfInode(InodeNumber ino) const {
    return static_cast<GroupNumber>((ino - 1) / inodes_per_group_);
  }
  uint32_t IndexInGroup(InodeNumber ino) const {
    return static_cast<uint32_t>((ino - 1) % inodes_per_group_);
  }
  BlockNumber InodeBlock(InodeNumber ino) const;
  // Byte offset of the inode within InodeBlock.
  uint32_t InodeOffset(InodeNumber ino) const {
    return IndexInGroup(ino) % kInodesPerBlock * kInodeSize;
  }

  // The fixed metadata of one group: superblock or its copy, group table, and what is packed in the
  // first group of a flexible group. Ascending, disjoint, within the group.
  class FixedRanges {
   public:
    std::span<const BlockRange> ranges() const { return {ranges_.data(), count_}; }
    // Blocks in all of them.
    uint32_t blocks() const;

   private:
    friend class Geometry;
    void Add(BlockNumber start, BlockCount count);
    std::array<BlockRange, 5> ranges_;
    size_t count_ = 0;
  };
  FixedRanges FixedBlocks(GroupNumber group) const;

  // Whether [block, block + count) lies inside the image and touches no fixed metadata
  // (superblocks, group table, bitmaps, inode tables): what an extent may point at. The journal's
  // blocks count as data of its inode.
  bool IsDataRange(BlockNumber block, BlockCount count) const;

  // Sets the bits of the fixed metadata blocks and of blocks past the end in a group's block
  // bitmap that is otherwise left alone; what a group with kGroupBlockUninit has allocated (plus
  // the journal's runs, which mkfs always writes initialised). Returns the number of fixed blocks
  // in the group.
  uint32_t MarkFixedBlocks(GroupNumber group, BlockSpan bitmap) const;

  // Sets the bits of an inode bitmap that stand for no inode (those from inodes_per_group on), and
  // no other: what a group with kGroupInodeUninit has in use.
  void MarkInodePadding(BlockSpan bitmap) const;

 private:
  // First group of the flexible group, and the first block of what is packed there.
  GroupNumber FlexFirst(GroupNumber group) const { return group >> flex_shift_ << flex_shift_; }
  BlockNumber FlexBase(GroupNumber group) const;
  // Groups of the flexible group that exist.
  uint32_t FlexGroups(GroupNumber group) const;
  bool PackedMetadataFits() const;

  BlockCount block_count_ = 0;
  GroupNumber group_count_ = 0;
  uint32_t inodes_per_group_ = 0;
  uint32_t flex_shift_ = 0;
  BlockNumber group_table_start_ = 0;
  BlockCount group_table_blocks_ = 0;
};

}  // namespace sluice::format

#endif  // SLUICE_FORMAT_GEOMETRY_H_
