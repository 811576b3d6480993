// SPDX-License-Identifier: Apache-2.0
//
// Locks: a group's mutex, then `mutex_` (the sums and indexes), which is held for moments only. A
// group's mutex is held over the edits of its bitmap and descriptor, so that they follow the
// in-memory state in order.
//
// Why Allocate cannot fail: the free blocks of loaded groups are never fewer than the claims.
// A claim is made only when the difference allows it, loading adds to the one side, and a block
// leaves both sides at once.
#include "alloc/block_allocator.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "alloc/block_group.h"
#include "alloc/group_index.h"
#include "alloc/pending_frees.h"
#include "base/check.h"
#include "base/mutex.h"

namespace sluice {

namespace {

using format::GroupDesc;

constexpr uint32_t kGroupBlocks = format::kBlocksPerGroup;

// Allocations up to this many blocks are small files' and go one behind the other.
constexpr uint32_t kSmallRun = 16;
// A longer free run than this is no reason to read another bitmap.
constexpr uint32_t kLongRun = 2048;
// Bitmaps that are read for a nearer or longer run, although loaded groups have enough blocks,
// before a claim takes what there is.
constexpr int kMaxLoadsForQuality = 8;

// The part of a run that lies in its first group.
BlockRun FirstPart(BlockRun run) {
  return {run.start, std::min<BlockCount>(run.length, kGroupBlocks - run.start % kGroupBlocks)};
}

BitRun BitsOf(BlockRun part) {
  return {static_cast<uint32_t>(part.start % kGroupBlocks), static_cast<uint32_t>(part.length)};
}

// Calls `visit` with each group's part of a run until it returns an error.
template <typename Visit>
Error ForEachPart(BlockRun run, Visit visit) {
  while (run.length > 0) {
    const BlockRun part = FirstPart(run);
    RETURN_IF_ERROR(visit(part));
    run = {run.start + part.length, run.length - part.length};
  }
  return Error::kOk;
}

}  // namespace

class BlockAllocator::Impl {
 public:
  Impl(GroupTable* table, BufferCache* cache, BlockCount reserved);
  ~Impl();

  Error Claim(Attempt& attempt, BlockNumber goal, BlockCount count, bool privileged);
  void Unclaim(BlockCount count);
  BlockRun Allocate(Handle& handle, BlockNumber goal, uint32_t wanted);
  Error PrepareFree(Attempt& attempt, BlockRun run);
  Error Free(Handle& handle, BlockRun run);
  BlockCount Available(bool privileged) const;
  bool HasPending() const;
  BlockNumber GoalForGroup(GroupNumber group) const;
  Error VerifyGroup(Attempt& attempt, GroupNumber group);
  void SetOnCorrupt(std::function<void(GroupNumber)> on_corrupt);
  const format::Geometry& geometry() const { return geometry_; }

 private:
  BlockGroup* Loaded(GroupNumber group) const {
    return groups_[group].load(std::memory_order_acquire);
  }
  GroupNumber GroupOf(BlockNumber block) const {
    return block < geometry_.block_count() ? geometry_.GroupOfBlock(block) : 0;
  }
  format::BlockIdentity BitmapIdentity() const { return {.kind = format::BlockKind::kBlockBitmap}; }

  BlockCount AvailableLocked(bool privileged) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  std::optional<GroupNumber> GroupToLoadLocked(GroupNumber goal, BlockCount count)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Error Load(Attempt& attempt, GroupNumber group);
  void ReadAndAdopt(GroupNumber group);
  Error Adopt(GroupNumber group, BufferRef bitmap);
  Error Publish(GroupNumber group, std::unique_ptr<BlockGroup> loaded);
  Error TakeOutOfUse(GroupNumber group, Error error);

  BlockRun AllocateIn(Handle& handle, GroupNumber number, uint32_t goal_bit, uint32_t wanted,
                      bool only_if_good);
  void WriteTaken(Handle& handle, GroupNumber number, BlockGroup* group, BitRun run)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group->mutex);
  Error CheckInUse(BlockRun part) const;
  Error FreePart(Handle& handle, BlockRun part);
  void NotePending(Handle& handle, BlockRun part);
  void ReleasePending(Tid tid, Error error);

  GroupTable* const table_;
  BufferCache* const cache_;
  const format::Geometry& geometry_;
  const BlockCount reserved_;
  // Owned; set once, when the group is loaded.
  const std::unique_ptr<std::atomic<BlockGroup*>[]> groups_;
  // Behind the last small allocation whose goal lay in the group; 0: none yet.
  const std::unique_ptr<std::atomic<BlockNumber>[]> cursors_;
  PendingFrees<BlockRun> freed_;

