// SPDX-License-Identifier: Apache-2.0
//
// The thread of fs/ that may wait: it deletes inodes without links, writes lazy fields of inodes
// that should be evicted, and runs what must not be done under a lock (recording an error). In
// manual mode there is no thread; the work is done by whoever drains.
#ifndef SLUICE_FS_REAPER_H_
#define SLUICE_FS_REAPER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

#include "base/mutex.h"

namespace sluice {

// Thread-safe.
class Reaper {
 public:
  using Work = std::function<void()>;

  explicit Reaper(bool manual);
  ~Reaper();  // as Stop(false)

  // Never waits. Dropped after Stop.
  void Post(Work work);
  // Anything queued or running.
  bool busy() const;
  // Waits until one piece of work is done, or until there is none. For who needs what deletions
  // give back. On the reaper's own thread this and Drain return at once.
  void WaitProgress();
  // Waits until everything posted so far has been done. May wait.
  void Drain();
  void Stop(bool drain);

 private:
  void Run();
  // Does the first piece of work; the mutex is released meanwhile.
  void DoOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const bool manual_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Work> queue_ ABSL_GUARDED_BY(mutex_);
  uint64_t posted_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  bool working_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice

#endif  // SLUICE_FS_REAPER_H_
