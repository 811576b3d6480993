// SPDX-License-Identifier: Apache-2.0
#include "block/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

bool IsBackground(IoKind kind) {
  return kind == IoKind::kBackgroundWrite || kind == IoKind::kDiscard;
}

}  // namespace

// A request on its way through: carries what the submitter's says, and tells the scheduler when it
// ends. Deletes itself.
class Scheduler::Passage final : public IoRequest {
 public:
  Passage(Scheduler* scheduler, IoRequest* request)
      : background(IsBackground(request->kind)), scheduler_(scheduler), request_(request) {
    op = request->op;
    kind = request->kind;
    flow = request->flow;
    offset = request->offset;
    length = request->length;
    buffers = std::move(request->buffers);
  }

  void Done(Error error) override {
    IoRequest* const request = request_;
    request->buffers = std::move(buffers);
    // The device has a free place from now on, whatever the submitter does next.
    scheduler_->Finished(*this);
    delete this;
    request->Done(error);
  }

  bool IsUrgent() const override { return request_->IsUrgent(); }

  bool background;  // counted as such

 private:
  Scheduler* const scheduler_;
  IoRequest* const request_;
};

Scheduler::Scheduler(Device* device, const SchedulerOptions& options)
    : device_(device), options_(options) {}

Scheduler::~Scheduler() {
  MutexLock lock(&mutex_);
  SLUICE_CHECK(queue_.empty() && foreground_ == 0 && background_ == 0);
}

void Scheduler::Submit(std::span<IoRequest* const> requests) {
  std::vector<Passage*> passages;
  passages.reserve(requests.size());
  for (IoRequest* request : requests) passages.push_back(new Passage(this, request));
  std::vector<IoRequest*> ready;
  ready.reserve(requests.size());
  {
    MutexLock lock(&mutex_);
    uint64_t arrived = 0;
    for (Passage* passage : passages) {
      if (passage->background && passage->IsUrgent()) passage->background = false;
      if (passage->background) {
        queue_.push_back(passage);
        ++arrived;
      } else {
        DispatchLocked(passage, &ready);
      }
    }
    TakeLocked(&ready);
    max_queued_ = std::max<uint64_t>(max_queued_, queue_.size());
    held_back_ += std::min<uint64_t>(arrived, queue_.size());
  }
  SubmitReady(ready);
}

void Scheduler::Promote() {
  std::vector<IoRequest*> ready;
  {
    MutexLock lock(&mutex_);
    std::erase_if(queue_, [&](Passage* passage) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      if (!passage->IsUrgent()) return false;
      passage->background = false;
      ++promoted_;
      DispatchLocked(passage, &ready);
      return true;
    });
  }
  SubmitReady(ready);
  device_->Promote();
}

bool Scheduler::RoomLocked(const Passage& next) const {
  if (background_ == 0) return true;
  const bool alone = foreground_ == 0;
  const unsigned requests = alone ? options_.alone_requests : options_.beside_requests;
  const uint64_t bytes = alone ? options_.alone_bytes : options_.beside_bytes;
  return background_ < requests && background_bytes_ + next.length <= bytes;
}

void Scheduler::TakeLocked(std::vector<IoRequest*>* ready) {
  while (!queue_.empty() && RoomLocked(*queue_.front())) {
    DispatchLocked(queue_.front(), ready);
    queue_.pop_front();
  }
}

void Scheduler::DispatchLocked(Passage* passage, std::vector<IoRequest*>* ready) {
  if (passage->background) {
    ++background_;
    background_bytes_ += passage->length;
  } else {
    ++foreground_;
  }
  ready->push_back(passage);
}

void Scheduler::SubmitReady(const std::vector<IoRequest*>& ready) {
  if (!ready.empty()) device_->Submit(ready);
}

void Scheduler::Finished(const Passage& passage) {
  if (!passage.background) return FinishForeground();
  std::vector<IoRequest*> ready;
  {
    MutexLock lock(&mutex_);
    --background_;
    background_bytes_ -= passage.length;
    TakeLocked(&ready);
  }
  SubmitReady(ready);
}

void Scheduler::FinishForeground() {
  std::vector<IoRequest*> ready;
  {
    MutexLock lock(&mutex_);
    if (--foreground_ == 0) TakeLocked(&ready);
  }
  SubmitReady(ready);
}

// The blocking forms keep the device's own short way. Whoever calls them waits, whatever the kind.

Error Scheduler::Read(uint64_t offset, std::span<std::byte> data, IoKind kind) {
  {
    MutexLock lock(&mutex_);
    ++foreground_;
  }
  const Error error = device_->Read(offset, data, kind);
  FinishForeground();
  return error;
}

Error Scheduler::WriteGather(uint64_t offset, std::span<const std::span<const std::byte>> pieces,
                             IoKind kind) {
  {
    MutexLock lock(&mutex_);
    ++foreground_;
  }
  const Error error = device_->WriteGather(offset, pieces, kind);
  FinishForeground();
  return error;
}

Error Scheduler::Flush(IoKind kind) {
  {
    MutexLock lock(&mutex_);
    ++foreground_;
  }
  const Error error = device_->Flush(kind);
  FinishForeground();
  return error;
}

Scheduler::Stats Scheduler::stats() const {
  MutexLock lock(&mutex_);
  return {.queued = queue_.size(),
          .max_queued = max_queued_,
          .held_back = held_back_,
          .promoted = promoted_,
          .foreground = foreground_,
          .background = background_};
}

}  // namespace sluice
