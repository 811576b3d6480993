// SPDX-License-Identifier: Apache-2.0
#include "alloc/block_group.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"

namespace sluice {

namespace {

// Whether every bit that geometry says is in use is set: fixed metadata and what is past the end.
bool FixedBlocksInUse(const format::Geometry& geometry, GroupNumber group,
                      format::ConstBlockSpan bitmap) {
  const format::Geometry::FixedRanges fixed = geometry.FixedBlocks(group);
  for (const format::BlockRange& range : fixed.ranges()) {
    const auto first = static_cast<uint32_t>(range.start - geometry.GroupStart(group));
    if (!AllBitsSet(bitmap, first, static_cast<uint32_t>(range.count))) return false;
  }
  const uint32_t blocks = geometry.GroupBlocks(group);
  return AllBitsSet(bitmap, blocks, format::kBlocksPerGroup - blocks);
}

}  // namespace

Result<std::unique_ptr<BlockGroup>> BlockGroup::Make(const format::Geometry& geometry,
                                                     GroupNumber group,
                                                     const format::GroupDesc& desc, uint64_t seed,
                                                     BufferRef bitmap) {
  std::unique_ptr<BlockGroup> made(new BlockGroup(geometry.GroupBlocks(group)));
  MutexLock lock(&made->mutex);
  {
    ReaderMutexLock buffer_lock(&bitmap->mutex());
    const format::ConstBlockSpan bytes = std::as_const(*bitmap).span();
    if (format::Checksum(seed, bytes) != desc.block_bitmap_checksum) return Error::kCorrupt;
    if (!FixedBlocksInUse(geometry, group, bytes)) return Error::kCorrupt;
    made->busy_.CopyFrom(bytes);
  }
  made->Count();
  if (made->free_ != desc.free_blocks) return Error::kCorrupt;
  made->bitmap = std::move(bitmap);
  return made;
}

std::unique_ptr<BlockGroup> BlockGroup::MakeUninit(const format::Geometry& geometry,
                                                   GroupNumber group) {
  std::array<std::byte, kBlockSize> bytes = {};
  geometry.MarkFixedBlocks(group, format::BlockSpan(bytes));
  std::unique_ptr<BlockGroup> made(new BlockGroup(geometry.GroupBlocks(group)));
  MutexLock lock(&made->mutex);
  made->busy_.CopyFrom(format::ConstBlockSpan(bytes));
  made->Count();
  return made;
}

void BlockGroup::Count() {
  free_ = busy_.CountClear(blocks_);
  longest_bound_ = busy_.LongestClear(blocks_);
}

bool BlockGroup::Scan(uint32_t from, uint32_t end, uint32_t wanted, BitRun* best) const {
  uint32_t start = busy_.NextClear(from, end);
  while (start < end) {
    const uint32_t stop = busy_.NextSet(start, std::min(end, start + wanted));
    if (stop - start > best->length) *best = {start, stop - start};
    if (best->length >= std::min(wanted, longest_bound_)) return true;
    start = busy_.NextClear(stop, end);
  }
  return false;
}

BitRun BlockGroup::Find(uint32_t goal, uint32_t wanted) {
  SLUICE_DCHECK(wanted > 0);
  if (free_ == 0) return {};
  if (goal >= blocks_) goal = 0;
  if (!busy_.Test(goal)) {
    return {goal, busy_.NextSet(goal, std::min(blocks_, goal + wanted)) - goal};
  }
  BitRun best;
  if (Scan(goal, blocks_, wanted, &best) || Scan(0, goal, wanted, &best)) return best;
  longest_bound_ = best.length;
  return best;
}

void BlockGroup::Take(BitRun run) {
  busy_.Set(run.start, run.length);
  free_ -= run.length;
  longest_bound_ = std::min(longest_bound_, free_);
}

void BlockGroup::Release(BitRun run) {
  busy_.Clear(run.start, run.length);
  free_ += run.length;
  const uint32_t merged =
      busy_.NextSet(run.start + run.length, blocks_) - busy_.ClearRunStart(run.start);
  longest_bound_ = std::max(longest_bound_, merged);
}

}  // namespace sluice
