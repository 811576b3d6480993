// SPDX-License-Identifier: Apache-2.0
//
// Locks: a group's mutex, then `mutex_` (which groups have numbers), which is held for moments.
//
// The high-water mark moves by one table block at a time, so that one credit pays for it: a number
// is claimed only below the mark or in the block right behind it. When others have claimed all of
// that block, the next creator waits until one of them has been allocated or given back.
#include "alloc/inode_allocator.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "alloc/inode_group.h"
#include "alloc/pending_frees.h"
#include "base/check.h"
#include "base/log.h"
#include "base/mutex.h"
#include "format/bitmap.h"
#include "format/inode.h"

namespace sluice {

namespace {

using format::GroupDesc;
using format::kInodesPerBlock;

// Groups that one search for a directory's place looks at.
constexpr GroupNumber kMaxGroupsToCompare = 1024;

// splitmix64's finaliser.
uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

class InodeAllocator::Impl {
 public:
  Impl(GroupTable* table, BufferCache* cache);
  ~Impl();

  Result<InodeNumber> Claim(Attempt& attempt, InodeNumber parent, bool directory,
                            BufferRef* table_block);
  void Unclaim(InodeNumber ino);
  AllocatedInode Allocate(Handle& handle, InodeNumber ino, BufferRef table_block, bool directory);
  Error PrepareFree(Attempt& attempt, InodeNumber ino);
  Error Free(Handle& handle, InodeNumber ino, bool directory);
  Result<bool> IsUsed(Attempt& attempt, InodeNumber ino);
  bool HasPending() const;
  void SetOnCorrupt(std::function<void(GroupNumber)> on_corrupt);

 private:
  InodeGroup* Loaded(GroupNumber group) const {
    return groups_[group].load(std::memory_order_acquire);
  }
  format::BlockIdentity BitmapIdentity() const { return {.kind = format::BlockKind::kInodeBitmap}; }
  format::BlockIdentity TableIdentity() const { return {.kind = format::BlockKind::kInodeTable}; }

  Error Load(Attempt& attempt, GroupNumber group);
  void ReadAndAdopt(GroupNumber group);
  Error Adopt(GroupNumber group, BufferRef bitmap);
  Error Publish(GroupNumber group, std::unique_ptr<InodeGroup> loaded);
  Error TakeOutOfUse(GroupNumber group, Error error);

  std::optional<GroupNumber> Choose(InodeNumber parent, bool directory) const;
  std::optional<GroupNumber> ChooseSpread(GroupNumber from) const;
  std::optional<GroupNumber> ChooseNear(GroupNumber from) const;
  bool HasNumbers(GroupNumber group) const;
  Result<InodeNumber> ClaimIn(Attempt& attempt, GroupNumber number);
  bool RecordIsFree(InodeNumber ino, const BufferRef& table_block) const;
  void NoteAvailable(GroupNumber number, const InodeGroup* group)
      ABSL_SHARED_LOCKS_REQUIRED(group->mutex);
  void EndClaim(InodeGroup* group, uint32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(group->mutex);

  BufferRef TableBlock(InodeGroup* group, InodeNumber ino, BufferRef prepared, bool* fresh)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group->mutex);
  uint32_t InitRecord(Handle& handle, InodeNumber ino, const BufferRef& buffer, bool fresh);
  uint64_t SetUsed(Handle& handle, InodeGroup* group, InodeNumber ino)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group->mutex);
  void ReleasePending(Tid tid, Error error);

  GroupTable* const table_;
  BufferCache* const cache_;
  const format::Geometry& geometry_;
  // Owned; set once, when the group is loaded.
  const std::unique_ptr<std::atomic<InodeGroup*>[]> groups_;
  std::atomic<uint64_t> directories_made_{0};
  std::atomic<uint64_t> pending_{0};
  PendingFrees<InodeNumber> freed_;

