// SPDX-License-Identifier: Apache-2.0
#include "fs/inode_cache.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/log.h"
#include "base/mutex.h"
#include "fs/filesystem.h"
#include "fs/filesystem_impl.h"
#include "fs/reaper.h"

namespace sluice {
namespace {

constexpr size_t kShardBits = 5;
constexpr size_t kShards = size_t{1} << kShardBits;
constexpr size_t kLeastShardCapacity = 4;
// Inodes looked at for eviction per insertion. More than one, so that a shard over its limit
// shrinks again; bounded, since all of them may be in use.
constexpr int kClockSteps = 16;

}  // namespace

struct InodeCache::Impl {
  struct Slot {
    InodeRef inode;
    bool referenced = false;  // for the second-chance clock
    bool dying = false;       // the reaper deletes it: nobody finds it any more
  };

  struct alignas(64) Shard {
    Mutex mutex;
    absl::flat_hash_map<InodeNumber, uint32_t> map ABSL_GUARDED_BY(mutex);
    std::vector<Slot> slots ABSL_GUARDED_BY(mutex);
    uint32_t hand ABSL_GUARDED_BY(mutex) = 0;

    Slot* Find(InodeNumber ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
      const auto found = map.find(ino);
      return found == map.end() ? nullptr : &slots[found->second];
    }
    void Insert(InodeRef inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
      map[inode->ino] = static_cast<uint32_t>(slots.size());
      slots.push_back({std::move(inode), true, false});
    }
    InodeRef Erase(uint32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
      InodeRef inode = std::move(slots[index].inode);
      map.erase(inode->ino);
      if (index + 1 < slots.size()) {
        slots[index] = std::move(slots.back());
        map[slots[index].inode->ino] = index;
      }
      slots.pop_back();
      return inode;
    }
  };

  Impl(Filesystem* fs, size_t capacity)
      : fs(fs),
        shard_capacity(std::max(capacity / kShards, kLeastShardCapacity)),
        shards(new Shard[kShards]),
        reaper(fs->impl()->options.manual) {}

  Shard& ShardOf(InodeNumber ino) const {
    return shards[(ino * 0x9e3779b97f4a7c15u) >> (64 - kShardBits)];
  }

  void Evict(Shard& shard, std::vector<InodeRef>* victims)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mutex);
  bool Evictable(const InodeRef& inode);
  bool BeginDelete(const InodeRef& inode);
  void Delete(const InodeRef& inode);
  Result<InodeRef> Load(Attempt& attempt, InodeNumber ino, std::vector<InodeRef>* victims);

  Filesystem* const fs;
  const size_t shard_capacity;
  const std::unique_ptr<Shard[]> shards;
  Reaper reaper;
};

// Whether nothing but this cache knows the inode. Its mutex is free then: who holds it also holds a
// reference. Lazy fields are given to the reaper first.
bool InodeCache::Impl::Evictable(const InodeRef& inode) {
  if (inode.use_count() != 1 || inode->lookups.load(std::memory_order_acquire) != 0 ||
      inode->opens.load(std::memory_order_acquire) != 0 || !inode->pages.idle()) {
    return false;
  }
  if (!inode->mutex.TryLock()) return false;
  const bool kept = inode->orphan_slot != 0 || inode->linkable;
  const bool lazy = inode->lazy_dirty;
  inode->mutex.Unlock();
  if (kept) return false;
  if (!lazy) return true;
  reaper.Post([this, inode] {
    // It stays in memory, and is tried again when its turn to be evicted comes round.
    IgnoreError(RunBlocking([&](Attempt& attempt) -> Error {
      ASSIGN_OR_RETURN(const FreezeGate::Pass pass, fs->impl()->BeginChange(attempt));
      return WriteLazyFields(fs->impl(), attempt, inode);
    }));
  });
  return false;
}

