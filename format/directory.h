// SPDX-License-Identifier: Apache-2.0
//
// Directories: a B+ tree of names in the logical blocks of the directory's file, in the order of a
// 63-bit key. An empty directory has no block; the first name makes block 0 a leaf. Block 0 is
// always the root: when it is full its contents move to new blocks and it becomes an index.
//
// The key of a name is (hash << 8 | sequence), 55 bits of seeded hash and a sequence number that
// tells names of equal hash apart; it never changes while the name exists and no two names of a
// directory share one, so it serves as the readdir cookie: "go on with the smallest key greater
// than this". "." and ".." are not stored: the inode knows both. Their cookies are 1 and 2; a
// name's key is at least 256.
#ifndef SLUICE_FORMAT_DIRECTORY_H_
#define SLUICE_FORMAT_DIRECTORY_H_

#include <cstddef>
#include <string_view>

#include "base/error.h"
#include "base/units.h"
#include "format/block_header.h"
#include "format/endian.h"

namespace sluice::format {

inline constexpr uint32_t kMaxDirLevels = 6;       // root included
inline constexpr uint32_t kDirKeySequences = 256;  // names of equal hash in one directory

// Follows the BlockHeader in index and leaf blocks alike.
struct DirNodeHeader {
  Le16 level;       // 0: leaf
  Le16 count;       // slots or index entries
  Le16 heap_start;  // leaf: where the heap of entries begins (4096 if it is empty); index: 0
  Le16 garbage;     // leaf: bytes of removed entries within the heap; index: 0
};
static_assert(OnDisk<DirNodeHeader> && sizeof(DirNodeHeader) == 8);
static_assert(offsetof(DirNodeHeader, level) == 0);
static_assert(offsetof(DirNodeHeader, count) == 2);
static_assert(offsetof(DirNodeHeader, heap_start) == 4);
static_assert(offsetof(DirNodeHeader, garbage) == 6);

inline constexpr uint32_t kDirNodeOffset = sizeof(BlockHeader);
inline constexpr uint32_t kDirSlotsOffset = kDirNodeOffset + sizeof(DirNodeHeader);  // 48

// A leaf is DirNodeHeader, `count` slots of Le16 (byte offsets of entries, ascending by key),
// free space, and the heap of entries at the end of the block.
struct DirEntry {
  Le64 key;
  Le64 inode;
  uint8_t name_length;  // 1..255
  uint8_t type;         // DT_* of readdir(3)
  // name_length bytes of name follow, no NUL
};
static_assert(OnDisk<DirEntry> && sizeof(DirEntry) == 18);
static_assert(offsetof(DirEntry, key) == 0);
static_assert(offsetof(DirEntry, inode) == 8);
static_assert(offsetof(DirEntry, name_length) == 16);
static_assert(offsetof(DirEntry, type) == 17);

// An index block is DirNodeHeader and `count` of these, ascending; the first entry's key is the
// lower bound of the node's own range (0 in the root).
struct DirIndexEntry {
  Le64 key;    // smallest key the child may hold
  Le32 child;  // logical block in the directory's file
  Le32 reserved;
};
static_assert(OnDisk<DirIndexEntry> && sizeof(DirIndexEntry) == 16);
static_assert(offsetof(DirIndexEntry, key) == 0);
static_assert(offsetof(DirIndexEntry, child) == 8);
static_assert(offsetof(DirIndexEntry, reserved) == 12);

inline constexpr uint32_t kDirIndexCapacity =
    (kBlockSize - kDirSlotsOffset) / sizeof(DirIndexEntry);  // 253

inline constexpr uint64_t kCookieDot = 1;
inline constexpr uint64_t kCookieDotDot = 2;
inline constexpr uint64_t kMinDirKey = 256;
inline constexpr uint64_t kEndDirKey = uint64_t{1} << 63;

// The key of `name` with sequence 0: the range of its possible keys is [key, key + 256).
uint64_t DirKey(uint64_t hash_seed, std::string_view name);

// Checks a directory block behind its header (which VerifyBlock has checked): level
// (`expected_level`, or any if negative), counts, slots within the block, entries within the heap
// and not overlapping, garbage = heap less live entries, keys ascending within [first, end), names
// legal (no '/', no NUL, not "." or ".."), key's hash = hash of the name, child blocks nonzero and
// below `dir_blocks`. kCorrupt otherwise. `reason` may be null.
Error CheckDirBlock(uint64_t hash_seed, ConstBlockSpan block, int expected_level, uint64_t first,
                    uint64_t end, uint64_t dir_blocks, const char** reason);

inline DirNodeHeader* DirNodeOf(std::byte* block) {
  return As<DirNodeHeader>(block + kDirNodeOffset);
}
inline const DirNodeHeader* DirNodeOf(const std::byte* block) {
  return As<DirNodeHeader>(block + kDirNodeOffset);
}
inline Le16* DirSlotsOf(std::byte* block) { return As<Le16>(block + kDirSlotsOffset); }
inline const Le16* DirSlotsOf(const std::byte* block) { return As<Le16>(block + kDirSlotsOffset); }
inline DirIndexEntry* DirIndexesOf(std::byte* block) {
  return As<DirIndexEntry>(block + kDirSlotsOffset);
}
inline const DirIndexEntry* DirIndexesOf(const std::byte* block) {
  return As<DirIndexEntry>(block + kDirSlotsOffset);
}

// --- The orphan file (inode 3): inodes to finish at the next mount ---

struct OrphanHeader {
  Le32 count;  // slots in use
  Le32 reserved;
};
static_assert(OnDisk<OrphanHeader> && sizeof(OrphanHeader) == 8);
static_assert(offsetof(OrphanHeader, count) == 0);
static_assert(offsetof(OrphanHeader, reserved) == 4);

// A block of it is BlockHeader (owner 3), OrphanHeader, slots of Le64: an inode number, or 0.
inline constexpr uint32_t kOrphanSlotsOffset = sizeof(BlockHeader) + sizeof(OrphanHeader);
inline constexpr uint32_t kOrphanSlots = (kBlockSize - kOrphanSlotsOffset) / sizeof(Le64);  // 506

// Checks a block of the orphan file behind its header: the count equals the slots that are not 0,
// and each of these is an inode number up to `inode_count`. kCorrupt otherwise. `reason` may be
// null.
Error CheckOrphanBlock(ConstBlockSpan block, uint64_t inode_count, const char** reason);

inline OrphanHeader* OrphanHeaderOf(std::byte* block) {
  return As<OrphanHeader>(block + sizeof(BlockHeader));
}
inline const OrphanHeader* OrphanHeaderOf(const std::byte* block) {
  return As<OrphanHeader>(block + sizeof(BlockHeader));
}
inline Le64* OrphanSlotsOf(std::byte* block) { return As<Le64>(block + kOrphanSlotsOffset); }
inline const Le64* OrphanSlotsOf(const std::byte* block) {
  return As<Le64>(block + kOrphanSlotsOffset);
}

}  // namespace sluice::format

#endif  // SLUICE_FORMAT_DIRECTORY_H_
