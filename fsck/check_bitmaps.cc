// SPDX-License-Identifier: Apache-2.0
//
// The block bitmaps against what the inodes own.
#include <algorithm>
#include <cstring>

#include "format/bitmap.h"
#include "fsck/check_state.h"

namespace sluice {

namespace {

using format::ConstBlockSpan;

class BitmapCheck {
 public:
  explicit BitmapCheck(CheckState* state) : state_(state), expected_(kBlockSize) {}

  Error Run();

 private:
  bool Uninit(GroupNumber group) const {
    return (state_->groups[group].desc.flags & format::kGroupBlockUninit) != 0;
  }
  ConstBlockSpan Load(GroupNumber group);
  void CheckGroup(GroupNumber group);
  void CheckUninit(GroupNumber group);
  void CheckFreeCount(GroupNumber group, ConstBlockSpan actual);
  void Compare(GroupNumber group, ConstBlockSpan actual);
  FindingId Classify(GroupNumber group, uint32_t bit, bool expected) const;
  void ReportRun(GroupNumber group, FindingId id, uint32_t first, uint32_t count);

  CheckState* const state_;
  AlignedBuffer expected_;
  AlignedBuffer chunk_;  // neighbouring bitmaps, read at once
  BlockNumber chunk_start_ = 0;
  BlockCount chunk_blocks_ = 0;
  uint64_t unclear_ = 0;
};

Error BitmapCheck::Run() {
  const GroupNumber count = state_->geometry.group_count();
  for (GroupNumber group = 0; group < count; ++group) {
    CheckGroup(group);
    if (group % 16 == 0) RETURN_IF_ERROR(state_->Step(CheckPass::kBitmaps, group, count));
  }
  if (unclear_ != 0) state_->Report(FindingId::kBlocksUnclear)->count = unclear_;
  return state_->Step(CheckPass::kBitmaps, count, count);
}

ConstBlockSpan BitmapCheck::Load(GroupNumber group) {
  const BlockNumber block = state_->geometry.BlockBitmap(group);
  if (block < chunk_start_ || block >= chunk_start_ + chunk_blocks_) {
    BlockCount count = 1;
    for (GroupNumber next = group + 1; next < state_->geometry.group_count(); ++next, ++count) {
      if (Uninit(next) || state_->geometry.BlockBitmap(next) != block + count) break;
    }
    if (chunk_.size() < count << kBlockShift) chunk_ = AlignedBuffer(count << kBlockShift);
    state_->Read(block, chunk_.span().first(count << kBlockShift));
    chunk_start_ = block;
    chunk_blocks_ = count;
  }
  return ConstBlockSpan(chunk_.data() + ((block - chunk_start_) << kBlockShift), kBlockSize);
}

void BitmapCheck::CheckGroup(GroupNumber group) {
  if (Uninit(group)) return CheckUninit(group);
  const GroupInfo& info = state_->groups[group];
  const ConstBlockSpan actual = Load(group);
  const bool good =
      !info.trusted || format::Checksum(state_->seed(), actual) == info.desc.block_bitmap_checksum;
  if (!good) {
    Finding* finding = state_->Report(FindingId::kBlockBitmapChecksum);
    finding->group = group;
    finding->block = state_->geometry.BlockBitmap(group);
    return;
  }
  Compare(group, actual);
  if (info.trusted) CheckFreeCount(group, actual);
}

void BitmapCheck::CheckUninit(GroupNumber group) {
  const BlockMap::Bits* claimed = state_->map->Find(group);
  if (claimed == nullptr) return;
  const ConstBlockSpan bits(*claimed);
  uint32_t first = 0;
  while (first < format::kBlocksPerGroup && !format::TestBit(bits, first)) ++first;
  const uint32_t count = format::CountSetBits(bits, format::kBlocksPerGroup);
  Finding* finding = state_->Report(FindingId::kUninitInUse);
  finding->group = group;
  finding->block = state_->geometry.GroupStart(group) + first;
  finding->count = count;
}

void BitmapCheck::CheckFreeCount(GroupNumber group, ConstBlockSpan actual) {
  const uint32_t blocks = state_->geometry.GroupBlocks(group);
  const uint32_t free = blocks - format::CountSetBits(actual, blocks);
  const format::GroupDesc& desc = state_->groups[group].desc;
  if (desc.free_blocks == free) return;
  Finding* finding = state_->Report(FindingId::kFreeBlocksWrong);
  finding->group = group;
  finding->found = desc.free_blocks;
  finding->expected = free;
}

FindingId BitmapCheck::Classify(GroupNumber group, uint32_t bit, bool expected) const {
  if (!expected) return FindingId::kBlockLeaked;
  if (bit >= state_->geometry.GroupBlocks(group)) return FindingId::kBlockBitmapPadding;
  const BlockNumber block = state_->geometry.GroupStart(group) + bit;
  return state_->geometry.IsDataRange(block, 1) ? FindingId::kBlockNotMarked
                                                : FindingId::kMetadataNotMarked;
}

void BitmapCheck::Compare(GroupNumber group, ConstBlockSpan actual) {
  ExpectedBlockBitmap(*state_, group, format::BlockSpan(expected_.data(), kBlockSize));
  const ConstBlockSpan expected(expected_.data(), kBlockSize);
  if (std::memcmp(expected.data(), actual.data(), kBlockSize) == 0) return;
  FindingId id = FindingId::kBlockLeaked;
  uint32_t first = 0;
  uint32_t count = 0;
  for (uint32_t bit = 0; bit < format::kBitsPerBlock; ++bit) {
    const bool should = format::TestBit(expected, bit);
    const bool differs = should != format::TestBit(actual, bit);
    const FindingId kind = differs ? Classify(group, bit, should) : id;
    if (count != 0 && (!differs || kind != id)) {
      ReportRun(group, id, first, count);
      count = 0;
    }
    if (!differs) continue;
    if (count++ == 0) first = bit;
    id = kind;
  }
  if (count != 0) ReportRun(group, id, first, count);
}

void BitmapCheck::ReportRun(GroupNumber group, FindingId id, uint32_t first, uint32_t count) {
  if (id == FindingId::kBlockLeaked && state_->blocks_unclear) {
    unclear_ += count;
    return;
  }
  Finding* finding = state_->Report(id);
  finding->group = group;
  finding->block = state_->geometry.GroupStart(group) + first;
  finding->count = count;
}

}  // namespace

void ExpectedBlockBitmap(const CheckState& state, GroupNumber group, format::BlockSpan bitmap) {
  const BlockMap::Bits* claimed = state.map->Find(group);
  if (claimed != nullptr) {
    std::memcpy(bitmap.data(), claimed->data(), kBlockSize);
  } else {
    std::memset(bitmap.data(), 0, kBlockSize);
  }
  state.geometry.MarkFixedBlocks(group, bitmap);
}

Error BitmapsPass(CheckState* state) { return BitmapCheck(state).Run(); }

}  // namespace sluice
