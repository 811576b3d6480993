// SPDX-License-Identifier: Apache-2.0
//
// The inode: 256 bytes, 16 to an inode table block, each with its own checksum (over its number and
// generation, so that an inode written to the wrong place never passes).
#ifndef SLUICE_FORMAT_INODE_H_
#define SLUICE_FORMAT_INODE_H_

#include <cstddef>

#include "base/error.h"
#include "base/units.h"
#include "format/block_header.h"
#include "format/endian.h"
#include "format/extent.h"
#include "format/geometry.h"

namespace sluice::format {

// flags; where chattr(1) knows the attribute the bit is ext4's (FS_*_FL).
inline constexpr uint32_t kInodeSync = 0x00000008;
inline constexpr uint32_t kInodeImmutable = 0x00000010;
inline constexpr uint32_t kInodeAppend = 0x00000020;
inline constexpr uint32_t kInodeNoDump = 0x00000040;
inline constexpr uint32_t kInodeNoAtime = 0x00000080;
inline constexpr uint32_t kInodeDirSync = 0x00010000;
inline constexpr uint32_t kInodeInlineSymlink = 0x01000000;  // target in `root`, not in a block

inline constexpr uint32_t kMaxInlineSymlink = kExtentRootSize;  // 80 bytes, no NUL
inline constexpr uint32_t kMaxSymlink = 4095;
inline constexpr uint32_t kMaxLinks = 0x7fffffff;
inline constexpr uint32_t kMaxNameLength = 255;
inline constexpr uint64_t kMaxFileSize = kMaxFileBlocks * kBlockSize;  // 16 TiB

struct Inode {
  Le64 checksum;  // XXH3-64 with seed InodeSeed(checksum_seed, ino) over 256 bytes, this field 0
  Le16 mode;      // type and permissions as in stat(2); 0: the inode is free
  Le16 reserved0;
  Le32 flags;
  Le32 uid;
  Le32 gid;
  Le32 links;       // directories: 2 + subdirectories
  Le32 generation;  // changes each time the inode is allocated
  Le64 size;        // bytes; directories: blocks of the tree * 4096
  Le64 blocks;      // 4 KiB blocks allocated, extent and xattr blocks included
  LeS64 atime;      // ns since the epoch, signed: 1677 to 2262
  LeS64 mtime;
  LeS64 ctime;
  LeS64 btime;
  Le64 parent;       // directories: the parent's inode number (".."); else 0
  Le64 device;       // device files: major << 32 | minor; directories: number of entries; else 0
  Le64 xattr_block;  // 0: none
  Le32 project;
  Le32 reserved1;
  uint8_t root[kExtentRootSize];  // extent root, or the target of a short symlink
  uint8_t inline_xattrs[64];      // zero in this version
};
static_assert(OnDisk<Inode>);
static_assert(sizeof(Inode) == kInodeSize);
static_assert(offsetof(Inode, checksum) == 0);
static_assert(offsetof(Inode, mode) == 8);
static_assert(offsetof(Inode, reserved0) == 10);
static_assert(offsetof(Inode, flags) == 12);
static_assert(offsetof(Inode, uid) == 16);
static_assert(offsetof(Inode, gid) == 20);
static_assert(offsetof(Inode, links) == 24);
static_assert(offsetof(Inode, generation) == 28);
static_assert(offsetof(Inode, size) == 32);
static_assert(offsetof(Inode, blocks) == 40);
static_assert(offsetof(Inode, atime) == 48);
static_assert(offsetof(Inode, mtime) == 56);
static_assert(offsetof(Inode, ctime) == 64);
static_assert(offsetof(Inode, btime) == 72);
static_assert(offsetof(Inode, parent) == 80);
static_assert(offsetof(Inode, device) == 88);
static_assert(offsetof(Inode, xattr_block) == 96);
static_assert(offsetof(Inode, project) == 104);
static_assert(offsetof(Inode, reserved1) == 108);
static_assert(offsetof(Inode, root) == 112);
static_assert(offsetof(Inode, inline_xattrs) == 192);

// The seed of an inode's checksum: XXH3-64 (checksum_seed) of the inode number as 8 little-endian
// bytes, so that the checksum covers the number.
uint64_t InodeSeed(uint64_t checksum_seed, InodeNumber ino);

// Sets the checksum of one inode record.
void SealInode(uint64_t seed, InodeNumber ino, Inode* inode);
// Seals all 16 records of an inode table block; `first` is the number of its first inode. Records
// with mode 0 are sealed too (they keep their generation).
void SealInodeTable(uint64_t seed, InodeNumber first, BlockSpan block);
// kCorrupt if the checksum is wrong or a field is impossible (type bits, extent root, flags,
// symlink length, size beyond the maximum, links 0 is allowed: orphans). A free inode (mode 0) with
// a right checksum passes. `seed` is the image's checksum seed. `reason` may be null. What needs
// more than the record (whether blocks lie on fixed metadata, whether inode numbers exist) is the
// caller's to check.
Error CheckInode(uint64_t seed, InodeNumber ino, BlockCount block_count, const Inode& inode,
                 const char** reason);

}  // namespace sluice::format

#endif  // SLUICE_FORMAT_INODE_H_