  mutable Mutex mutex_;
  GroupIndex loaded_ ABSL_GUARDED_BY(mutex_);
  GroupIndex unloaded_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<GroupNumber, Error> out_of_use_ ABSL_GUARDED_BY(mutex_);
  BlockCount free_ ABSL_GUARDED_BY(mutex_) = 0;         // not pending, in usable groups
  BlockCount loaded_free_ ABSL_GUARDED_BY(mutex_) = 0;  // the part of it in loaded groups
  BlockCount claimed_ ABSL_GUARDED_BY(mutex_) = 0;
  BlockCount pending_ ABSL_GUARDED_BY(mutex_) = 0;
  int loads_for_quality_ ABSL_GUARDED_BY(mutex_) = 0;  // since the last claim
  std::function<void(GroupNumber)> on_corrupt_ ABSL_GUARDED_BY(mutex_);
};

BlockAllocator::Impl::Impl(GroupTable* table, BufferCache* cache, BlockCount reserved)
    : table_(table),
      cache_(cache),
      geometry_(table->geometry()),
      reserved_(reserved),
      groups_(new std::atomic<BlockGroup*>[geometry_.group_count()]()),
      cursors_(new std::atomic<BlockNumber>[geometry_.group_count()]()),
      loaded_(geometry_.group_count()),
      unloaded_(geometry_.group_count()) {
  MutexLock lock(&mutex_);
  for (GroupNumber group = 0; group < geometry_.group_count(); ++group) {
    const uint32_t free = table_->Get(group).free_blocks;
    unloaded_.Set(group, free);
    free_ += free;
  }
}

BlockAllocator::Impl::~Impl() {
  for (GroupNumber group = 0; group < geometry_.group_count(); ++group) delete Loaded(group);
}

// --- Loading ---

Error BlockAllocator::Impl::Load(Attempt& attempt, GroupNumber group) {
  if (Loaded(group) != nullptr) return Error::kOk;
  {
    MutexLock lock(&mutex_);
    const auto broken = out_of_use_.find(group);
    if (broken != out_of_use_.end()) return broken->second;
  }
  if ((table_->Get(group).flags & format::kGroupBlockUninit) != 0) {
    return Publish(group, BlockGroup::MakeUninit(geometry_, group));
  }
  Result<BufferRef> bitmap = cache_->Get(attempt, geometry_.BlockBitmap(group), BitmapIdentity());
  if (bitmap.ok()) return Adopt(group, std::move(bitmap).value());
  if (!WouldBlock(bitmap)) return TakeOutOfUse(group, bitmap.error());
  // Instead of the cache's own wait, so that an unreadable bitmap costs its group, not every
  // operation that comes by.
  return attempt.Block([this, group] {
    ReadAndAdopt(group);
    return Error::kOk;
  });
}

void BlockAllocator::Impl::ReadAndAdopt(GroupNumber group) {
  Result<BufferRef> bitmap = cache_->GetBlocking(geometry_.BlockBitmap(group), BitmapIdentity());
  // The next attempt meets the error again.
  IgnoreError(bitmap.ok() ? Adopt(group, std::move(bitmap).value())
                          : TakeOutOfUse(group, bitmap.error()));
}

Error BlockAllocator::Impl::Adopt(GroupNumber group, BufferRef bitmap) {
  Result<std::unique_ptr<BlockGroup>> loaded =
      BlockGroup::Make(geometry_, group, table_->Get(group), cache_->seed(), std::move(bitmap));
  if (!loaded.ok()) return TakeOutOfUse(group, loaded.error());
  return Publish(group, std::move(loaded).value());
}

Error BlockAllocator::Impl::Publish(GroupNumber group, std::unique_ptr<BlockGroup> loaded) {
  MutexLock group_lock(&loaded->mutex);
  MutexLock lock(&mutex_);
  // Another thread may have been faster; what it made is newer than ours.
  if (Loaded(group) != nullptr) return Error::kOk;
  unloaded_.Set(group, 0);
  loaded_.Set(group, loaded->longest_bound());
  loaded_free_ += loaded->free();
  groups_[group].store(loaded.release(), std::memory_order_release);
  return Error::kOk;
}

Error BlockAllocator::Impl::TakeOutOfUse(GroupNumber group, Error error) {
  MutexLock lock(&mutex_);
  // Another thread has loaded the group, and changed it between our looks at bitmap and
  // descriptor.
  if (Loaded(group) != nullptr) return Error::kOk;
  const auto [at, inserted] = out_of_use_.try_emplace(group, error);
  if (inserted) {
    free_ -= table_->Get(group).free_blocks;
    unloaded_.Set(group, 0);
    if (on_corrupt_) on_corrupt_(group);
  }
  return at->second;
}

