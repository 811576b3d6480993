// SPDX-License-Identifier: Apache-2.0
//
// Changes in the middle of an extent tree: a part of one extent changes its kind or becomes a hole.
// The extent is taken out and what it becomes is put in again, piece by piece from the left. Taking
// it out makes room for the first piece, and a node that is split for the second has room for the
// third: a change needs no more of the tree than one insertion.
#include <algorithm>
#include <cstring>

#include "absl/container/inlined_vector.h"
#include "base/check.h"
#include "format/superblock.h"
#include "fs/extent_tree.h"

namespace sluice {

using format::Extent;

namespace {

Extent Part(const Extent& whole, FileBlock first, FileBlock end, uint16_t flags) {
  Extent part = {};
  part.logical = static_cast<uint32_t>(first);
  part.length = static_cast<uint16_t>(end - first);
  part.flags = flags;
  part.physical = whole.physical + (first - whole.logical);
  return part;
}

// What is left of the extent, or becomes of it.
absl::InlinedVector<Extent, 3> Pieces(const Extent& old, FileBlock first, FileBlock end,
                                      ExtentTree::Change change) {
  absl::InlinedVector<Extent, 3> pieces;
  const uint16_t flags = old.flags;
  if (first > old.logical) pieces.push_back(Part(old, old.logical, first, flags));
  if (change != ExtentTree::Change::kHole) {
    const bool unwritten = change == ExtentTree::Change::kUnwritten;
    pieces.push_back(Part(old, first, end, unwritten ? format::kExtentUnwritten : uint16_t{0}));
  }
  if (end < EndOf(old)) pieces.push_back(Part(old, end, EndOf(old), flags));
  return pieces;
}

// The entry of the leaf that holds the block, or the number of entries.
template <typename Node>
uint32_t Holding(const Node& leaf, FileBlock block) {
  for (uint32_t i = 0; i < leaf.entries(); ++i) {
    if (EndOf(leaf.extent(i)) <= block) continue;
    return leaf.extent(i).logical <= block ? i : leaf.entries();
  }
  return leaf.entries();
}

void EraseEntry(std::byte* node, uint32_t index) {
  const uint32_t count = format::ExtentHeaderOf(node)->entries;
  std::byte* at = node + sizeof(format::ExtentHeader) + index * sizeof(Extent);
  std::memmove(at, at + sizeof(Extent), (count - index - 1) * sizeof(Extent));
  format::ExtentHeaderOf(node)->entries = static_cast<uint16_t>(count - 1);
}

// Blocks of one extent lie in no more groups than this.
constexpr int kGroupsPerExtent = 2;
static_assert(format::kMaxExtentLength <= format::kBlocksPerGroup);

}  // namespace

Result<ExtentTree::ChangePlan> ExtentTree::PrepareChange(Attempt& attempt, FileBlock first,
                                                         FileBlock end, Change change) const {
  ReaderMutexLock lock(owner_.mutex);
  Path path;
  RETURN_IF_ERROR(Descend(attempt, first, &path));
  const Node& leaf = path.back().node;
  const uint32_t at = Holding(leaf, first);
  SLUICE_CHECK(at < leaf.entries());
  const Extent& extent = leaf.extent(at);
  const int levels = static_cast<int>(path.size()) - 1;
  ChangePlan plan = {.first = first, .end = std::min(end, EndOf(extent)), .change = change};
  plan.physical = extent.physical + (first - extent.logical);
  plan.credits = levels + (levels + 1) * (1 + BlockAllocator::kCreditsPerRun);
  const size_t pieces = Pieces(extent, first, plan.end, change).size();
  if (leaf.entries() - 1 + pieces > leaf.capacity()) {
    // The leaf splits, and each full node above it; a full root gets a new node below it.
    plan.tree_blocks = 1;
    for (size_t level = path.size() - 1; level-- > 0;) {
      if (path[level].node.entries() < path[level].node.capacity()) break;
      ++plan.tree_blocks;
    }
    if (plan.tree_blocks > format::kMaxExtentDepth) return Error::kCorrupt;
  }
  if (change == Change::kHole) {
    RETURN_IF_ERROR(allocator_->PrepareFree(attempt, {plan.physical, plan.length()}));
    plan.credits += (kGroupsPerExtent + levels) * BlockAllocator::kCreditsPerRun;
    plan.revokes = levels;
  }
  for (Step& step : path) {
    if (!step.node.buffer) continue;
    if (change == Change::kHole) {
      RETURN_IF_ERROR(allocator_->PrepareFree(attempt, {step.node.buffer->block(), 1}));
    }
    attempt.Pin(step.node.buffer);
  }
  return plan;
}

void ExtentTree::RemoveLeaf(Handle& handle, const Path& path, Error* error) {
  for (size_t level = path.size() - 1; level > 0; --level) {
    const Node& node = path[level].node;
    handle.Revoke(node.buffer);
    Release(handle, {node.buffer->block(), 1}, error);
    const Step& above = path[level - 1];
    if (above.node.entries() > 1) {
      EditNode(handle, above.node, [&](std::byte* bytes) { EraseEntry(bytes, above.index); });
      return;
    }
  }
  format::InitExtentNode(owner_.root, format::kInlineExtents, 0);
}

Error ExtentTree::ApplyChange(Handle& handle, BlockReservation& reservation,
                              const ChangePlan& plan) {
  MutexLock lock(owner_.mutex);
  Attempt prepared;
  Path path;
  SLUICE_CHECK(Descend(prepared, plan.first, &path) == Error::kOk);
  const Node& leaf = path.back().node;
  const uint32_t at = Holding(leaf, plan.first);
  SLUICE_CHECK(at < leaf.entries());
  const Extent old = leaf.extent(at);
  SLUICE_CHECK(plan.end <= EndOf(old));
  const auto pieces = Pieces(old, plan.first, plan.end, plan.change);
  Error error = Error::kOk;
  if (pieces.empty() && leaf.entries() == 1 && leaf.buffer) {
    RemoveLeaf(handle, path, &error);
  } else {
    EditNode(handle, leaf, [&](std::byte* bytes) { EraseEntry(bytes, at); });
    for (const Extent& piece : pieces) InsertExtent(handle, reservation, piece);
  }
  if (plan.change == Change::kHole) Release(handle, {plan.physical, plan.length()}, &error);
  return error;
}

}  // namespace sluice
