// SPDX-License-Identifier: Apache-2.0
//
// The group table.
#include <algorithm>

#include "format/bitmap.h"
#include "fsck/check_state.h"

namespace sluice {

namespace {

using format::ConstBlockSpan;
using format::Geometry;

constexpr uint64_t kChunkBlocks = 256;

// A descriptor that cannot be believed: the inode bitmap tells how far the inode table was used,
// more or less.
uint32_t GuessHighWaterMark(CheckState* state, GroupNumber group) {
  const ConstBlockSpan bitmap = state->ReadOne(state->geometry.InodeBitmap(group));
  uint32_t mark = state->geometry.inodes_per_group();
  while (mark > 0 && !format::TestBit(bitmap, mark - 1)) --mark;
  return (mark + format::kInodesPerBlock - 1) / format::kInodesPerBlock * format::kInodesPerBlock;
}

void LoadGroup(CheckState* state, GroupNumber group, const format::GroupDesc& desc,
               bool block_is_good) {
  GroupInfo& info = state->groups[group];
  info.desc = desc;
  info.trusted = block_is_good;
  const char* reason = nullptr;
  if (format::CheckGroupDesc(state->geometry, group, desc, &reason) == Error::kOk) return;
  if (block_is_good) {
    Finding* finding = state->Report(FindingId::kGroupDescBad);
    finding->group = group;
    finding->text = reason;
  }
  info.trusted = false;
  info.desc.flags = 0;
  info.desc.inode_table_used = GuessHighWaterMark(state, group);
}

void LoadTableBlock(CheckState* state, BlockNumber number, ConstBlockSpan block) {
  const char* reason = nullptr;
  const bool good = format::VerifyBlock(state->seed(), number, {format::BlockKind::kGroupTable},
                                        block, &reason) == Error::kOk;
  if (!good) {
    Finding* finding = state->Report(FindingId::kGroupTableBad);
    finding->block = number;
    finding->text = reason;
  }
  const uint64_t first = (number - format::kGroupTableStart) * format::kGroupDescsPerBlock;
  for (uint32_t i = 0; i < format::kGroupDescsPerBlock; ++i) {
    if (first + i >= state->groups.size()) break;
    LoadGroup(state, static_cast<GroupNumber>(first + i), *format::GroupDescAt(block.data(), i),
              good);
  }
}

}  // namespace

Error GroupsPass(CheckState* state) {
  state->groups.resize(state->geometry.group_count());
  state->map = std::make_unique<BlockMap>(state->geometry.group_count());
  const uint64_t blocks = state->report()->super.fixed.group_table_blocks;
  AlignedBuffer chunk(std::min(blocks, kChunkBlocks) << kBlockShift);
  for (uint64_t done = 0; done < blocks; done += kChunkBlocks) {
    const uint64_t count = std::min(kChunkBlocks, blocks - done);
    const BlockNumber first = format::kGroupTableStart + done;
    state->Read(first, chunk.span().first(count << kBlockShift));
    for (uint64_t i = 0; i < count; ++i) {
      LoadTableBlock(state, first + i,
                     ConstBlockSpan(chunk.data() + (i << kBlockShift), kBlockSize));
    }
    RETURN_IF_ERROR(state->Step(CheckPass::kInodes, 0, state->groups.size()));
  }
  return Error::kOk;
}

}  // namespace sluice