// --- Claims ---

BlockCount BlockAllocator::Impl::AvailableLocked(bool privileged) const {
  const BlockCount kept = claimed_ + (privileged ? 0 : reserved_);
  return free_ > kept ? free_ - kept : 0;
}

std::optional<GroupNumber> BlockAllocator::Impl::GroupToLoadLocked(GroupNumber goal,
                                                                   BlockCount count) {
  const auto wanted = static_cast<uint32_t>(std::clamp<BlockCount>(count, 1, kLongRun));
  const std::optional<GroupNumber> near = unloaded_.Find(goal, wanted);
  if (!near || loaded_free_ - claimed_ < count) return near;
  if (loads_for_quality_ >= kMaxLoadsForQuality) return std::nullopt;
  const std::optional<GroupNumber> loaded = loaded_.Find(goal, wanted);
  const GroupNumber groups = geometry_.group_count();
  const bool nearer =
      !loaded || RingDistance(goal, *near, groups) < RingDistance(goal, *loaded, groups);
  const bool longer = loaded && !loaded_.Promises(*loaded, wanted);
  if (!unloaded_.Promises(*near, wanted) || (!nearer && !longer)) return std::nullopt;
  ++loads_for_quality_;
  return near;
}

Error BlockAllocator::Impl::Claim(Attempt& attempt, BlockNumber goal, BlockCount count,
                                  bool privileged) {
  for (;;) {
    std::optional<GroupNumber> group;
    {
      MutexLock lock(&mutex_);
      if (AvailableLocked(privileged) < count) return Error::kNoSpace;
      group = GroupToLoadLocked(GroupOf(goal), count);
      if (!group) {
        SLUICE_CHECK(loaded_free_ - claimed_ >= count);
        claimed_ += count;
        loads_for_quality_ = 0;
        return Error::kOk;
      }
    }
    const Error error = Load(attempt, *group);
    if (WouldBlock(error)) return error;
    // Any other error took the group out of use; the sums say so.
  }
}

void BlockAllocator::Impl::Unclaim(BlockCount count) {
  MutexLock lock(&mutex_);
  claimed_ -= count;
}

// --- Allocation ---

BlockRun BlockAllocator::Impl::Allocate(Handle& handle, BlockNumber goal, uint32_t wanted) {
  const GroupNumber home = GroupOf(goal);
  BlockRun run;
  if (Loaded(home) != nullptr) {
    run = AllocateIn(handle, home, static_cast<uint32_t>(goal % kGroupBlocks), wanted, true);
  }
  // A group that looked free may be full when its turn comes: others allocate too.
  while (run.length == 0) {
    std::optional<GroupNumber> group;
    {
      MutexLock lock(&mutex_);
      group = loaded_.Find(home, wanted);
    }
    SLUICE_CHECK(group.has_value());
    const BlockNumber from = cursors_[*group].load(std::memory_order_relaxed);
    const bool own = from != 0 && geometry_.GroupOfBlock(from) == *group;
    run = AllocateIn(handle, *group, own ? from % kGroupBlocks : 0, wanted, false);
  }
  if (wanted <= kSmallRun) {
    const BlockNumber next = run.start + run.length;
    cursors_[home].store(next, std::memory_order_relaxed);
    cursors_[geometry_.GroupOfBlock(run.start)].store(next, std::memory_order_relaxed);
  }
  return run;
}

// `only_if_good`: not a run that is shorter than wanted, unless it begins at the goal.
BlockRun BlockAllocator::Impl::AllocateIn(Handle& handle, GroupNumber number, uint32_t goal_bit,
                                          uint32_t wanted, bool only_if_good) {
  BlockGroup* group = Loaded(number);
  MutexLock group_lock(&group->mutex);
  const BitRun run = group->Find(goal_bit, wanted);
  const bool take =
      run.length > 0 && (!only_if_good || run.length == wanted || run.start == goal_bit);
  if (take) {
    group->Take(run);
    WriteTaken(handle, number, group, run);
  }
  MutexLock lock(&mutex_);
  loaded_.Set(number, group->longest_bound());
  if (!take) return {};
  free_ -= run.length;
  loaded_free_ -= run.length;
  claimed_ -= run.length;
  return {geometry_.GroupStart(number) + run.start, run.length};
}

