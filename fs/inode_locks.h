// SPDX-License-Identifier: Apache-2.0
//
// The inode mutexes that one namespace operation holds, exclusively, released together at its end.
//
// Order. Lock() may block, so its calls must follow the one order that cannot close a circle: a
// directory before what it holds, going down. Everything else (the second parent of a rename, the
// inodes that it moves or replaces) is taken with TryLock: if somebody has it, the operation lets
// go of everything, waits for that one, and runs again. So a thread that holds an inode's mutex
// only ever blocks on one further down the tree, and no order between unrelated inodes is needed.
#ifndef SLUICE_FS_INODE_LOCKS_H_
#define SLUICE_FS_INODE_LOCKS_H_

#include "absl/container/inlined_vector.h"
#include "base/error.h"
#include "base/mutex.h"
#include "block/attempt.h"
#include "fs/inode.h"

namespace sluice {

// Used by one thread. The set is not known when this is compiled, so that clang's analysis cannot
// follow it: users assert (Mutex::AssertHeld) before calls that require a mutex.
class InodeLocks {
 public:
  InodeLocks() = default;
  InodeLocks(const InodeLocks&) = delete;
  InodeLocks& operator=(const InodeLocks&) = delete;
  ~InodeLocks() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    while (!held_.empty()) {
      held_.back()->mutex.Unlock();
      held_.pop_back();  // perhaps the last reference, after the unlock
    }
  }

  bool Holds(const InodeRef& inode) const {
    for (const InodeRef& held : held_) {
      if (held == inode) return true;
    }
    return false;
  }

  // Precondition: not held.
  void Lock(const InodeRef& inode) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    inode->mutex.Lock();
    held_.push_back(inode);
  }

  // kWouldBlock if somebody else has it. kOk at once if this holds it already.
  Error TryLock(Attempt& attempt, const InodeRef& inode) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (Holds(inode)) return Error::kOk;
    if (!inode->mutex.TryLock()) {
      return attempt.Block([inode] {
        MutexLock wait(&inode->mutex);
        return Error::kOk;
      });
    }
    held_.push_back(inode);
    return Error::kOk;
  }

 private:
  absl::InlinedVector<InodeRef, 4> held_;
};

}  // namespace sluice

#endif  // SLUICE_FS_INODE_LOCKS_H_
