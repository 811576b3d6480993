// SPDX-License-Identifier: Apache-2.0
//
// Removal from the end of an extent tree, in steps that fit into a handle. Plan and removal walk
// the same way: from the last entry backwards, into each child whose range ends behind the cut. A
// step that ends between two children cuts at the range's border, so that the removal does not
// look into a node that the plan has not read.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "fs/extent_tree.h"

namespace sluice {

using format::Extent;

namespace {

// Per step, so that neither the handle nor the transaction's revoke records get long.
constexpr int kMaxRevokes = 1024;
constexpr int kMaxExtents = 2048;

// The physical blocks of [start, end of the extent).
BlockRun RunFrom(const Extent& extent, FileBlock start) {
  return {extent.physical + (start - extent.logical), EndOf(extent) - start};
}

}  // namespace

// What a step may use, and what it uses so far.
struct ExtentTree::Budget {
  Budget(const format::Geometry& geometry_of_image, int most, int at_least)
      : geometry(geometry_of_image), max_credits(most), credits(at_least) {}

  const format::Geometry& geometry;
  const int max_credits;
  int credits;
  int revokes = 0;
  int extents = 0;  // extents to free; nodes without any count too
  FileBlock cut = format::kMaxFileBlocks;
  std::vector<GroupNumber> groups;  // whose bitmap and descriptor are counted