  mutable Mutex mutex_;
  CondVar claim_ended_;
  uint64_t claims_ended_ ABSL_GUARDED_BY(mutex_) = 0;  // of numbers beyond a high-water mark
  absl::btree_set<GroupNumber> with_numbers_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<GroupNumber, Error> out_of_use_ ABSL_GUARDED_BY(mutex_);
  std::function<void(GroupNumber)> on_corrupt_ ABSL_GUARDED_BY(mutex_);
};

InodeAllocator::Impl::Impl(GroupTable* table, BufferCache* cache)
    : table_(table),
      cache_(cache),
      geometry_(table->geometry()),
      groups_(new std::atomic<InodeGroup*>[geometry_.group_count()]()) {
  MutexLock lock(&mutex_);
  for (GroupNumber group = 0; group < geometry_.group_count(); ++group) {
    if (table_->Get(group).free_inodes > 0) with_numbers_.insert(with_numbers_.end(), group);
  }
}

InodeAllocator::Impl::~Impl() {
  for (GroupNumber group = 0; group < geometry_.group_count(); ++group) delete Loaded(group);
}

// --- Loading (as the block allocator does) ---

Error InodeAllocator::Impl::Load(Attempt& attempt, GroupNumber group) {
  if (Loaded(group) != nullptr) return Error::kOk;
  {
    MutexLock lock(&mutex_);
    const auto broken = out_of_use_.find(group);
    if (broken != out_of_use_.end()) return broken->second;
  }
  if ((table_->Get(group).flags & format::kGroupInodeUninit) != 0) {
    return Publish(group, InodeGroup::MakeUninit(geometry_));
  }
  Result<BufferRef> bitmap = cache_->Get(attempt, geometry_.InodeBitmap(group), BitmapIdentity());
  if (bitmap.ok()) return Adopt(group, std::move(bitmap).value());
  if (!WouldBlock(bitmap)) return TakeOutOfUse(group, bitmap.error());
  return attempt.Block([this, group] {
    ReadAndAdopt(group);
    return Error::kOk;
  });
}

void InodeAllocator::Impl::ReadAndAdopt(GroupNumber group) {
  Result<BufferRef> bitmap = cache_->GetBlocking(geometry_.InodeBitmap(group), BitmapIdentity());
  // The next attempt meets the error again.
  IgnoreError(bitmap.ok() ? Adopt(group, std::move(bitmap).value())
                          : TakeOutOfUse(group, bitmap.error()));
}

Error InodeAllocator::Impl::Adopt(GroupNumber group, BufferRef bitmap) {
  Result<std::unique_ptr<InodeGroup>> loaded =
      InodeGroup::Make(geometry_, table_->Get(group), cache_->seed(), std::move(bitmap));
  if (!loaded.ok()) return TakeOutOfUse(group, loaded.error());
  return Publish(group, std::move(loaded).value());
}

Error InodeAllocator::Impl::Publish(GroupNumber group, std::unique_ptr<InodeGroup> loaded) {
  MutexLock lock(&mutex_);
  // Another thread may have been faster; what it made is newer than ours.
  if (Loaded(group) == nullptr) {
    groups_[group].store(loaded.release(), std::memory_order_release);
  }
  return Error::kOk;
}

Error InodeAllocator::Impl::TakeOutOfUse(GroupNumber group, Error error) {
  MutexLock lock(&mutex_);
  // Another thread has loaded the group, and changed it between our looks at bitmap and
  // descriptor.
  if (Loaded(group) != nullptr) return Error::kOk;
  const auto [at, inserted] = out_of_use_.try_emplace(group, error);
  if (inserted) {
    with_numbers_.erase(group);
    if (on_corrupt_) on_corrupt_(group);
  }
  return at->second;
}

// --- Choosing a group ---

bool InodeAllocator::Impl::HasNumbers(GroupNumber group) const {
  MutexLock lock(&mutex_);
  return with_numbers_.contains(group);
}

// The first group from `from`, around, that has a number.
std::optional<GroupNumber> InodeAllocator::Impl::ChooseNear(GroupNumber from) const {
  MutexLock lock(&mutex_);
  if (with_numbers_.empty()) return std::nullopt;
  const auto at = with_numbers_.lower_bound(from);
  return at == with_numbers_.end() ? *with_numbers_.begin() : *at;
}

// Directories of the root are spread: of the groups with at least average room the one with the
// fewest directories.
std::optional<GroupNumber> InodeAllocator::Impl::ChooseSpread(GroupNumber from) const {
  const GroupNumber groups = geometry_.group_count();
  const SpaceTotals totals = table_->totals();
  std::optional<GroupNumber> best;
  uint32_t fewest = 0;
  for (GroupNumber i = 0; i < std::min(groups, kMaxGroupsToCompare); ++i) {
    const GroupNumber group = (from + i) % groups;
    const GroupDesc desc = table_->Get(group);
    if (uint64_t{desc.free_inodes} * groups < totals.free_inodes) continue;
    if (uint64_t{desc.free_blocks} * groups < totals.free_blocks) continue;
    if (best && desc.directories >= fewest) continue;
    if (!HasNumbers(group)) continue;
    best = group;
    fewest = desc.directories;
    if (fewest == 0) break;
  }
  return best;
}

// Orlov's rules (ext4 ialloc.c): other directories lie near their parent while the group is not
// crowded.
std::optional<GroupNumber> InodeAllocator::Impl::Choose(InodeNumber parent, bool directory) const {
  const GroupNumber home = geometry_.ValidInode(parent) ? geometry_.GroupOfInode(parent) : 0;
  if (!directory) return ChooseNear(home);
  const GroupNumber groups = geometry_.group_count();
  if (parent == format::kRootInode) {
    // Stays the same until a directory was made, so that an attempt that starts over finds what it
    // has read.
    const uint64_t pick = Mix(cache_->seed() ^ directories_made_.load(std::memory_order_relaxed));
    const auto from = static_cast<GroupNumber>(pick % groups);
    const std::optional<GroupNumber> spread = ChooseSpread(from);
    return spread ? spread : ChooseNear(from);
  }
  const SpaceTotals totals = table_->totals();
  const uint64_t max_directories = totals.directories / groups + geometry_.inodes_per_group() / 16;
  const uint64_t fewer_inodes = geometry_.inodes_per_group() / 4;
  const uint64_t fewer_blocks = format::kBlocksPerGroup / 4;
  for (GroupNumber i = 0; i < std::min(groups, kMaxGroupsToCompare); ++i) {
    const GroupNumber group = (home + i) % groups;
    const GroupDesc desc = table_->Get(group);
    if (desc.directories <= max_directories &&
        desc.free_inodes + fewer_inodes >= totals.free_inodes / groups &&
        desc.free_blocks + fewer_blocks >= totals.free_blocks / groups && HasNumbers(group)) {
      return group;
    }
  }
  return ChooseNear(home);
}

// --- Claims ---

void InodeAllocator::Impl::NoteAvailable(GroupNumber number, const InodeGroup* group) {
  MutexLock lock(&mutex_);
  if (group->available() > 0) {
    with_numbers_.insert(number);
  } else {
    with_numbers_.erase(number);
  }
}

Result<InodeNumber> InodeAllocator::Impl::Claim(Attempt& attempt, InodeNumber parent,
                                                bool directory, BufferRef* table_block) {
  for (;;) {
    const std::optional<GroupNumber> group = Choose(parent, directory);
    if (!group) return Error::kNoSpace;
    const Error loaded = Load(attempt, *group);
    if (WouldBlock(loaded)) return loaded;
    // Any other error took the group out of the choice.
    if (loaded != Error::kOk) continue;
    const Result<InodeNumber> ino = ClaimIn(attempt, *group);
    if (!ino.ok() && ino.error() == Error::kNoSpace) continue;
    if (!ino.ok()) return ino;
    if (geometry_.IndexInGroup(*ino) >= table_->Get(*group).inode_table_used) return ino;
    Result<BufferRef> buffer = cache_->Get(attempt, geometry_.InodeBlock(*ino), TableIdentity());
    if (!buffer.ok()) {
      Unclaim(*ino);
      return buffer.error();
    }
    *table_block = std::move(buffer).value();
    attempt.Pin(*table_block);
    if (RecordIsFree(*ino, *table_block)) return ino;
    // Stays claimed for as long as the filesystem is mounted: nobody gets it.
    LogError("inode ", *ino, " is in use but free in its bitmap; run fsck.sluicefs");
  }
}

bool InodeAllocator::Impl::RecordIsFree(InodeNumber ino, const BufferRef& table_block) const {
  ReaderMutexLock lock(&table_block->mutex());
  return format::As<format::Inode>(table_block->data() + geometry_.InodeOffset(ino))->mode == 0;
}

// kNoSpace: others were faster.
Result<InodeNumber> InodeAllocator::Impl::ClaimIn(Attempt& attempt, GroupNumber number) {
  InodeGroup* group = Loaded(number);
  MutexLock group_lock(&group->mutex);
  const std::optional<uint32_t> index = group->TakeLowest();
  NoteAvailable(number, group);
  if (!index) return Error::kNoSpace;
  const uint32_t used = table_->Get(number).inode_table_used;
  if (*index >= used + kInodesPerBlock) {
    group->Release(*index);
    NoteAvailable(number, group);
    MutexLock lock(&mutex_);
    return attempt.Block([this, seen = claims_ended_] {
      MutexLock wait_lock(&mutex_);
      while (claims_ended_ == seen) claim_ended_.Wait(&mutex_);
      return Error::kOk;
    });
  }
  const uint32_t block = *index / kInodesPerBlock;
  // Also while the block is still known from claims made before it was created.
  if (*index >= used || group->fresh.contains(block)) ++group->fresh[block].claims;
  return InodeNumber{number} * geometry_.inodes_per_group() + *index + 1;
}

void InodeAllocator::Impl::EndClaim(InodeGroup* group, uint32_t index) {
  const auto fresh = group->fresh.find(index / kInodesPerBlock);
  if (fresh == group->fresh.end()) return;
  if (--fresh->second.claims == 0) group->fresh.erase(fresh);
  MutexLock lock(&mutex_);
  ++claims_ended_;
  claim_ended_.SignalAll();
}

void InodeAllocator::Impl::Unclaim(InodeNumber ino) {
  const GroupNumber number = geometry_.GroupOfInode(ino);
  InodeGroup* group = Loaded(number);
  MutexLock group_lock(&group->mutex);
  group->Release(geometry_.IndexInGroup(ino));
  NoteAvailable(number, group);
  EndClaim(group, geometry_.IndexInGroup(ino));
}

// --- Allocation ---

AllocatedInode InodeAllocator::Impl::Allocate(Handle& handle, InodeNumber ino,
                                              BufferRef table_block, bool directory) {
  const GroupNumber number = geometry_.GroupOfInode(ino);
  const uint32_t index = geometry_.IndexInGroup(ino);
  InodeGroup* group = Loaded(number);
  MutexLock group_lock(&group->mutex);
  bool fresh = false;
  AllocatedInode made;
  made.ino = ino;
  made.table_block = TableBlock(group, ino, std::move(table_block), &fresh);
  made.generation = InitRecord(handle, ino, made.table_block, fresh);
  const uint64_t checksum = SetUsed(handle, group, ino);
  table_->Update(handle, number, [&](GroupDesc& desc) {
    desc.flags = desc.flags & ~format::kGroupInodeUninit;
    desc.free_inodes = desc.free_inodes - 1;
    desc.directories = desc.directories + (directory ? 1 : 0);
    if (fresh) desc.inode_table_used = desc.inode_table_used + kInodesPerBlock;
    desc.inode_bitmap_checksum = checksum;
  });
  EndClaim(group, index);
  if (directory) directories_made_.fetch_add(1, std::memory_order_relaxed);
  return made;
}

BufferRef InodeAllocator::Impl::TableBlock(InodeGroup* group, InodeNumber ino, BufferRef prepared,
                                           bool* fresh) {
  if (prepared) return prepared;
  const auto at = group->fresh.find(geometry_.IndexInGroup(ino) / kInodesPerBlock);
  SLUICE_CHECK(at != group->fresh.end());
  if (!at->second.buffer) {
    *fresh = true;
    at->second.buffer = cache_->GetNew(geometry_.InodeBlock(ino), TableIdentity());
  }
  return at->second.buffer;
}

// Empties the record and gives it its next generation, which is returned.
uint32_t InodeAllocator::Impl::InitRecord(Handle& handle, InodeNumber ino, const BufferRef& buffer,
                                          bool fresh) {
  BlockEdit edit = handle.Edit(buffer);
  auto* record = format::As<format::Inode>(edit.data() + geometry_.InodeOffset(ino));
  uint32_t generation = record->generation;
  generation = generation == 0 ? static_cast<uint32_t>(Mix(cache_->seed() ^ ino)) : generation + 1;
  if (generation == 0) generation = 1;
  std::memset(static_cast<void*>(record), 0, sizeof(*record));
  record->generation = generation;
  // The live bytes are sealed too, so that who reads a record in memory may check it.
  if (fresh) {
    format::SealInodeTable(cache_->seed(), ino - geometry_.IndexInGroup(ino) % kInodesPerBlock,
                           edit.span());
  } else {
    format::SealInode(cache_->seed(), ino, record);
  }
  return generation;
}

// Returns the bitmap's checksum.
uint64_t InodeAllocator::Impl::SetUsed(Handle& handle, InodeGroup* group, InodeNumber ino) {
  const bool fresh = !group->bitmap;
  if (fresh) {
    const GroupNumber number = geometry_.GroupOfInode(ino);
    group->bitmap = cache_->GetNew(geometry_.InodeBitmap(number), BitmapIdentity());
  }
  BlockEdit edit = handle.Edit(group->bitmap);
  if (fresh) geometry_.MarkInodePadding(edit.span());
  format::SetBit(edit.span(), geometry_.IndexInGroup(ino));
  return table_->BitmapChecksum(edit.span());
}

// --- Freeing ---

Error InodeAllocator::Impl::PrepareFree(Attempt& attempt, InodeNumber ino) {
  const Result<bool> used = IsUsed(attempt, ino);
  if (!used.ok()) return used.error();
  return *used ? Error::kOk : Error::kCorrupt;
}

Error InodeAllocator::Impl::Free(Handle& handle, InodeNumber ino, bool directory) {
  if (!geometry_.ValidInode(ino)) return Error::kCorrupt;
  const GroupNumber number = geometry_.GroupOfInode(ino);
  const uint32_t index = geometry_.IndexInGroup(ino);
  InodeGroup* group = Loaded(number);
  SLUICE_CHECK(group != nullptr);
  {
    MutexLock group_lock(&group->mutex);
    // Only holders of the group's mutex change the bitmap, so it may be read without the buffer's.
    if (!group->bitmap || !format::TestBit(group->bitmap->span(), index)) return Error::kCorrupt;
    uint64_t checksum;
    {
      BlockEdit edit = handle.Edit(group->bitmap);
      ClearBits(edit.span(), index, 1);
      checksum = table_->BitmapChecksum(edit.span());
    }
    table_->Update(handle, number, [&](GroupDesc& desc) {
      desc.free_inodes = desc.free_inodes + 1;
      if (directory && desc.directories > 0) desc.directories = desc.directories - 1;
      desc.inode_bitmap_checksum = checksum;
    });
  }
  pending_.fetch_add(1, std::memory_order_relaxed);
  const Tid tid = handle.tid();
  if (freed_.Add(tid, ino)) {
    handle.OnCommit([this, tid](Error error) { ReleasePending(tid, error); });
  }
  return Error::kOk;
}

// Runs when the transaction is durable. After a failed commit the numbers stay out of reach.
void InodeAllocator::Impl::ReleasePending(Tid tid, Error error) {
  const std::vector<InodeNumber> freed = freed_.Take(tid);
  if (error != Error::kOk) return;
  for (const InodeNumber ino : freed) {
    const GroupNumber number = geometry_.GroupOfInode(ino);
    InodeGroup* group = Loaded(number);
    MutexLock group_lock(&group->mutex);
    group->Release(geometry_.IndexInGroup(ino));
    NoteAvailable(number, group);
  }
  pending_.fetch_sub(freed.size(), std::memory_order_relaxed);
}

Result<bool> InodeAllocator::Impl::IsUsed(Attempt& attempt, InodeNumber ino) {
  if (!geometry_.ValidInode(ino)) return false;
  const GroupNumber number = geometry_.GroupOfInode(ino);
  RETURN_IF_ERROR(Load(attempt, number));
  const InodeGroup* group = Loaded(number);
  ReaderMutexLock group_lock(&group->mutex);
  return group->bitmap &&
         format::TestBit(std::as_const(*group->bitmap).span(), geometry_.IndexInGroup(ino));
}

bool InodeAllocator::Impl::HasPending() const {
  return pending_.load(std::memory_order_relaxed) > 0;
}

void InodeAllocator::Impl::SetOnCorrupt(std::function<void(GroupNumber)> on_corrupt) {
  MutexLock lock(&mutex_);
  on_corrupt_ = std::move(on_corrupt);
}

// --- The public face ---

InodeReservation::InodeReservation(InodeReservation&& other) noexcept
    : allocator_(std::exchange(other.allocator_, nullptr)),
      ino_(std::exchange(other.ino_, 0)),
      table_block_(std::move(other.table_block_)) {}

InodeReservation& InodeReservation::operator=(InodeReservation&& other) noexcept {
  std::swap(allocator_, other.allocator_);
  std::swap(ino_, other.ino_);
  std::swap(table_block_, other.table_block_);
  return *this;
}

InodeReservation::~InodeReservation() {
  if (allocator_ != nullptr) allocator_->Unclaim(ino_);
}

InodeAllocator::InodeAllocator(GroupTable* table, BufferCache* cache)
    : impl_(std::make_unique<Impl>(table, cache)) {}

InodeAllocator::~InodeAllocator() = default;

Result<InodeReservation> InodeAllocator::Prepare(Attempt& attempt, InodeNumber parent,
                                                 bool directory) {
  InodeReservation reservation;
  ASSIGN_OR_RETURN(reservation.ino_,
                   impl_->Claim(attempt, parent, directory, &reservation.table_block_));
  reservation.allocator_ = impl_.get();
  return reservation;
}

AllocatedInode InodeAllocator::Allocate(Handle& handle, InodeReservation reservation,
                                        bool directory) {
  SLUICE_CHECK(reservation.allocator_ == impl_.get());
  reservation.allocator_ = nullptr;
  return impl_->Allocate(handle, reservation.ino_, std::move(reservation.table_block_), directory);
}

Error InodeAllocator::PrepareFree(Attempt& attempt, InodeNumber ino) {
  return impl_->PrepareFree(attempt, ino);
}

Error InodeAllocator::Free(Handle& handle, InodeNumber ino, bool directory) {
  return impl_->Free(handle, ino, directory);
}

bool InodeAllocator::HasPending() const { return impl_->HasPending(); }

void InodeAllocator::SetOnCorrupt(std::function<void(GroupNumber)> on_corrupt) {
  impl_->SetOnCorrupt(std::move(on_corrupt));
}

Result<bool> InodeAllocator::IsUsed(Attempt& attempt, InodeNumber ino) {
  return impl_->IsUsed(attempt, ino);
}

}  // namespace sluice
