// SPDX-License-Identifier: Apache-2.0
//
// Metadata blocks in memory. A Buffer is one 4 KiB block of metadata; a BufferRef pins it. The
// cache reads, verifies (format::VerifyBlock) and evicts; the journal attaches its state to a
// buffer and so keeps it until it has been written home. File data never passes here.
//
// Who may touch a buffer's bytes: readers hold the buffer's mutex shared, or a lock of the owner
// that excludes writers (a directory's or an extent tree's); writers go through Handle::Edit
// (journal/journal.h), which takes the mutex exclusively. The commit thread copies under the shared
// mutex. The mutex is the last in the lock order and is never held across a wait.
#ifndef SLUICE_BLOCK_BUFFER_CACHE_H_
#define SLUICE_BLOCK_BUFFER_CACHE_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/units.h"
#include "block/device.h"
#include "format/block_header.h"

namespace sluice {

class Attempt;
class BufferCache;

// What the journal keeps about a buffer; opaque here.
class BufferAttachment {
 public:
  virtual ~BufferAttachment() = default;
};

class Buffer {
 public:
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  BlockNumber block() const { return block_; }
  format::BlockKind kind() const { return identity_.kind; }

  Mutex& mutex() ABSL_LOCK_RETURNED(mutex_) { return mutex_; }
  // Callers hold the mutex or the owner's lock as told above; not annotated, since the second
  // cannot be.
  std::byte* data() { return bytes_.data(); }
  const std::byte* data() const { return bytes_.data(); }
  format::BlockSpan span() { return format::BlockSpan(bytes_.data(), kBlockSize); }
  format::ConstBlockSpan span() const { return format::ConstBlockSpan(bytes_.data(), kBlockSize); }

  // Whether the owner has checked what lies behind the header (a directory's or an extent tree's
  // Check function), so that it does so once per load and not at each look. Set by the owner; a
  // buffer that was read again starts unchecked.
  bool structure_checked() const { return structure_checked_.load(std::memory_order_acquire); }
  void set_structure_checked() { structure_checked_.store(true, std::memory_order_release); }

  // The journal's state; null when the journal does not know the buffer. While it is set the
  // buffer is not evicted, so the journal may keep a plain pointer; who sets or clears it holds a
  // pin until the mutex is released. Guarded by the buffer's mutex.
  BufferAttachment* attachment() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return attachment_.get(); }
  void set_attachment(std::unique_ptr<BufferAttachment> attachment)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

 private:
  friend class BufferCache;
  friend class BufferRef;

  // Of the bytes. A buffer that is not ready is never handed out, only waited for.
  enum class State : uint8_t { kEmpty, kReading, kReady, kFailed };

  Buffer(BlockNumber block, const format::BlockIdentity& identity)
      : block_(block), identity_(identity), bytes_(kBlockSize) {}
  bool Is(const format::BlockIdentity& other) const {
    return identity_.kind == other.kind && identity_.owner == other.owner &&
           identity_.generation == other.generation;
  }
  // Whether only the cache knows it. It is no longer found, or the shard's mutex is held.
  bool Unused() const;

  const BlockNumber block_;
  const format::BlockIdentity identity_;
  Mutex mutex_;
  AlignedBuffer bytes_;
  std::unique_ptr<BufferAttachment> attachment_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> attached_{false};  // mirrors attachment_ for the evictor
  std::atomic<int> pins_{0};
  std::atomic<bool> structure_checked_{false};
  // Guarded by the mutex of the shard.
  State state_ = State::kEmpty;
  Error load_error_ = Error::kOk;  // of kFailed
  bool referenced_ = false;        // for the second-chance clock
  size_t clock_index_ = 0;
};

// A pin: the buffer stays in memory, at the same address, while one exists. Copyable.
// Thread-compatible.
class BufferRef {
 public:
  BufferRef() = default;
  explicit BufferRef(Buffer* buffer) : buffer_(buffer) {
    if (buffer_ != nullptr) buffer_->pins_.fetch_add(1, std::memory_order_relaxed);
  }
  BufferRef(const BufferRef& other) : BufferRef(other.buffer_) {}
  BufferRef(BufferRef&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
  BufferRef& operator=(BufferRef other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~BufferRef() {
    if (buffer_ != nullptr) buffer_->pins_.fetch_sub(1, std::memory_order_release);
  }

  Buffer* get() const { return buffer_; }
  Buffer* operator->() const { return buffer_; }
  Buffer& operator*() const { return *buffer_; }
  explicit operator bool() const { return buffer_ != nullptr; }

 private:
  Buffer* buffer_ = nullptr;
};

// Thread-safe. Sharded by block number. Memory is bounded by `capacity` blocks, pinned and attached
// ones excepted.
class BufferCache {
 public:
  // `device` outlives the cache. `seed` is the image's checksum seed.
  BufferCache(Device* device, uint64_t seed, size_t capacity_blocks);
  // Precondition: no pins, no attachments.
  ~BufferCache();

  // The block, if it is in memory. Otherwise stores "read and verify it" as what `attempt` must
  // wait for and returns kWouldBlock; after the wait the buffer is pinned by the attempt. The
  // wait's error is kIo, or kCorrupt if the block is not what `identity` says. A buffer in memory
  // under another identity (owner, generation, kind) than asked for is kCorrupt.
  Result<BufferRef> Get(Attempt& attempt, BlockNumber block, const format::BlockIdentity& identity);

  // The same for a thread that may wait and holds no lock and no handle.
  Result<BufferRef> GetBlocking(BlockNumber block, const format::BlockIdentity& identity);

  // A buffer for a block that was just allocated: zero, with a header if the kind has one; never
  // read from the device. A stale buffer of an earlier life of the block is replaced; it must not
  // be pinned by others (its owner has freed it). Never waits.
  BufferRef GetNew(BlockNumber block, const format::BlockIdentity& identity);

  // Drops the buffer of a freed block, so that nobody reads it again. Its pins and attachment may
  // still keep the memory for a while; a later Get or GetNew makes another buffer.
  void Forget(BlockNumber block);

  // Told of each block that did not verify when it was read, on the thread that read it, with no
  // lock held. Set before the cache is shared.
  using OnCorrupt = std::function<void(BlockNumber, const format::BlockIdentity&)>;
  void SetOnCorrupt(OnCorrupt on_corrupt) { on_corrupt_ = std::move(on_corrupt); }

  // Counters for stat; values may be slightly old.
  struct Stats {
    uint64_t hits, misses, blocks, evictions;
  };
  Stats stats() const;

  Device* device() { return device_; }
  uint64_t seed() const { return seed_; }

 private:
  struct Shard;

  Shard& ShardOf(BlockNumber block) const;
  // Makes the buffer ready, or says why not: reads it, or waits for who does. Single flight: of
  // all threads that miss on a block, one reads. The buffer is pinned.
  Error Load(Buffer* buffer);
  Error ReadAndVerify(Buffer* buffer);

  Device* const device_;
  const uint64_t seed_;
  const size_t shard_capacity_;
  std::unique_ptr<Shard[]> shards_;
  OnCorrupt on_corrupt_;
};

}  // namespace sluice

#endif  // SLUICE_BLOCK_BUFFER_CACHE_H_
