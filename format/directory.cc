// SPDX-License-Identifier: Apache-2.0
#include "format/directory.h"

#include <dirent.h>

#include <algorithm>
#include <array>

namespace sluice::format {

namespace {

// Types as on disk; readdir(3) has the same numbers on Linux.
static_assert(DT_FIFO == 1 && DT_CHR == 2 && DT_DIR == 4 && DT_BLK == 6 && DT_REG == 8 &&
              DT_LNK == 10 && DT_SOCK == 12);

constexpr uint32_t kSmallestEntry = sizeof(DirEntry) + 1;
constexpr uint32_t kMaxSlots =
    (kBlockSize - kDirSlotsOffset) / (sizeof(Le16) + kSmallestEntry);  // 192

bool IsEntryType(uint8_t type) {
  return type == DT_FIFO || type == DT_CHR || type == DT_DIR || type == DT_BLK || type == DT_REG ||
         type == DT_LNK || type == DT_SOCK;
}

bool IsLegalName(std::string_view name) {
  return name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

struct KeyRange {
  uint64_t next;  // smallest key that may come now
  uint64_t end;
};

// Checks the entry at `offset`, which lies in the heap with its fixed part.
const char* EntryProblem(uint64_t hash_seed, const std::byte* block, uint32_t offset,
                         KeyRange* range) {
  const DirEntry* entry = As<DirEntry>(block + offset);
  const uint32_t length = entry->name_length;
  if (length == 0) return "empty name";
  if (length > kBlockSize - offset - sizeof(DirEntry)) return "name reaches past its block";
  const std::string_view name(reinterpret_cast<const char*>(block) + offset + sizeof(DirEntry),
                              length);
  if (!IsLegalName(name)) return "illegal name";
  const uint64_t key = entry->key;
  if (key < range->next || key >= range->end) return "directory keys out of order";
  if ((key ^ DirKey(hash_seed, name)) >= kDirKeySequences) return "key does not fit the name";
  if (entry->inode == 0) return "name of inode 0";
  if (!IsEntryType(entry->type)) return "unknown type of a directory entry";
  range->next = key + 1;
  return nullptr;
}

const char* LeafProblem(uint64_t hash_seed, const std::byte* block, KeyRange range) {
  const DirNodeHeader* node = DirNodeOf(block);
  const uint32_t count = node->count;
  const uint32_t heap = node->heap_start;
  if (count > kMaxSlots) return "more names than a directory block can hold";
  if (heap > kBlockSize || heap < kDirSlotsOffset + count * sizeof(Le16)) {
    return "impossible start of the directory block's heap";
  }
  std::array<uint16_t, kMaxSlots> offsets;
  for (uint32_t i = 0; i < count; ++i) {
    const uint16_t offset = DirSlotsOf(block)[i];
    if (offset < heap || offset > kBlockSize - kSmallestEntry) return "slot outside the heap";
    const char* problem = EntryProblem(hash_seed, block, offset, &range);
    if (problem != nullptr) return problem;
    offsets[i] = offset;
  }
  std::sort(offsets.begin(), offsets.begin() + count);
  uint32_t live = 0;
  uint32_t free_from = heap;
  for (uint32_t i = 0; i < count; ++i) {
    if (offsets[i] < free_from) return "directory entries overlap";
    const uint32_t size =
        static_cast<uint32_t>(sizeof(DirEntry)) + As<DirEntry>(block + offsets[i])->name_length;
    free_from = offsets[i] + size;
    live += size;
  }
  if (live + node->garbage != kBlockSize - heap) return "wrong garbage count in a directory block";
  return nullptr;
}

const char* IndexProblem(const std::byte* block, KeyRange range, uint64_t dir_blocks) {
  const DirNodeHeader* node = DirNodeOf(block);
  if (node->count == 0 || node->count > kDirIndexCapacity) {
    return "impossible count of a directory index";
  }
  if (node->heap_start != 0 || node->garbage != 0) return "heap in a directory index";
  const DirIndexEntry* entries = DirIndexesOf(block);
  if (entries[0].key != range.next) return "directory index does not begin with its range";
  for (uint32_t i = 0; i < node->count; ++i) {
    const uint64_t key = entries[i].key;
    if (key < range.next || key >= range.end) return "directory index keys out of order";
    if (entries[i].child == 0 || entries[i].child >= dir_blocks) {
      return "directory index points past the directory";
    }
    range.next = key + 1;
  }
  return nullptr;
}

Error Answer(const char* problem, const char** reason) {
  if (problem == nullptr) return Error::kOk;
  if (reason != nullptr) *reason = problem;
  return Error::kCorrupt;
}

}  // namespace

uint64_t DirKey(uint64_t hash_seed, std::string_view name) {
  const uint64_t hash =
      Checksum(hash_seed, std::as_bytes(std::span(name.data(), name.size()))) >> 9;
  return std::max<uint64_t>(hash, 1) * kDirKeySequences;
}

Error CheckDirBlock(uint64_t hash_seed, ConstBlockSpan block, int expected_level, uint64_t first,
                    uint64_t end, uint64_t dir_blocks, const char** reason) {
  const DirNodeHeader* node = DirNodeOf(block.data());
  if (node->level >= kMaxDirLevels) return Answer("directory tree too deep", reason);
  if (expected_level >= 0 && node->level != expected_level) {
    return Answer("wrong level of a directory block", reason);
  }
  const KeyRange range = {first, end};
  return Answer(node->level == 0 ? LeafProblem(hash_seed, block.data(), range)
                                 : IndexProblem(block.data(), range, dir_blocks),
                reason);
}

Error CheckOrphanBlock(ConstBlockSpan block, uint64_t inode_count, const char** reason) {
  uint32_t used = 0;
  for (uint32_t i = 0; i < kOrphanSlots; ++i) {
    const uint64_t ino = OrphanSlotsOf(block.data())[i];
    if (ino > inode_count) return Answer("orphan slot holds an impossible inode number", reason);
    used += ino != 0 ? 1 : 0;
  }
  if (OrphanHeaderOf(block.data())->count != used) {
    return Answer("wrong count of an orphan block", reason);
  }
  return Error::kOk;
}

}  // namespace sluice::format
