// SPDX-License-Identifier: Apache-2.0
//
// Threads for requests that must wait. The pool grows while jobs queue, up to its bound, and its
// idle threads end.
#ifndef SLUICE_FS_FUSE_WORKER_POOL_H_
#define SLUICE_FS_FUSE_WORKER_POOL_H_

#include <deque>
#include <memory>

#include "base/mutex.h"

namespace sluice {

// Thread-safe.
class WorkerPool {
 public:
  class Job {
   public:
    virtual ~Job() = default;
    virtual void Run() = 0;  // may block; the job is destroyed after it
  };

  explicit WorkerPool(int most_threads) : most_threads_(most_threads) {}
  // Waits for all jobs and threads.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  void Submit(std::unique_ptr<Job> job) ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns when no job is queued or running.
  void WaitIdle() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void ThreadMain() ABSL_LOCKS_EXCLUDED(mutex_);
  void StartThreadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The next job, or null when this thread should end.
  std::unique_ptr<Job> NextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int most_threads_;
  Mutex mutex_;
  CondVar work_;     // a job or the end has come
  CondVar changed_;  // a job has finished or a thread has ended
  std::deque<std::unique_ptr<Job>> queue_ ABSL_GUARDED_BY(mutex_);
  int threads_ ABSL_GUARDED_BY(mutex_) = 0;
  int idle_ ABSL_GUARDED_BY(mutex_) = 0;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_WORKER_POOL_H_
