// SPDX-License-Identifier: Apache-2.0
//
// The range lock of an inode: who reads or writes which part of a file's blocks. It belongs to a
// request, not to a thread, and may be held across I/O (J6): readers and direct I/O hold it shared
// from the mapping lookup to completion; truncate and punch exclusively, taken before their handle.
#ifndef SLUICE_FS_RANGE_LOCK_H_
#define SLUICE_FS_RANGE_LOCK_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "base/error.h"
#include "base/mutex.h"
#include "block/attempt.h"

namespace sluice {

// Thread-safe. A stream of shared requests does not starve an exclusive one that waits.
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
  ~RangeLock();  // precondition: not held

  // Bytes [start, end). Answers kWouldBlock, and tells `attempt` to wait until nobody conflicting
  // holds the lock. The lock's owner must stay alive until that wait is over.
  Result<Token> TryAcquire(Attempt& attempt, uint64_t start, uint64_t end, Mode mode);

 private:
  struct Range {
    uint64_t start;
    uint64_t end;
    Mode mode;
  };
  struct Held {
    uint64_t id;
    Range range;
  };

  bool Conflicts(const Range& range) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Error Wait(const Range& range);
  void Release(uint64_t id);

  Mutex mutex_;
  CondVar released_;
  absl::InlinedVector<Held, 4> held_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  // Exclusive requests in their wait: while there are any, new shared ones queue up behind them.
  int exclusive_waiters_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice

#endif  // SLUICE_FS_RANGE_LOCK_H_
