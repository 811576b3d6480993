// SPDX-License-Identifier: Apache-2.0
#include "format/extent.h"

#include <cstring>

namespace sluice::format {

namespace {

const char* HeaderProblem(const ExtentHeader& header, uint32_t capacity, int expected_depth) {
  if (header.magic != kExtentMagic) return "no extent node magic";
  if (header.capacity != capacity) return "wrong capacity of an extent node";
  if (header.entries > capacity) return "more extents than the node can hold";
  if (header.depth > kMaxExtentDepth) return "extent tree too deep";
  if (expected_depth >= 0 && header.depth != expected_depth) return "wrong depth of an extent node";
  if (header.depth > 0 && header.entries == 0) return "extent index node without entries";
  return nullptr;
}

const char* LeafProblem(const Extent* extents, uint32_t count, FileBlock first, FileBlock end,
                        BlockCount block_count) {
  FileBlock next = first;
  for (uint32_t i = 0; i < count; ++i) {
    const FileBlock logical = extents[i].logical;
    const uint32_t length = extents[i].length;
    const BlockNumber physical = extents[i].physical;
    if (length == 0 || length > kMaxExtentLength) return "impossible extent length";
    if ((extents[i].flags & ~kExtentUnwritten) != 0) return "unknown extent flags";
    if (logical < next) return i == 0 ? "extent before its node's range" : "extents out of order";
    if (logical >= end || length > end - logical) return "extent past its node's range";
    if (physical == 0 || physical >= block_count || length > block_count - physical) {
      return "extent outside the image";
    }
    next = logical + length;
  }
  return nullptr;
}

const char* IndexProblem(const ExtentIndex* indexes, uint32_t count, FileBlock first, FileBlock end,
                         BlockCount block_count) {
  FileBlock next = first;
  for (uint32_t i = 0; i < count; ++i) {
    const FileBlock logical = indexes[i].logical;
    const BlockNumber child = indexes[i].child;
    if (logical < next) {
      return i == 0 ? "extent index before its node's range" : "extent indexes out of order";
    }
    if (logical >= end) return "extent index past its node's range";
    if (child == 0 || child >= block_count) return "extent node outside the image";
    next = logical + 1;
  }
  return nullptr;
}

}  // namespace

Error CheckExtentNode(const std::byte* node, uint32_t capacity, int expected_depth, FileBlock first,
                      FileBlock end, BlockCount block_count, const char** reason) {
  const ExtentHeader& header = *ExtentHeaderOf(node);
  const char* problem = HeaderProblem(header, capacity, expected_depth);
  if (problem == nullptr) {
    problem = header.depth == 0
                  ? LeafProblem(ExtentsOf(node), header.entries, first, end, block_count)
                  : IndexProblem(ExtentIndexesOf(node), header.entries, first, end, block_count);
  }
  if (problem == nullptr) return Error::kOk;
  if (reason != nullptr) *reason = problem;
  return Error::kCorrupt;
}

void InitExtentNode(std::byte* node, uint32_t capacity, uint32_t depth) {
  std::memset(node, 0, sizeof(ExtentHeader) + capacity * sizeof(Extent));
  ExtentHeader* header = ExtentHeaderOf(node);
  header->magic = kExtentMagic;
  header->capacity = static_cast<uint16_t>(capacity);
  header->depth = static_cast<uint16_t>(depth);
}

}  // namespace sluice::format
