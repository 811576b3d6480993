// SPDX-License-Identifier: Apache-2.0
#include "block/buffer_cache.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "block/attempt.h"

namespace sluice {
namespace {

constexpr int kShardBits = 5;
constexpr size_t kShards = size_t{1} << kShardBits;
// A shard is never smaller than an operation's working set.
constexpr size_t kLeastShardCapacity = 8;
// How far one insertion looks for a victim. When nearly all buffers are attached to the journal,
// looking at all of them each time would cost more than a few blocks over the limit.
constexpr int kClockSteps = 64;
// More than one per insertion, so that a shard that outgrew its limit shrinks again.
constexpr int kVictimsPerInsertion = 2;

}  // namespace

void Buffer::set_attachment(std::unique_ptr<BufferAttachment> attachment) {
  attachment_ = std::move(attachment);
  attached_.store(attachment_ != nullptr, std::memory_order_release);
}

bool Buffer::Unused() const {
  // Pins first: who attaches and then unpins is seen to be attached. Pins again: the journal may
  // pin an attached buffer through its own pointer before it detaches it.
  return pins_.load(std::memory_order_acquire) == 0 && !attached_.load(std::memory_order_acquire) &&
         pins_.load(std::memory_order_acquire) == 0;
}

struct alignas(64) BufferCache::Shard {
  using Buffers = std::vector<std::unique_ptr<Buffer>>;

  Buffer* Find(BlockNumber block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto found = map.find(block);
    return found == map.end() ? nullptr : found->second.get();
  }

  Buffer* Insert(std::unique_ptr<Buffer> buffer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Buffer* const raw = buffer.get();
    raw->clock_index_ = clock.size();
    clock.push_back(raw);
    map[raw->block_] = std::move(buffer);
    return raw;
  }

  std::unique_ptr<Buffer> Remove(Buffer* buffer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const size_t index = buffer->clock_index_;
    clock[index] = clock.back();
    clock[index]->clock_index_ = index;
    clock.pop_back();
    auto node = map.extract(buffer->block_);
    return std::move(node.mapped());
  }

  // Takes it out of sight; its memory lives on until nobody knows it.
  void Retire(Buffer* buffer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    retired.push_back(Remove(buffer));
  }

  // Makes room for one buffer; the victims are destroyed by the caller, without the mutex.
  void Evict(size_t capacity, Buffers* victims) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    for (auto it = retired.begin(); it != retired.end();) {
      if ((*it)->Unused()) {
        victims->push_back(std::move(*it));
        *it = std::move(retired.back());
        retired.pop_back();
      } else {
        ++it;
      }
    }
    int wanted = kVictimsPerInsertion;
    for (int step = 0; step < kClockSteps && wanted > 0 && clock.size() >= capacity; ++step) {
      if (hand >= clock.size()) hand = 0;
      Buffer* const buffer = clock[hand];
      if (buffer->referenced_) {
        buffer->referenced_ = false;
        ++hand;
      } else if (!buffer->Unused()) {
        ++hand;
      } else {
        victims->push_back(Remove(buffer));  // the hand now points at what was the last
        ++evictions;
        --wanted;
      }
    }
  }

  Mutex mutex;
  CondVar loaded;
  absl::flat_hash_map<BlockNumber, std::unique_ptr<Buffer>> map ABSL_GUARDED_BY(mutex);
  std::vector<Buffer*> clock ABSL_GUARDED_BY(mutex);
  size_t hand ABSL_GUARDED_BY(mutex) = 0;
  Buffers retired ABSL_GUARDED_BY(mutex);
  uint64_t hits ABSL_GUARDED_BY(mutex) = 0;
  uint64_t misses ABSL_GUARDED_BY(mutex) = 0;
  uint64_t evictions ABSL_GUARDED_BY(mutex) = 0;
};

BufferCache::BufferCache(Device* device, uint64_t seed, size_t capacity_blocks)
    : device_(device),
      seed_(seed),
      shard_capacity_(std::max(capacity_blocks / kShards, kLeastShardCapacity)),
      shards_(new Shard[kShards]) {}

BufferCache::~BufferCache() {
  for (size_t i = 0; i < kShards; ++i) {
    MutexLock lock(&shards_[i].mutex);
    for (const auto& [block, buffer] : shards_[i].map) SLUICE_CHECK(buffer->Unused());
    for (const auto& buffer : shards_[i].retired) SLUICE_CHECK(buffer->Unused());
  }
}

BufferCache::Shard& BufferCache::ShardOf(BlockNumber block) const {
  // Fibonacci hashing: bitmaps lie at powers of two and must not meet in one shard.
  return shards_[(block * 0x9e3779b97f4a7c15u) >> (64 - kShardBits)];
}