void BlockAllocator::Impl::WriteTaken(Handle& handle, GroupNumber number, BlockGroup* group,
                                      BitRun run) {
  const bool fresh = !group->bitmap;
  if (fresh) group->bitmap = cache_->GetNew(geometry_.BlockBitmap(number), BitmapIdentity());
  uint64_t checksum;
  {
    BlockEdit edit = handle.Edit(group->bitmap);
    if (fresh) geometry_.MarkFixedBlocks(number, edit.span());
    format::SetBits(edit.span(), run.start, run.length);
    checksum = table_->BitmapChecksum(edit.span());
  }
  table_->Update(handle, number, [&](GroupDesc& desc) {
    desc.flags = desc.flags & ~format::kGroupBlockUninit;
    desc.free_blocks = desc.free_blocks - run.length;
    desc.block_bitmap_checksum = checksum;
  });
}

// --- Freeing ---

// That all blocks of the part are in use as the bitmap tells.
Error BlockAllocator::Impl::CheckInUse(BlockRun part) const {
  BlockGroup* group = Loaded(GroupOf(part.start));
  SLUICE_CHECK(group != nullptr);
  MutexLock group_lock(&group->mutex);
  if (!group->bitmap) return Error::kCorrupt;
  ReaderMutexLock buffer_lock(&group->bitmap->mutex());
  const BitRun bits = BitsOf(part);
  return AllBitsSet(group->bitmap->span(), bits.start, bits.length) ? Error::kOk : Error::kCorrupt;
}

Error BlockAllocator::Impl::PrepareFree(Attempt& attempt, BlockRun run) {
  if (!geometry_.IsDataRange(run.start, run.length)) return Error::kCorrupt;
  return ForEachPart(run, [&](BlockRun part) {
    RETURN_IF_ERROR(Load(attempt, GroupOf(part.start)));
    return CheckInUse(part);
  });
}

Error BlockAllocator::Impl::Free(Handle& handle, BlockRun run) {
  if (!geometry_.IsDataRange(run.start, run.length)) return Error::kCorrupt;
  if (FirstPart(run).length < run.length) {
    RETURN_IF_ERROR(ForEachPart(run, [&](BlockRun part) { return CheckInUse(part); }));
  }
  return ForEachPart(run, [&](BlockRun part) { return FreePart(handle, part); });
}

Error BlockAllocator::Impl::FreePart(Handle& handle, BlockRun part) {
  const GroupNumber number = GroupOf(part.start);
  const BitRun bits = BitsOf(part);
  BlockGroup* group = Loaded(number);
  SLUICE_CHECK(group != nullptr);
  {
    MutexLock group_lock(&group->mutex);
    // Only holders of the group's mutex change the bitmap, so it may be read without the buffer's.
    if (!group->bitmap || !AllBitsSet(group->bitmap->span(), bits.start, bits.length)) {
      return Error::kCorrupt;
    }
    uint64_t checksum;
    {
      BlockEdit edit = handle.Edit(group->bitmap);
      ClearBits(edit.span(), bits.start, bits.length);
      checksum = table_->BitmapChecksum(edit.span());
    }
    table_->Update(handle, number, [&](GroupDesc& desc) {
      desc.free_blocks = desc.free_blocks + bits.length;
      desc.block_bitmap_checksum = checksum;
    });
  }
  NotePending(handle, part);
  return Error::kOk;
}

void BlockAllocator::Impl::NotePending(Handle& handle, BlockRun part) {
  table_->AddPending(static_cast<int64_t>(part.length));
  {
    MutexLock lock(&mutex_);
    pending_ += part.length;
  }
  const Tid tid = handle.tid();
  if (freed_.Add(tid, part)) {
    handle.OnCommit([this, tid](Error error) { ReleasePending(tid, error); });
  }
}

// Runs when the transaction is durable. After a failed commit the blocks stay out of reach: on
// disk they still belong to their files.
void BlockAllocator::Impl::ReleasePending(Tid tid, Error error) {
  const std::vector<BlockRun> freed = freed_.Take(tid);
  if (error != Error::kOk) return;
  for (const BlockRun& part : freed) {
    const GroupNumber number = GroupOf(part.start);
    BlockGroup* group = Loaded(number);
    MutexLock group_lock(&group->mutex);
    group->Release(BitsOf(part));
    MutexLock lock(&mutex_);
    free_ += part.length;
    loaded_free_ += part.length;
    pending_ -= part.length;
    loaded_.Set(number, group->longest_bound());
    table_->AddPending(-static_cast<int64_t>(part.length));
  }
}

// --- The rest ---

BlockCount BlockAllocator::Impl::Available(bool privileged) const {
  MutexLock lock(&mutex_);
  return AvailableLocked(privileged);
}

