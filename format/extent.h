// SPDX-License-Identifier: Apache-2.0
//
// The extent tree: which physical blocks hold which logical blocks of a file. The root (header and
// up to 4 entries) is in the inode; deeper nodes are blocks. Entries are sorted by logical block
// and never overlap. An index entry's `logical` is the smallest logical block its child may hold.
#ifndef SLUICE_FORMAT_EXTENT_H_
#define SLUICE_FORMAT_EXTENT_H_

#include <cstddef>

#include "base/error.h"
#include "base/units.h"
#include "format/block_header.h"
#include "format/endian.h"

namespace sluice::format {

inline constexpr uint16_t kExtentMagic = 0x5845;  // "EX" as bytes
inline constexpr uint32_t kMaxExtentDepth = 5;
inline constexpr uint32_t kMaxExtentLength = 32768;              // blocks
inline constexpr FileBlock kMaxFileBlocks = FileBlock{1} << 32;  // 16 TiB

struct ExtentHeader {
  Le16 magic;
  Le16 entries;
  Le16 capacity;
  Le16 depth;  // 0: entries are Extents; else ExtentIndexes
  Le64 reserved;
};
static_assert(OnDisk<ExtentHeader> && sizeof(ExtentHeader) == 16);
static_assert(offsetof(ExtentHeader, magic) == 0);
static_assert(offsetof(ExtentHeader, entries) == 2);
static_assert(offsetof(ExtentHeader, capacity) == 4);
static_assert(offsetof(ExtentHeader, depth) == 6);
static_assert(offsetof(ExtentHeader, reserved) == 8);

struct Extent {
  Le32 logical;
  Le16 length;  // 1..32768
  Le16 flags;   // kExtentUnwritten
  Le64 physical;
};
static_assert(OnDisk<Extent> && sizeof(Extent) == 16);
static_assert(offsetof(Extent, logical) == 0);
static_assert(offsetof(Extent, length) == 4);
static_assert(offsetof(Extent, flags) == 6);
static_assert(offsetof(Extent, physical) == 8);

// The blocks are allocated but hold no data of the file yet: they read as zeros.
inline constexpr uint16_t kExtentUnwritten = 1u << 0;

// The logical block behind the extent's last.
inline FileBlock EndOf(const Extent& extent) { return FileBlock{extent.logical} + extent.length; }

struct ExtentIndex {
  Le32 logical;
  Le32 reserved;
  Le64 child;  // block of the node below
};
static_assert(OnDisk<ExtentIndex> && sizeof(ExtentIndex) == 16);
static_assert(offsetof(ExtentIndex, logical) == 0);
static_assert(offsetof(ExtentIndex, reserved) == 4);
static_assert(offsetof(ExtentIndex, child) == 8);

inline constexpr uint32_t kInlineExtents = 4;
inline constexpr uint32_t kExtentRootSize = sizeof(ExtentHeader) + kInlineExtents * sizeof(Extent);
static_assert(kExtentRootSize == 80);

// An extent block is BlockHeader, ExtentHeader, entries.
inline constexpr uint32_t kExtentNodeOffset = sizeof(BlockHeader);
inline constexpr uint32_t kExtentsPerBlock =
    (kBlockSize - kExtentNodeOffset - sizeof(ExtentHeader)) / sizeof(Extent);  // 252
static_assert(kExtentsPerBlock == 252);

// Checks a node (root or block; `node` starts at its ExtentHeader): magic, capacity, counts, depth
// (`expected_depth`, or any up to the maximum if negative), order, overlap, lengths, logical blocks
// within [first, end), physical blocks below `block_count` and not 0. kCorrupt otherwise.
// `reason` may be null.
Error CheckExtentNode(const std::byte* node, uint32_t capacity, int expected_depth, FileBlock first,
                      FileBlock end, BlockCount block_count, const char** reason);

// An empty leaf root or node.
void InitExtentNode(std::byte* node, uint32_t capacity, uint32_t depth);

inline ExtentHeader* ExtentHeaderOf(std::byte* node) { return As<ExtentHeader>(node); }
inline const ExtentHeader* ExtentHeaderOf(const std::byte* node) { return As<ExtentHeader>(node); }
inline Extent* ExtentsOf(std::byte* node) { return As<Extent>(node + sizeof(ExtentHeader)); }
inline const Extent* ExtentsOf(const std::byte* node) {
  return As<Extent>(node + sizeof(ExtentHeader));
}
inline ExtentIndex* ExtentIndexesOf(std::byte* node) {
  return As<ExtentIndex>(node + sizeof(ExtentHeader));
}
inline const ExtentIndex* ExtentIndexesOf(const std::byte* node) {
  return As<ExtentIndex>(node + sizeof(ExtentHeader));
}

}  // namespace sluice::format

#endif  // SLUICE_FORMAT_EXTENT_H_
