// SPDX-License-Identifier: Apache-2.0
#include "fs/reaper.h"

#include <utility>

#include "base/check.h"
#include "journal/journal.h"

namespace sluice {
namespace {

// The reaper whose work this thread is doing: that cannot wait for itself.
thread_local const Reaper* working_for = nullptr;

}  // namespace

Reaper::Reaper(bool manual) : manual_(manual) {
  if (!manual) thread_ = std::thread([this] { Run(); });
}

Reaper::~Reaper() { Stop(false); }

void Reaper::Post(Work work) {
  MutexLock lock(&mutex_);
  if (stop_) return;
  queue_.push_back(std::move(work));
  ++posted_;
  changed_.SignalAll();
}

bool Reaper::busy() const {
  MutexLock lock(&mutex_);
  return done_ != posted_;
}

void Reaper::DoOne() {
  Work work = std::move(queue_.front());
  queue_.pop_front();
  working_ = true;
  mutex_.Unlock();
  working_for = this;
  work();
  working_for = nullptr;
  work = nullptr;  // what it holds goes before it counts as done, and without the mutex
  mutex_.Lock();
  working_ = false;
  ++done_;
  changed_.SignalAll();
}

void Reaper::Run() {
  MutexLock lock(&mutex_);
  for (;;) {
    while (queue_.empty() && !stop_) changed_.Wait(&mutex_);
    if (stop_) return;
    DoOne();
  }
}

void Reaper::WaitProgress() {
  SLUICE_CHECK(!Journal::ThreadHasHandle());
  if (working_for == this) return;
  MutexLock lock(&mutex_);
  const uint64_t before = done_;
  while (done_ == before && done_ != posted_ && !stop_) {
    if (manual_ && !working_) {
      DoOne();
    } else {
      changed_.Wait(&mutex_);
    }
  }
}

void Reaper::Drain() {
  SLUICE_CHECK(!Journal::ThreadHasHandle());
  if (working_for == this) return;
  MutexLock lock(&mutex_);
  const uint64_t target = posted_;
  while (done_ < target && !stop_) {
    if (manual_ && !working_) {
      DoOne();
    } else {
      changed_.Wait(&mutex_);
    }
  }
}

void Reaper::Stop(bool drain) {
  if (drain) Drain();
  std::deque<Work> dropped;
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    dropped.swap(queue_);
    done_ = posted_;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace sluice
