// SPDX-License-Identifier: Apache-2.0
#include "format/group_desc.h"

#include "format/geometry.h"

namespace sluice::format {

namespace {

const char* BlocksProblem(const Geometry& geometry, GroupNumber group, const GroupDesc& desc) {
  const uint32_t available = geometry.GroupBlocks(group) - geometry.FixedBlocks(group).blocks();
  if (desc.free_blocks > available) return "more free blocks than the group has";
  if ((desc.flags & kGroupBlockUninit) != 0) {
    if (desc.free_blocks != available) return "wrong free blocks of an uninitialised block bitmap";
    if (desc.block_bitmap_checksum != 0) return "checksum of an uninitialised block bitmap";
  }
  return nullptr;
}

const char* InodesProblem(const Geometry& geometry, const GroupDesc& desc) {
  const uint32_t inodes = geometry.inodes_per_group();
  if (desc.free_inodes > inodes) return "more free inodes than the group has";
  if (desc.directories > inodes - desc.free_inodes) return "more directories than used inodes";
  if (desc.inode_table_used > inodes || desc.inode_table_used % kInodesPerBlock != 0) {
    return "impossible inode table high-water mark";
  }
  if (inodes - desc.free_inodes > desc.inode_table_used) {
    return "more used inodes than the inode table's high-water mark";
  }
  if ((desc.flags & kGroupInodeUninit) != 0) {
    if (desc.free_inodes != inodes) return "used inodes in an uninitialised inode bitmap";
    if (desc.inode_table_used != 0) return "inode table in use with an uninitialised inode bitmap";
    if (desc.inode_bitmap_checksum != 0) return "checksum of an uninitialised inode bitmap";
  }
  return nullptr;
}

}  // namespace

Error CheckGroupDesc(const Geometry& geometry, GroupNumber group, const GroupDesc& desc,
                     const char** reason) {
  const char* problem = nullptr;
  if ((desc.flags & ~(kGroupBlockUninit | kGroupInodeUninit)) != 0) problem = "unknown group flags";
  if (problem == nullptr) problem = BlocksProblem(geometry, group, desc);
  if (problem == nullptr) problem = InodesProblem(geometry, desc);
  if (problem == nullptr) return Error::kOk;
  if (reason != nullptr) *reason = problem;
  return Error::kCorrupt;
}

}  // namespace sluice::format
