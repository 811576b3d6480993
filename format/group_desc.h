// SPDX-License-Identifier: Apache-2.0
//
// Group descriptors: counts, lazy-initialisation marks, and the bitmaps' checksums. A group table
// block is a BlockHeader followed by 63 descriptors of 64 bytes (the header padded to 64).
#ifndef SLUICE_FORMAT_GROUP_DESC_H_
#define SLUICE_FORMAT_GROUP_DESC_H_

#include <cstddef>

#include "base/error.h"
#include "base/units.h"
#include "format/block_header.h"
#include "format/endian.h"

namespace sluice::format {

// flags
inline constexpr uint32_t kGroupBlockUninit = 1u << 0;  // block bitmap: Geometry::MarkFixedBlocks
inline constexpr uint32_t kGroupInodeUninit = 1u << 1;  // inode bitmap: all free

struct GroupDesc {
  Le32 flags;
  Le32 free_blocks;
  Le32 free_inodes;
  Le32 directories;       // inodes in use that are directories
  Le32 inode_table_used;  // high-water mark in inodes, a multiple of 16: what lies beyond is never
                          // read, and is created through the log in the transaction that moves it
  Le32 reserved0;
  Le64 block_bitmap_checksum;  // XXH3-64 (checksum_seed) of the bitmap block; 0 if uninit
  Le64 inode_bitmap_checksum;
  uint8_t reserved[24];
};
static_assert(OnDisk<GroupDesc>);
static_assert(sizeof(GroupDesc) == 64);
static_assert(offsetof(GroupDesc, flags) == 0);
static_assert(offsetof(GroupDesc, free_blocks) == 4);
static_assert(offsetof(GroupDesc, free_inodes) == 8);
static_assert(offsetof(GroupDesc, directories) == 12);
static_assert(offsetof(GroupDesc, inode_table_used) == 16);
static_assert(offsetof(GroupDesc, reserved0) == 20);
static_assert(offsetof(GroupDesc, block_bitmap_checksum) == 24);
static_assert(offsetof(GroupDesc, inode_bitmap_checksum) == 32);
static_assert(offsetof(GroupDesc, reserved) == 40);

inline constexpr uint32_t kGroupDescOffset = 64;
inline constexpr uint32_t kGroupDescsPerBlock =
    (kBlockSize - kGroupDescOffset) / sizeof(GroupDesc);  // 63

class Geometry;

// Checks one descriptor by itself: flags known, counts within what the group can have (exactly what
// it has where a bitmap is uninitialised), inode_table_used a multiple of 16 that fits. kCorrupt
// otherwise. `reason` may be null. What the bitmaps say is for the caller to compare.
Error CheckGroupDesc(const Geometry& geometry, GroupNumber group, const GroupDesc& desc,
                     const char** reason);

inline GroupDesc* GroupDescAt(std::byte* block, uint32_t index) {
  return As<GroupDesc>(block + kGroupDescOffset + index * sizeof(GroupDesc));
}
inline const GroupDesc* GroupDescAt(const std::byte* block, uint32_t index) {
  return As<GroupDesc>(block + kGroupDescOffset + index * sizeof(GroupDesc));
}

}  // namespace sluice::format

#endif  // SLUICE_FORMAT_GROUP_DESC_H_
