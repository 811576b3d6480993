// SPDX-License-Identifier: Apache-2.0
//
// Blocks that were claimed twice: the bit map does not know by whom, so the inodes are read once
// more to find all owners. Runs only when there is something to find.
#include <algorithm>
#include <vector>

#include "fsck/extent_walk.h"
#include "fsck/inode_scan.h"

namespace sluice {

namespace {

using format::BlockRange;

// Owned parts kept; a hostile image may have any number.
constexpr size_t kMaxParts = 100000;

struct Part {
  BlockRange range;
  InodeNumber ino;
};

BlockNumber EndOf(const BlockRange& range) { return range.start + range.count; }

// The collisions as disjoint ascending ranges.
std::vector<BlockRange> SharedRanges(const CheckState& state) {
  std::vector<BlockRange> ranges;
  for (const CheckState::Collision& collision : state.collisions) {
    ranges.push_back(collision.range);
  }
  std::ranges::sort(ranges, {}, &BlockRange::start);
  std::vector<BlockRange> merged;
  for (const BlockRange& range : ranges) {
    if (!merged.empty() && range.start <= EndOf(merged.back())) {
      merged.back().count = std::max(EndOf(merged.back()), EndOf(range)) - merged.back().start;
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

// Collects what an inode has of the shared ranges. Findings about its nodes were made before.
class OwnerVisitor final : public ExtentVisitor {
 public:
  explicit OwnerVisitor(CheckState* state) : state_(state), shared_(SharedRanges(*state)) {}

  void set_ino(InodeNumber ino) { ino_ = ino; }
  std::vector<Part> TakeParts() { return std::move(parts_); }

  bool OnNode(BlockNumber block) override {
    if (!state_->geometry.IsDataRange(block, 1)) return false;
    Note({block, 1});
    return true;
  }
  void OnExtent(const format::Extent& extent) override {
    const BlockRange range = {extent.physical, extent.length};
    if (ino_ == format::kJournalInode) return;
    if (state_->geometry.IsDataRange(range.start, range.count)) Note(range);
  }
  void OnBadNode(BlockNumber, const char*) override {}

  void Note(BlockRange range) {
    auto shared = std::ranges::upper_bound(shared_, range.start, {}, &EndOf);
    for (; shared != shared_.end() && shared->start < EndOf(range); ++shared) {
      if (parts_.size() >= kMaxParts) return;
      const BlockNumber start = std::max(range.start, shared->start);
      parts_.push_back({{start, std::min(EndOf(range), EndOf(*shared)) - start}, ino_});
    }
  }

 private:
  CheckState* const state_;
  const std::vector<BlockRange> shared_;
  InodeNumber ino_ = 0;
  std::vector<Part> parts_;
};

void ReportShared(CheckState* state, const Part& one, const Part& other) {
  Finding* finding = state->Report(FindingId::kBlockShared);
  finding->block = other.range.start;
  finding->count = std::min(EndOf(one.range), EndOf(other.range)) - other.range.start;
  finding->ino = one.ino;
  finding->other = other.ino;
}

// One finding for each part that begins within an earlier one.
void ReportOverlaps(CheckState* state, std::vector<Part> parts) {
  std::ranges::stable_sort(parts, {}, [](const Part& part) { return part.range.start; });
  const Part* longest = nullptr;
  for (const Part& part : parts) {
    if (longest != nullptr && part.range.start < EndOf(longest->range)) {
      ReportShared(state, *longest, part);
    }
    if (longest == nullptr || EndOf(part.range) > EndOf(longest->range)) longest = &part;
  }
}

}  // namespace

Error SharedPass(CheckState* state) {
  if (!state->collided) return Error::kOk;
  OwnerVisitor owners(state);
  ExtentWalk walk(state);
  InodeScan scan(state);
  owners.set_ino(format::kJournalInode);
  const format::SuperSector0& fixed = state->report()->super.fixed;
  for (uint32_t i = 0; i < fixed.journal_run_count; ++i) {
    owners.Note({fixed.journal_runs[i].start, fixed.journal_runs[i].length});
  }
  for (GroupNumber group = 0; group < state->groups.size(); ++group) {
    scan.Group(group, [&](InodeNumber ino, const format::Inode& inode) {
      const InodeInfo* info = state->InfoOfInode(ino);
      if (info->type == InodeInfo::kFree || info->type == InodeInfo::kDamaged) return;
      owners.set_ino(ino);
      if (HasExtents(inode)) walk.Run(ino, inode.generation, RootOf(inode), &owners);
      if (state->geometry.IsDataRange(inode.xattr_block, 1)) owners.Note({inode.xattr_block, 1});
    });
    RETURN_IF_ERROR(state->Step(CheckPass::kInodes, group + 1, state->groups.size()));
  }
  ReportOverlaps(state, owners.TakeParts());
  return Error::kOk;
}

}  // namespace sluice
