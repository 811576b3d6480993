// SPDX-License-Identifier: Apache-2.0
//
// The bytes of one directory block: slotted leaves and index nodes (format/directory.h). Pure, no
// I/O. Blocks have passed format::CheckDirBlock or were made here; nothing below checks again.
#ifndef SLUICE_FS_DIRECTORY_NODE_H_
#define SLUICE_FS_DIRECTORY_NODE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/units.h"
#include "format/directory.h"

namespace sluice::dirnode {

inline uint32_t EntryBytes(size_t name_length) {
  return static_cast<uint32_t>(sizeof(format::DirEntry) + name_length);
}

inline const format::DirEntry* LeafEntry(const std::byte* block, uint32_t slot) {
  return format::As<format::DirEntry>(block + format::DirSlotsOf(block)[slot]);
}
inline format::DirEntry* LeafEntry(std::byte* block, uint32_t slot) {
  return format::As<format::DirEntry>(block + format::DirSlotsOf(block)[slot]);
}
inline std::string_view EntryName(const format::DirEntry* entry) {
  return {reinterpret_cast<const char*>(entry) + sizeof(format::DirEntry), entry->name_length};
}

// Makes the part behind the block header an empty node.
void InitLeaf(std::byte* block);
void InitIndex(std::byte* block, uint32_t level);

// The first slot whose key is at least `key`; the count if there is none.
uint32_t LeafLowerBound(const std::byte* block, uint64_t key);
// Whether a name of this length fits, after compaction if need be.
bool LeafFits(const std::byte* block, size_t name_length);
// Precondition: LeafFits, and the key is not there. Compacts when the free space is in pieces.
void LeafInsert(std::byte* block, uint64_t key, InodeNumber ino, uint8_t type,
                std::string_view name);
void LeafRemove(std::byte* block, uint32_t slot);
// Moves the upper half, by bytes, to the new leaf `right`; returns the smallest key there.
// Precondition: at least two names. `block` becomes compact.
uint64_t LeafSplit(std::byte* block, std::byte* right);

inline bool IndexFull(const std::byte* block) {
  return format::DirNodeOf(block)->count >= format::kDirIndexCapacity;
}
// The position whose child's range holds `key`.
uint32_t IndexFind(const std::byte* block, uint64_t key);
// Precondition: not full.
void IndexInsert(std::byte* block, uint32_t position, uint64_t key, FileBlock child);
// Moves the upper half of the entries to the new index node `right`; returns its smallest key.
uint64_t IndexSplit(std::byte* block, std::byte* right);

}  // namespace sluice::dirnode

#endif  // SLUICE_FS_DIRECTORY_NODE_H_
