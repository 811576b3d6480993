// SPDX-License-Identifier: Apache-2.0
//
// The range lock of an inode: who reads or writes which part of a file's blocks. It belongs to a
// request, not to a thread, and may be held across I/O (J6): readers and direct I/O hold it shared
// from the mapping lookup to completion; truncate and punch exclusively, taken before their handle.
#ifndef SLUICE_FS_RANGE_LOCK_H_
#define SLUICE_FS_RANGE_LOCK_H_

#include <cstdint>
#include <list>
#include <memory>

#include "base/error.h"
#include "base/mutex.h"
#include "block/attempt.h"

namespace sluice {

// Thread-safe. FIFO among those that conflict: a waiting exclusive request is not starved by a
// stream of shared ones.
class RangeLock {
 public:
  enum class Mode { kShared, kExclusive };

  // Held until destroyed; may be moved to and destroyed on another thread.
  class Token {
   public:
    Token() = default;
    Token(Token&& other) noexcept;
    Token& operator=(Token&& other) noexcept;
    ~Token();
    bool held() const { return lock_ != nullptr; }
    void Release();

   private:
    friend class RangeLock;
    RangeLock* lock_ = nullptr;
    uint64_t id_ = 0;
  };

  RangeLock() = default;
  ~RangeLock();

  // Bytes [start, end). Answers kWouldBlock, and tells `attempt` to wait for its turn, if somebody
  // conflicting holds or was waiting before. The turn is kept in the attempt's wait until the next
  // TryAcquire of the same request asks again.
  Result<Token> TryAcquire(Attempt& attempt, uint64_t start, uint64_t end, Mode mode);

 private:
  struct Entry;
  void Release(uint64_t id);

  Mutex mutex_;
  CondVar released_;
  std::list<Entry> held_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t waiting_exclusive_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice

#endif  // SLUICE_FS_RANGE_LOCK_H_