  // Counts the blocks' groups and the revokes, if there is room. Until an extent is in the plan
  // there always is: a step that does nothing would be repeated forever.
  bool Charge(BlockRun run, int new_revokes) {
    const size_t known = groups.size();
    const GroupNumber last = geometry.GroupOfBlock(run.start + run.length - 1);
    for (GroupNumber group = geometry.GroupOfBlock(run.start); group <= last; ++group) {
      if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
    }
    const int added = static_cast<int>(groups.size() - known) * BlockAllocator::kCreditsPerRun;
    const bool fits = credits + added <= max_credits && revokes + new_revokes <= kMaxRevokes &&
                      extents < kMaxExtents;
    if (!fits && extents > 0) {
      groups.resize(known);
      return false;
    }
    credits += added;
    revokes += new_revokes;
    return true;
  }
};

// --- Planning ---

Result<bool> ExtentTree::PlanLeaf(Attempt& attempt, const Node& leaf, FileBlock from,
                                  Budget* budget) const {
  if (leaf.entries() == 0) ++budget->extents;
  for (uint32_t i = leaf.entries(); i-- > 0;) {
    const Extent& extent = leaf.extent(i);
    if (EndOf(extent) <= from) break;
    FileBlock start = std::max<FileBlock>(from, extent.logical);
    bool whole = true;
    if (owner_.metadata) {
      const FileBlock room = std::max(1, kMaxRevokes - budget->revokes);
      whole = EndOf(extent) - start <= room;
      if (!whole) start = EndOf(extent) - room;
    }
    const BlockRun run = RunFrom(extent, start);
    RETURN_IF_ERROR(allocator_->PrepareFree(attempt, run));
    if (!budget->Charge(run, owner_.metadata ? static_cast<int>(run.length) : 0)) return false;
    ++budget->extents;
    budget->cut = start;
    if (!whole) return false;
  }
  return true;
}

Result<bool> ExtentTree::PlanNode(Attempt& attempt, const Node& node, FileBlock from,
                                  Budget* budget) const {
  if (node.depth() == 0) return PlanLeaf(attempt, node, from, budget);
  for (uint32_t i = node.entries(); i-- > 0;) {
    if (node.ChildEnd(i) <= from) break;
    const BlockRun block = {node.index(i).child, 1};
    RETURN_IF_ERROR(allocator_->PrepareFree(attempt, block));
    ASSIGN_OR_RETURN(const Node child, Child(attempt, node, i));
    attempt.Pin(child.buffer);
    // Counted as freed although it may stay.
    if (!budget->Charge(block, 1)) return false;
    ASSIGN_OR_RETURN(const bool all, PlanNode(attempt, child, from, budget));
    if (!all) return false;
    budget->cut = std::max<FileBlock>(from, child.first);
  }
  return true;
}

Result<ExtentTree::RemovePlan> ExtentTree::PrepareRemove(Attempt& attempt, FileBlock from,
                                                         int max_credits) const {
  ReaderMutexLock lock(owner_.mutex);
  ASSIGN_OR_RETURN(const Node root, Root());
  // One node of each level stays and is changed.
  Budget budget(allocator_->geometry(), max_credits, static_cast<int>(root.depth()));
  ASSIGN_OR_RETURN(const bool all, PlanNode(attempt, root, from, &budget));
  RemovePlan plan;
  plan.last = all;
  plan.empty = budget.extents == 0 || from >= format::kMaxFileBlocks;
  if (root.depth() == 0 && root.entries() == 0) plan.empty = true;
  plan.from = all ? from : budget.cut;
  if (plan.empty) return plan;
  plan.credits = budget.credits;
  plan.revokes = budget.revokes;
  return plan;
}

// --- Removing ---

void ExtentTree::Release(Handle& handle, BlockRun run, Error* error) {
  const Error freed = allocator_->Free(handle, run);
  if (*error == Error::kOk) *error = freed;
  *owner_.blocks -= std::min(*owner_.blocks, run.length);
}

bool ExtentTree::RemoveInLeaf(Handle& handle, const Node& leaf, FileBlock from, Error* error) {
  uint32_t keep = leaf.entries();
  FileBlock end_of_last = 0;  // of the extent that is cut in two; 0: none is
  while (keep > 0 && EndOf(leaf.extent(keep - 1)) > from) {
    const Extent& extent = leaf.extent(keep - 1);
    const FileBlock start = std::max<FileBlock>(from, extent.logical);
    const BlockRun run = RunFrom(extent, start);
    for (BlockCount i = 0; owner_.metadata && i < run.length; ++i) {
      handle.RevokeBlock(run.start + i);
    }
    Release(handle, run, error);
    if (start > extent.logical) {
      end_of_last = start;
      break;
    }
    --keep;
  }
  // A node that nothing is left of is not changed: it is freed.
  if (keep == 0 && leaf.buffer) return true;
  if (keep == leaf.entries() && end_of_last == 0) return false;
  EditNode(handle, leaf, [&](std::byte* bytes) {
    format::ExtentHeaderOf(bytes)->entries = static_cast<uint16_t>(keep);
    if (end_of_last == 0) return;
    Extent& last = format::ExtentsOf(bytes)[keep - 1];
    last.length = static_cast<uint16_t>(end_of_last - last.logical);
  });
  return keep == 0;
}

bool ExtentTree::RemoveIn(Handle& handle, const Node& node, FileBlock from, Error* error) {
  if (node.depth() == 0) return RemoveInLeaf(handle, node, from, error);
  uint32_t keep = node.entries();
  while (keep > 0 && node.ChildEnd(keep - 1) > from) {
    Attempt prepared;
    const Result<Node> child = Child(prepared, node, keep - 1);
    SLUICE_CHECK(child.ok());
    if (!RemoveIn(handle, *child, from, error)) break;
    handle.Revoke(child->buffer);
    Release(handle, {child->buffer->block(), 1}, error);
    --keep;
  }
  if (keep == 0 && node.buffer) return true;
  if (keep == node.entries()) return false;
  EditNode(handle, node, [&](std::byte* bytes) {
    format::ExtentHeaderOf(bytes)->entries = static_cast<uint16_t>(keep);
  });
  return keep == 0;
}

Error ExtentTree::Remove(Handle& handle, const RemovePlan& plan, bool revoke_data) {
  if (plan.empty) return Error::kOk;
  SLUICE_CHECK(revoke_data == owner_.metadata);
  MutexLock lock(owner_.mutex);
  const Result<Node> root = Root();
  SLUICE_CHECK(root.ok());
  Error error = Error::kOk;
  if (RemoveIn(handle, *root, plan.from, &error)) {
    format::InitExtentNode(owner_.root, format::kInlineExtents, 0);
  }
  return error;
}

}  // namespace sluice