void InodeCache::Impl::Evict(Shard& shard, std::vector<InodeRef>* victims) {
  for (int step = 0; step < kClockSteps && shard.slots.size() >= shard_capacity; ++step) {
    if (shard.hand >= shard.slots.size()) shard.hand = 0;
    Slot& slot = shard.slots[shard.hand];
    if (slot.referenced) {
      slot.referenced = false;
      ++shard.hand;
    } else if (slot.dying || !Evictable(slot.inode)) {
      ++shard.hand;
    } else {
      victims->push_back(shard.Erase(shard.hand));
    }
  }
}

InodeCache::InodeCache(Filesystem* fs, size_t capacity)
    : impl_(std::make_unique<Impl>(fs, capacity)) {}

InodeCache::~InodeCache() { Stop(false); }

Result<InodeRef> InodeCache::Get(Attempt& attempt, InodeNumber ino) {
  {
    Impl::Shard& shard = impl_->ShardOf(ino);
    MutexLock lock(&shard.mutex);
    if (Impl::Slot* slot = shard.Find(ino); slot != nullptr) {
      if (slot->dying) return Error::kStale;
      slot->referenced = true;
      return slot->inode;
    }
  }
  std::vector<InodeRef> victims;  // destroyed without the shard's mutex
  return impl_->Load(attempt, ino, &victims);
}

Result<InodeRef> InodeCache::Impl::Load(Attempt& attempt, InodeNumber ino,
                                        std::vector<InodeRef>* victims) {
  Filesystem::Impl* impl = fs->impl();
  const format::Geometry& geometry = impl->geometry;
  if (!geometry.ValidInode(ino)) return Error::kStale;
  const GroupNumber group = geometry.GroupOfInode(ino);
  if (geometry.IndexInGroup(ino) >= impl->groups->Get(group).inode_table_used) {
    return Error::kStale;
  }
  const BlockNumber block = geometry.InodeBlock(ino);
  const uint32_t offset = geometry.InodeOffset(ino);
  ASSIGN_OR_RETURN(BufferRef buffer,
                   impl->cache->Get(attempt, block, {format::BlockKind::kInodeTable}));
  const char* reason = nullptr;
  {
    // The record is copied under the shard's mutex: another thread may have loaded, changed and
    // evicted the inode since we looked.
    Shard& shard = ShardOf(ino);
    MutexLock lock(&shard.mutex);
    if (Slot* slot = shard.Find(ino); slot != nullptr) {
      if (slot->dying) return Error::kStale;
      return slot->inode;
    }
    format::Inode record;
    {
      ReaderMutexLock bytes(&buffer->mutex());
      std::memcpy(&record, buffer->data() + offset, sizeof(record));
    }
    // A free record is not sealed in memory when its number was just allocated.
    if (record.mode == 0) return Error::kStale;
    if (format::CheckInode(impl->cache->seed(), ino, geometry.block_count(), record, &reason) ==
        Error::kOk) {
      Evict(shard, victims);
      InodeRef inode = std::make_shared<Inode>(fs, ino, std::move(buffer), offset, record);
      // An earlier object of this inode may have been changed and evicted: an fsync must not take
      // that for durable (ext4_iget does the same).
      if (impl->journal != nullptr) {
        const Tid newest = impl->journal->newest_tid();
        inode->sync_tid.store(newest, std::memory_order_relaxed);
        inode->datasync_tid.store(newest, std::memory_order_relaxed);
      }
      shard.Insert(inode);
      return inode;
    }
  }
  fs->ReportCorruption(ino, block, reason);
  return Error::kCorrupt;
}

InodeRef InodeCache::Find(InodeNumber ino) {
  Impl::Shard& shard = impl_->ShardOf(ino);
  MutexLock lock(&shard.mutex);
  Impl::Slot* slot = shard.Find(ino);
  return slot == nullptr || slot->dying ? nullptr : slot->inode;
}

