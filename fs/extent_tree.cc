// SPDX-License-Identifier: Apache-2.0
//
// Lookup and insertion; removal is in extent_remove.cc, changes in the middle in extent_change.cc.
//
// Under a handle nodes are found through the cache again, with an attempt of their own: what was
// prepared is pinned by the operation's attempt, so that is never a miss.
#include "fs/extent_tree.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"

namespace sluice {

using format::Extent;
using format::ExtentHeaderOf;
using format::ExtentIndex;
using format::kExtentNodeOffset;

namespace {

// The smallest i of [0, count) for which `after(i)` holds, or count; `after` holds from some i on.
template <typename After>
uint32_t FirstWhere(uint32_t count, After after) {
  uint32_t low = 0;
  while (low < count) {
    const uint32_t middle = low + (count - low) / 2;
    if (after(middle)) {
      count = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// Whether `left` followed by `right` can be one extent.
bool Joins(const Extent& left, const Extent& right) {
  return left.flags == right.flags && EndOf(left) == right.logical &&
         left.physical + left.length == right.physical &&
         uint32_t{left.length} + right.length <= format::kMaxExtentLength;
}

std::byte* EntriesOf(std::byte* node) { return node + sizeof(format::ExtentHeader); }

template <typename T>
std::array<std::byte, sizeof(Extent)> Raw(const T& entry) {
  static_assert(sizeof(T) == sizeof(Extent));
  std::array<std::byte, sizeof(Extent)> raw;
  std::memcpy(raw.data(), &entry, sizeof(entry));
  return raw;
}

void InsertRaw(std::byte* node, uint32_t position, const std::byte* entry) {
  const uint32_t count = ExtentHeaderOf(node)->entries;
  std::byte* at = EntriesOf(node) + position * sizeof(Extent);
  std::memmove(at + sizeof(Extent), at, (count - position) * sizeof(Extent));
  std::memcpy(at, entry, sizeof(Extent));
  ExtentHeaderOf(node)->entries = static_cast<uint16_t>(count + 1);
}

}  // namespace

ExtentTree::ExtentTree(const ExtentOwner& owner, BufferCache* cache, BlockAllocator* allocator)
    : owner_(owner), cache_(cache), allocator_(allocator) {}

// --- Reading ---

Result<ExtentTree::Node> ExtentTree::Root() const {
  RETURN_IF_ERROR(format::CheckExtentNode(owner_.root, format::kInlineExtents, -1, 0,
                                          format::kMaxFileBlocks,
                                          allocator_->geometry().block_count(), nullptr));
  return Node{.buffer = {}, .bytes = owner_.root, .first = 0, .end = format::kMaxFileBlocks};
}

Result<ExtentTree::Node> ExtentTree::Child(Attempt& attempt, const Node& parent, uint32_t i) const {
  const BlockNumber block = parent.index(i).child;
  if (!allocator_->geometry().IsDataRange(block, 1)) return Error::kCorrupt;
  Node child;
  ASSIGN_OR_RETURN(child.buffer, cache_->Get(attempt, block, NodeIdentity()));
  child.bytes = child.buffer->data() + kExtentNodeOffset;
  child.first = parent.index(i).logical;
  child.end = parent.ChildEnd(i);
  const uint32_t depth = parent.depth() - 1;
  if (!child.buffer->structure_checked()) {
    RETURN_IF_ERROR(format::CheckExtentNode(child.bytes, format::kExtentsPerBlock,
                                            static_cast<int>(depth), child.first, child.end,
                                            allocator_->geometry().block_count(), nullptr));
    child.buffer->set_structure_checked();
  }
  // The depth falls with each step, whatever the pointers say: a cycle ends here.
  if (child.depth() != depth) return Error::kCorrupt;
  return child;
}

Error ExtentTree::Descend(Attempt& attempt, FileBlock block, Path* path) const {
  ASSIGN_OR_RETURN(Node node, Root());
  while (node.depth() > 0) {
    const uint32_t after =
        FirstWhere(node.entries(), [&](uint32_t i) { return node.index(i).logical > block; });
    const uint32_t index = after == 0 ? 0 : after - 1;
    ASSIGN_OR_RETURN(Node child, Child(attempt, node, index));
    path->push_back({std::move(node), index});
    node = std::move(child);
  }
  path->push_back({std::move(node), 0});
  return Error::kOk;
}

Result<Mapping> ExtentTree::Lookup(Attempt& attempt, FileBlock block) const {
  if (block >= format::kMaxFileBlocks) return Error::kFileTooLarge;
  ReaderMutexLock lock(owner_.mutex);
  Path path;
  RETURN_IF_ERROR(Descend(attempt, block, &path));
  const Node& leaf = path.back().node;
  const uint32_t i =
      FirstWhere(leaf.entries(), [&](uint32_t j) { return EndOf(leaf.extent(j)) > block; });
  if (i == leaf.entries()) return Mapping{.logical = block, .length = leaf.end - block};
  const Extent& extent = leaf.extent(i);
  if (extent.logical > block) return Mapping{.logical = block, .length = extent.logical - block};
  if (!allocator_->geometry().IsDataRange(extent.physical, extent.length)) return Error::kCorrupt;
  return Mapping{.logical = block,
                 .length = EndOf(extent) - block,
                 .physical = extent.physical + (block - extent.logical),
                 .unwritten = (extent.flags & format::kExtentUnwritten) != 0};
}

// --- Insertion ---

// Each node on the way may split (old and new node change, the new one is allocated), and the root
// may move to a new node.
int ExtentTree::InsertCredits() const {
  ReaderMutexLock lock(owner_.mutex);
  const int levels = static_cast<int>(depth());
  return levels + (levels + 1) * (1 + BlockAllocator::kCreditsPerRun);
}

BlockCount ExtentTree::InsertBlocks() const {
  ReaderMutexLock lock(owner_.mutex);
  return depth() + 1;
}

Error ExtentTree::PrepareInsert(Attempt& attempt, FileBlock block) const {
  if (block >= format::kMaxFileBlocks) return Error::kFileTooLarge;
  ReaderMutexLock lock(owner_.mutex);
  Path path;
  RETURN_IF_ERROR(Descend(attempt, block, &path));
  bool all_full = true;
  for (Step& step : path) {
    all_full = all_full && step.node.entries() == step.node.capacity();
    if (step.node.buffer) attempt.Pin(std::move(step.node.buffer));
  }
  // Even half full nodes of the greatest depth hold more extents than a file has blocks.
  return all_full && depth() == format::kMaxExtentDepth ? Error::kCorrupt : Error::kOk;
}

ExtentTree::Node ExtentTree::NewNode(Handle& handle, BlockReservation& reservation, uint32_t depth,
                                     BlockNumber goal) {
  const BlockRun run = allocator_->Allocate(handle, reservation, goal, 1);
  Node node;
  node.buffer = cache_->GetNew(run.start, NodeIdentity());
  node.bytes = node.buffer->data() + kExtentNodeOffset;
  EditNode(handle, node, [&](std::byte* bytes) {
    format::InitExtentNode(bytes, format::kExtentsPerBlock, depth);
  });
  node.buffer->set_structure_checked();
  ++*owner_.blocks;
  return node;
}

// Extends the ranges on the way to a block before the first one that they allowed.
void ExtentTree::LowerKeys(Handle& handle, const Path& path, FileBlock block) {
  for (const Step& step : path) {
    if (step.node.depth() == 0 || step.node.index(step.index).logical <= block) continue;
    EditNode(handle, step.node, [&](std::byte* bytes) {
      format::ExtentIndexesOf(bytes)[step.index].logical = static_cast<uint32_t>(block);
    });
  }
}

bool ExtentTree::Merge(Handle& handle, const Node& leaf, uint32_t position, const Extent& extent) {
  const bool left = position > 0 && Joins(leaf.extent(position - 1), extent);
  const bool right = position < leaf.entries() && Joins(extent, leaf.extent(position));
  if (!left && !right) return false;
  EditNode(handle, leaf, [&](std::byte* bytes) {
    Extent* extents = format::ExtentsOf(bytes);
    if (!left) {
      Extent& next = extents[position];
      next.length = static_cast<uint16_t>(next.length + extent.length);
      next.logical = extent.logical;
      next.physical = extent.physical;
      return;
    }
    Extent& previous = extents[position - 1];
    previous.length = static_cast<uint16_t>(previous.length + extent.length);
    if (!right || !Joins(previous, extents[position])) return;
    const uint32_t count = ExtentHeaderOf(bytes)->entries;
    previous.length = static_cast<uint16_t>(previous.length + extents[position].length);
    std::memmove(static_cast<void*>(extents + position), extents + position + 1,
                 (count - position - 1) * sizeof(Extent));
    ExtentHeaderOf(bytes)->entries = static_cast<uint16_t>(count - 1);
  });
  return true;
}

void ExtentTree::GrowRoot(Handle& handle, BlockReservation& reservation, Path* path) {
  const uint32_t depth = (*path)[0].node.depth();
  SLUICE_CHECK(depth < format::kMaxExtentDepth);
  const format::Geometry& geometry = allocator_->geometry();
  Node node = NewNode(handle, reservation, depth,
                      allocator_->GoalForGroup(geometry.GroupOfInode(owner_.ino)));
  node.first = 0;
  node.end = format::kMaxFileBlocks;
  const uint16_t count = ExtentHeaderOf(owner_.root)->entries;
  EditNode(handle, node, [&](std::byte* bytes) {
    std::memcpy(EntriesOf(bytes), EntriesOf(owner_.root), count * sizeof(Extent));
    ExtentHeaderOf(bytes)->entries = count;
  });
  format::InitExtentNode(owner_.root, format::kInlineExtents, depth + 1);
  ExtentIndex only = {};
  only.child = node.buffer->block();
  InsertRaw(owner_.root, 0, Raw(only).data());
  const uint32_t index = std::exchange((*path)[0].index, 0);
  path->insert(path->begin() + 1, {std::move(node), index});
}

// The full node's upper half moves to a new node on its right; if the entry goes behind the last,
// it alone does, so that a file written in order has full nodes.
void ExtentTree::Split(Handle& handle, BlockReservation& reservation, Path* path, size_t level,
                       uint32_t position, const Entry& entry) {
  const Node left = (*path)[level].node;
  const uint32_t count = left.entries();
  const uint32_t at = position == count ? count : count / 2;
  const Node right = NewNode(handle, reservation, left.depth(), left.buffer->block());
  EditNode(handle, right, [&](std::byte* bytes) {
    std::memcpy(EntriesOf(bytes), left.bytes + sizeof(format::ExtentHeader) + at * sizeof(Extent),
                (count - at) * sizeof(Extent));
    ExtentHeaderOf(bytes)->entries = static_cast<uint16_t>(count - at);
    if (position > at || at == count) InsertRaw(bytes, position - at, entry.data());
  });
  if (at < count) {
    EditNode(handle, left, [&](std::byte* bytes) {
      ExtentHeaderOf(bytes)->entries = static_cast<uint16_t>(at);
      if (position <= at) InsertRaw(bytes, position, entry.data());
    });
  }
  ExtentIndex index = {};
  index.logical = right.depth() == 0 ? right.extent(0).logical : right.index(0).logical;
  index.child = right.buffer->block();
  InsertEntry(handle, reservation, path, level - 1, (*path)[level - 1].index + 1, Raw(index));
}

void ExtentTree::InsertEntry(Handle& handle, BlockReservation& reservation, Path* path,
                             size_t level, uint32_t position, const Entry& entry) {
  bool full = (*path)[level].node.entries() == (*path)[level].node.capacity();
  if (full && level == 0) {
    GrowRoot(handle, reservation, path);
    level = 1;
    full = false;
  }
  if (full) {
    Split(handle, reservation, path, level, position, entry);
    return;
  }
  EditNode(handle, (*path)[level].node,
           [&](std::byte* bytes) { InsertRaw(bytes, position, entry.data()); });
}

void ExtentTree::InsertExtent(Handle& handle, BlockReservation& reservation, const Extent& extent) {
  const FileBlock logical = extent.logical;
  Attempt prepared;
  Path path;
  SLUICE_CHECK(Descend(prepared, logical, &path) == Error::kOk);
  LowerKeys(handle, path, logical);
  const Node& leaf = path.back().node;
  const uint32_t position =
      FirstWhere(leaf.entries(), [&](uint32_t i) { return EndOf(leaf.extent(i)) > logical; });
  const FileBlock next =
      position < leaf.entries() ? FileBlock{leaf.extent(position).logical} : leaf.end;
  SLUICE_CHECK(EndOf(extent) <= next);
  if (!Merge(handle, leaf, position, extent)) {
    InsertEntry(handle, reservation, &path, path.size() - 1, position, Raw(extent));
  }
}

void ExtentTree::Insert(Handle& handle, BlockReservation& reservation, FileBlock logical,
                        BlockRun run, bool unwritten) {
  SLUICE_CHECK(run.length > 0 && run.length <= format::kMaxExtentLength);
  SLUICE_CHECK(logical + run.length <= format::kMaxFileBlocks);
  Extent extent = {};
  extent.logical = static_cast<uint32_t>(logical);
  extent.length = static_cast<uint16_t>(run.length);
  extent.flags = unwritten ? format::kExtentUnwritten : uint16_t{0};
  extent.physical = run.start;
  MutexLock lock(owner_.mutex);
  InsertExtent(handle, reservation, extent);
  *owner_.blocks += run.length;
}

}  // namespace sluice