bool BlockAllocator::Impl::HasPending() const {
  MutexLock lock(&mutex_);
  return pending_ > 0;
}

BlockNumber BlockAllocator::Impl::GoalForGroup(GroupNumber group) const {
  const BlockNumber next = cursors_[group].load(std::memory_order_relaxed);
  return next != 0 && next < geometry_.block_count() ? next : geometry_.GroupStart(group);
}

Error BlockAllocator::Impl::VerifyGroup(Attempt& attempt, GroupNumber number) {
  RETURN_IF_ERROR(Load(attempt, number));
  BlockGroup* group = Loaded(number);
  MutexLock group_lock(&group->mutex);
  const GroupDesc desc = table_->Get(number);
  const uint32_t blocks = geometry_.GroupBlocks(number);
  if (!group->bitmap) {
    const bool whole = (desc.flags & format::kGroupBlockUninit) != 0;
    return whole && group->free() == desc.free_blocks ? Error::kOk : Error::kCorrupt;
  }
  ReaderMutexLock buffer_lock(&group->bitmap->mutex());
  const format::ConstBlockSpan bytes = group->bitmap->span();
  if (table_->BitmapChecksum(bytes) != desc.block_bitmap_checksum) return Error::kCorrupt;
  if (blocks - format::CountSetBits(bytes, blocks) != desc.free_blocks) return Error::kCorrupt;
  uint32_t free = 0;
  for (uint32_t bit = 0; bit < blocks; ++bit) {
    if (group->IsBusy(bit)) continue;
    if (format::TestBit(bytes, bit)) return Error::kCorrupt;
    ++free;
  }
  return free == group->free() ? Error::kOk : Error::kCorrupt;
}

void BlockAllocator::Impl::SetOnCorrupt(std::function<void(GroupNumber)> on_corrupt) {
  MutexLock lock(&mutex_);
  on_corrupt_ = std::move(on_corrupt);
}

// --- The public face ---

BlockReservation::BlockReservation(BlockReservation&& other) noexcept
    : allocator_(std::exchange(other.allocator_, nullptr)), left_(std::exchange(other.left_, 0)) {}

BlockReservation& BlockReservation::operator=(BlockReservation&& other) noexcept {
  std::swap(allocator_, other.allocator_);
  std::swap(left_, other.left_);
  return *this;
}

BlockReservation::~BlockReservation() {
  if (left_ > 0) allocator_->impl_->Unclaim(left_);
}

BlockAllocator::BlockAllocator(GroupTable* table, BufferCache* cache, BlockCount reserved_blocks)
    : impl_(std::make_unique<Impl>(table, cache, reserved_blocks)) {}

BlockAllocator::~BlockAllocator() = default;

Result<BlockReservation> BlockAllocator::Reserve(Attempt& attempt, BlockNumber goal,
                                                 BlockCount count, bool privileged) {
  RETURN_IF_ERROR(impl_->Claim(attempt, goal, count, privileged));
  BlockReservation reservation;
  reservation.allocator_ = this;
  reservation.left_ = count;
  return reservation;
}

BlockRun BlockAllocator::Allocate(Handle& handle, BlockReservation& reservation, BlockNumber goal,
                                  BlockCount max_length) {
  SLUICE_CHECK(reservation.left_ > 0 && max_length > 0);
  const auto wanted =
      static_cast<uint32_t>(std::min({max_length, reservation.left_, BlockCount{kGroupBlocks}}));
  const BlockRun run = impl_->Allocate(handle, goal, wanted);
  reservation.left_ -= run.length;
  return run;
}

void BlockAllocator::SetOnCorrupt(std::function<void(GroupNumber)> on_corrupt) {
  impl_->SetOnCorrupt(std::move(on_corrupt));
}

Error BlockAllocator::PrepareFree(Attempt& attempt, BlockRun run) {
  return impl_->PrepareFree(attempt, run);
}

Error BlockAllocator::Free(Handle& handle, BlockRun run) { return impl_->Free(handle, run); }

BlockCount BlockAllocator::available(bool privileged) const { return impl_->Available(privileged); }

bool BlockAllocator::HasPending() const { return impl_->HasPending(); }

BlockNumber BlockAllocator::GoalForGroup(GroupNumber group) const {
  return impl_->GoalForGroup(group);
}

Error BlockAllocator::VerifyGroup(Attempt& attempt, GroupNumber group) {
  return impl_->VerifyGroup(attempt, group);
}

const format::Geometry& BlockAllocator::geometry() const { return impl_->geometry(); }

}  // namespace sluice