InodeRef InodeCache::AddNew(InodeNumber ino, BufferRef table_block, uint32_t table_offset,
                            uint32_t generation) {
  format::Inode record;
  std::memset(static_cast<void*>(&record), 0, sizeof(record));
  record.generation = generation;
  format::InitExtentNode(reinterpret_cast<std::byte*>(record.root), format::kInlineExtents, 0);
  InodeRef inode =
      std::make_shared<Inode>(impl_->fs, ino, std::move(table_block), table_offset, record);
  std::vector<InodeRef> victims;
  Impl::Shard& shard = impl_->ShardOf(ino);
  MutexLock lock(&shard.mutex);
  if (Impl::Slot* old = shard.Find(ino); old != nullptr) {
    // An earlier life of the number whose deletion is durable but has not been told to us yet.
    SLUICE_CHECK(old->dying);
    victims.push_back(shard.Erase(shard.map[ino]));
  }
  impl_->Evict(shard, &victims);
  shard.Insert(inode);
  return inode;
}

void InodeCache::Remove(InodeNumber ino) {
  InodeRef removed;  // destroyed without the shard's mutex
  Impl::Shard& shard = impl_->ShardOf(ino);
  MutexLock lock(&shard.mutex);
  const Impl::Slot* slot = shard.Find(ino);
  // The number may live again already: only what is being deleted goes.
  if (slot != nullptr && slot->dying) removed = shard.Erase(shard.map[ino]);
}

std::vector<InodeRef> InodeCache::Collect(const std::function<bool(Inode&)>& wanted) {
  std::vector<InodeRef> found;
  for (size_t i = 0; i < kShards; ++i) {
    std::vector<InodeRef> all;
    {
      MutexLock lock(&impl_->shards[i].mutex);
      for (const Impl::Slot& slot : impl_->shards[i].slots) all.push_back(slot.inode);
    }
    // Without the shard's mutex: `wanted` may take the inode's.
    for (InodeRef& inode : all) {
      if (wanted(*inode)) found.push_back(std::move(inode));
    }
  }
  return found;
}

// Claims an unreferenced inode without links for deletion.
bool InodeCache::Impl::BeginDelete(const InodeRef& inode) {
  {
    ReaderMutexLock lock(&inode->mutex);
    if (inode->fields.links != 0 || inode->orphan_slot == 0) return false;
  }
  Shard& shard = ShardOf(inode->ino);
  MutexLock lock(&shard.mutex);
  Slot* slot = shard.Find(inode->ino);
  if (slot == nullptr || slot->inode != inode || slot->dying) return false;
  // Somebody has it open again: its release comes back here.
  if (inode->lookups.load(std::memory_order_acquire) != 0 ||
      inode->opens.load(std::memory_order_acquire) != 0) {
    return false;
  }
  slot->dying = true;
  return true;
}

void InodeCache::Impl::Delete(const InodeRef& inode) {
  if (!BeginDelete(inode)) return;
  const Error error = DeleteInode(fs->impl(), inode);
  if (error != Error::kOk && error != Error::kReadOnly) {
    LogError("inode ", inode->ino, " could not be deleted: ", std::string(ErrorText(error)),
             "; it stays in the orphan file for the next mount");
  }
  fs->impl()->inodes->Remove(inode->ino);
}

void InodeCache::Unreferenced(const InodeRef& inode) {
  if (inode->lookups.load(std::memory_order_acquire) != 0 ||
      inode->opens.load(std::memory_order_acquire) != 0) {
    return;
  }
  {
    ReaderMutexLock lock(&inode->mutex);
    if (inode->fields.links != 0 || inode->orphan_slot == 0) return;
  }
  impl_->reaper.Post([impl = impl_.get(), inode] { impl->Delete(inode); });
}

void InodeCache::Post(std::function<void()> work) { impl_->reaper.Post(std::move(work)); }

bool InodeCache::ReaperBusy() const { return impl_->reaper.busy(); }

void InodeCache::WaitReaper() { impl_->reaper.WaitProgress(); }

void InodeCache::DrainReaper() { impl_->reaper.Drain(); }

void InodeCache::Stop(bool drain) { impl_->reaper.Stop(drain); }

}  // namespace sluice