Result<BufferRef> BufferCache::Get(Attempt& attempt, BlockNumber block,
                                   const format::BlockIdentity& identity) {
  if (block >= device_->size() / kBlockSize) return Error::kCorrupt;
  Shard& shard = ShardOf(block);
  Shard::Buffers victims;  // before the lock: destroyed after it
  MutexLock lock(&shard.mutex);
  Buffer* buffer = shard.Find(block);
  if (buffer != nullptr && buffer->state_ == Buffer::State::kReady) {
    if (!buffer->Is(identity)) return Error::kCorrupt;
    ++shard.hits;
    buffer->referenced_ = true;
    return BufferRef(buffer);
  }
  ++shard.misses;
  if (buffer == nullptr) {
    shard.Evict(shard_capacity_, &victims);
    buffer = shard.Insert(std::unique_ptr<Buffer>(new Buffer(block, identity)));
  }
  attempt.Pin(BufferRef(buffer));
  // Somebody is loading it as something else, wrongly perhaps: whether this caller is right is
  // known when that has come to its end.
  const bool same = buffer->Is(identity);
  return attempt.Block([this, buffer, same] {
    const Error error = Load(buffer);
    return same ? error : Error::kOk;
  });
}

Result<BufferRef> BufferCache::GetBlocking(BlockNumber block,
                                           const format::BlockIdentity& identity) {
  return RunBlocking([&](Attempt& attempt) { return Get(attempt, block, identity); });
}

Error BufferCache::Load(Buffer* buffer) {
  Shard& shard = ShardOf(buffer->block_);
  {
    MutexLock lock(&shard.mutex);
    while (buffer->state_ == Buffer::State::kReading) shard.loaded.Wait(&shard.mutex);
    if (buffer->state_ == Buffer::State::kReady) return Error::kOk;
    if (buffer->state_ == Buffer::State::kFailed) return buffer->load_error_;
    buffer->state_ = Buffer::State::kReading;
  }
  const Error error = ReadAndVerify(buffer);
  if (error == Error::kCorrupt && on_corrupt_) on_corrupt_(buffer->block_, buffer->identity_);
  MutexLock lock(&shard.mutex);
  buffer->state_ = error == Error::kOk ? Buffer::State::kReady : Buffer::State::kFailed;
  buffer->load_error_ = error;
  // The next who asks tries again. (It may have been forgotten, or replaced, meanwhile.)
  if (error != Error::kOk && shard.Find(buffer->block_) == buffer) shard.Retire(buffer);
  shard.loaded.SignalAll();
  return error;
}

Error BufferCache::ReadAndVerify(Buffer* buffer) {
  RETURN_IF_ERROR(device_->Read(buffer->block_ * kBlockSize, buffer->bytes_.span()));
  return format::VerifyBlock(seed_, buffer->block_, buffer->identity_, buffer->span());
}

BufferRef BufferCache::GetNew(BlockNumber block, const format::BlockIdentity& identity) {
  std::unique_ptr<Buffer> fresh(new Buffer(block, identity));
  std::memset(fresh->data(), 0, kBlockSize);
  if (format::HasHeader(identity.kind)) format::InitHeader(fresh->span(), block, identity);
  fresh->state_ = Buffer::State::kReady;
  fresh->referenced_ = true;
  Shard& shard = ShardOf(block);
  Shard::Buffers victims;  // before the lock: destroyed after it
  MutexLock lock(&shard.mutex);
  if (Buffer* const stale = shard.Find(block); stale != nullptr) shard.Retire(stale);
  shard.Evict(shard_capacity_, &victims);
  return BufferRef(shard.Insert(std::move(fresh)));
}

void BufferCache::Forget(BlockNumber block) {
  Shard& shard = ShardOf(block);
  std::unique_ptr<Buffer> unused;  // before the lock: destroyed after it
  MutexLock lock(&shard.mutex);
  Buffer* const buffer = shard.Find(block);
  if (buffer == nullptr) return;
  if (buffer->Unused()) {
    unused = shard.Remove(buffer);
  } else {
    shard.Retire(buffer);
  }
}

BufferCache::Stats BufferCache::stats() const {
  Stats sum = {};
  for (size_t i = 0; i < kShards; ++i) {
    Shard& shard = shards_[i];
    MutexLock lock(&shard.mutex);
    sum.hits += shard.hits;
    sum.misses += shard.misses;
    sum.blocks += shard.map.size() + shard.retired.size();
    sum.evictions += shard.evictions;
  }
  return sum;
}

}  // namespace sluice
