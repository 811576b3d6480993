// SPDX-License-Identifier: Apache-2.0
//
// See worker_pool.h.
#include "fs/fuse/worker_pool.h"

#include <pthread.h>

#include <thread>
#include <utility>

namespace sluice {
namespace {

constexpr absl::Duration kIdleThreadLives = absl::Seconds(10);

}  // namespace

WorkerPool::~WorkerPool() {
  MutexLock lock(&mutex_);
  ending_ = true;
  work_.SignalAll();
  while (threads_ > 0) changed_.Wait(&mutex_);
}

void WorkerPool::Submit(std::unique_ptr<Job> job) {
  MutexLock lock(&mutex_);
  queue_.push_back(std::move(job));
  if (static_cast<size_t>(idle_) >= queue_.size() || threads_ >= most_threads_) {
    work_.Signal();
  } else {
    StartThreadLocked();
  }
}

void WorkerPool::WaitIdle() {
  MutexLock lock(&mutex_);
  while (running_ > 0 || !queue_.empty()) changed_.Wait(&mutex_);
}

void WorkerPool::StartThreadLocked() {
  ++threads_;
  std::thread thread([this] { ThreadMain(); });
  pthread_setname_np(thread.native_handle(), "sluice-worker");
  thread.detach();  // the destructor counts threads instead of joining them
}

std::unique_ptr<WorkerPool::Job> WorkerPool::NextLocked() {
  while (queue_.empty()) {
    if (ending_) return nullptr;
    ++idle_;
    const bool timed_out = work_.WaitWithTimeout(&mutex_, kIdleThreadLives);
    --idle_;
    if (timed_out && queue_.empty()) return nullptr;
  }
  std::unique_ptr<Job> job = std::move(queue_.front());
  queue_.pop_front();
  return job;
}

void WorkerPool::ThreadMain() {
  mutex_.Lock();
  while (std::unique_ptr<Job> job = NextLocked()) {
    ++running_;
    mutex_.Unlock();
    job->Run();
    job.reset();
    mutex_.Lock();
    --running_;
    changed_.SignalAll();
  }
  --threads_;
  changed_.SignalAll();
  mutex_.Unlock();
}

}  // namespace sluice
