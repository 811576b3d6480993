// SPDX-License-Identifier: Apache-2.0
#include "fs/directory_node.h"

#include <cstring>

#include "base/check.h"

namespace sluice::dirnode {

using format::DirEntry;
using format::DirIndexEntry;
using format::DirIndexesOf;
using format::DirNodeHeader;
using format::DirNodeOf;
using format::DirSlotsOf;
using format::kDirSlotsOffset;
using format::Le16;

namespace {

uint32_t SlotsEnd(const std::byte* block) {
  return static_cast<uint32_t>(kDirSlotsOffset + DirNodeOf(block)->count * sizeof(Le16));
}

uint32_t SizeOf(const DirEntry* entry) { return EntryBytes(entry->name_length); }

// Appends a copy of `entry` behind the last slot. The caller keeps the order of keys.
void AppendCopy(std::byte* block, const DirEntry* entry) {
  DirNodeHeader* node = DirNodeOf(block);
  const uint32_t size = SizeOf(entry);
  const uint32_t start = node->heap_start - size;
  std::memcpy(block + start, entry, size);
  DirSlotsOf(block)[node->count] = static_cast<uint16_t>(start);
  node->heap_start = static_cast<uint16_t>(start);
  node->count = static_cast<uint16_t>(node->count + 1);
}

// Replaces the node of `block` by the slots [first, end) of `source`, which is another block.
void CopySlots(const std::byte* source, uint32_t first, uint32_t end, std::byte* block) {
  InitLeaf(block);
  for (uint32_t slot = first; slot < end; ++slot) AppendCopy(block, LeafEntry(source, slot));
  // What removed names left behind is nobody's business.
  std::memset(block + SlotsEnd(block), 0, DirNodeOf(block)->heap_start - SlotsEnd(block));
}

void Compact(std::byte* block) {
  std::byte copy[kBlockSize];
  std::memcpy(copy, block, kBlockSize);
  CopySlots(copy, 0, DirNodeOf(copy)->count, block);
}

}  // namespace

void InitLeaf(std::byte* block) {
  DirNodeHeader* node = DirNodeOf(block);
  node->level = 0;
  node->count = 0;
  node->heap_start = static_cast<uint16_t>(kBlockSize);
  node->garbage = 0;
}

void InitIndex(std::byte* block, uint32_t level) {
  std::memset(block + format::kDirNodeOffset, 0, kBlockSize - format::kDirNodeOffset);
  DirNodeOf(block)->level = static_cast<uint16_t>(level);
}

uint32_t LeafLowerBound(const std::byte* block, uint64_t key) {
  uint32_t low = 0;
  uint32_t high = DirNodeOf(block)->count;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (LeafEntry(block, middle)->key < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

bool LeafFits(const std::byte* block, size_t name_length) {
  const DirNodeHeader* node = DirNodeOf(block);
  const uint32_t room = node->heap_start - SlotsEnd(block) + node->garbage;
  return room >= EntryBytes(name_length) + sizeof(Le16);
}

void LeafInsert(std::byte* block, uint64_t key, InodeNumber ino, uint8_t type,
                std::string_view name) {
  SLUICE_DCHECK(LeafFits(block, name.size()));
  const uint32_t size = EntryBytes(name.size());
  if (DirNodeOf(block)->heap_start - SlotsEnd(block) < size + sizeof(Le16)) Compact(block);
  DirNodeHeader* node = DirNodeOf(block);
  const uint32_t slot = LeafLowerBound(block, key);
  const uint32_t start = node->heap_start - size;
  DirEntry* entry = format::As<DirEntry>(block + start);
  entry->key = key;
  entry->inode = ino;
  entry->name_length = static_cast<uint8_t>(name.size());
  entry->type = type;
  std::memcpy(block + start + sizeof(DirEntry), name.data(), name.size());
  Le16* slots = DirSlotsOf(block);
  std::memmove(slots + slot + 1, slots + slot, (node->count - slot) * sizeof(Le16));
  slots[slot] = static_cast<uint16_t>(start);
  node->heap_start = static_cast<uint16_t>(start);
  node->count = static_cast<uint16_t>(node->count + 1);
}

void LeafRemove(std::byte* block, uint32_t slot) {
  DirNodeHeader* node = DirNodeOf(block);
  Le16* slots = DirSlotsOf(block);
  const uint32_t start = slots[slot];
  const uint32_t size = SizeOf(LeafEntry(block, slot));
  std::memset(block + start, 0, size);
  std::memmove(slots + slot, slots + slot + 1, (node->count - slot - 1) * sizeof(Le16));
  node->count = static_cast<uint16_t>(node->count - 1);
  if (node->count == 0) {
    node->heap_start = static_cast<uint16_t>(kBlockSize);
    node->garbage = 0;
  } else if (start == node->heap_start) {
    node->heap_start = static_cast<uint16_t>(start + size);
  } else {
    node->garbage = static_cast<uint16_t>(node->garbage + size);
  }
}

uint64_t LeafSplit(std::byte* block, std::byte* right) {
  std::byte copy[kBlockSize];
  std::memcpy(copy, block, kBlockSize);
  const uint32_t count = DirNodeOf(copy)->count;
  SLUICE_CHECK(count >= 2);
  const uint32_t live = kBlockSize - DirNodeOf(copy)->heap_start - DirNodeOf(copy)->garbage;
  uint32_t split = 0;
  for (uint32_t bytes = 0; split < count - 1 && bytes < live / 2; ++split) {
    bytes += SizeOf(LeafEntry(copy, split));
  }
  if (split == 0) split = 1;
  CopySlots(copy, 0, split, block);
  CopySlots(copy, split, count, right);
  return LeafEntry(copy, split)->key;
}

uint32_t IndexFind(const std::byte* block, uint64_t key) {
  const DirIndexEntry* entries = DirIndexesOf(block);
  uint32_t low = 1;  // the first entry takes everything below the second
  uint32_t high = DirNodeOf(block)->count;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (entries[middle].key <= key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - 1;
}

void IndexInsert(std::byte* block, uint32_t position, uint64_t key, FileBlock child) {
  DirNodeHeader* node = DirNodeOf(block);
  SLUICE_CHECK(node->count < format::kDirIndexCapacity && position <= node->count);
  DirIndexEntry* entries = DirIndexesOf(block);
  std::memmove(entries + position + 1, entries + position,
               (node->count - position) * sizeof(DirIndexEntry));
  entries[position].key = key;
  entries[position].child = static_cast<uint32_t>(child);
  entries[position].reserved = 0;
  node->count = static_cast<uint16_t>(node->count + 1);
}

uint64_t IndexSplit(std::byte* block, std::byte* right) {
  DirNodeHeader* node = DirNodeOf(block);
  const uint32_t count = node->count;
  SLUICE_CHECK(count >= 2);
  const uint32_t split = count / 2;
  InitIndex(right, node->level);
  std::memcpy(DirIndexesOf(right), DirIndexesOf(block) + split,
              (count - split) * sizeof(DirIndexEntry));
  DirNodeOf(right)->count = static_cast<uint16_t>(count - split);
  std::memset(DirIndexesOf(block) + split, 0, (count - split) * sizeof(DirIndexEntry));
  node->count = static_cast<uint16_t>(split);
  return DirIndexesOf(right)[0].key;
}

}  // namespace sluice::dirnode
