// SPDX-License-Identifier: Apache-2.0
#include "block/crash_device.h"

#include <utility>

#include "base/check.h"
#include "block/inline_completion.h"

namespace sluice {
namespace {

using EventKind = CrashLog::EventKind;

std::shared_ptr<const CrashLog::Write> CopyOf(const IoRequest& request) {
  auto write = std::make_shared<CrashLog::Write>();
  write->offset = request.offset;
  write->length = request.length;
  if (request.op == IoOp::kWrite) {
    write->data.reserve(request.length);
    for (std::span<std::byte> buffer : request.buffers) {
      write->data.insert(write->data.end(), buffer.begin(), buffer.end());
    }
  }
  return write;
}

}  // namespace

CrashDevice::CrashDevice(MemoryImage base)
    : size_(base.size()), image_(base.Share()), base_(std::move(base)) {
  SLUICE_CHECK(size_ % kSectorSize == 0);
}

void CrashDevice::Submit(std::span<IoRequest* const> requests) {
  // Two passes, so that what was submitted together is in flight together.
  std::vector<std::pair<Error, uint64_t>> begun;
  begun.reserve(requests.size());
  for (const IoRequest* request : requests) {
    const Error error = CheckRequest(*this, *request);
    begun.emplace_back(error, error == Error::kOk ? Begin(*request) : 0);
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto [error, id] = begun[i];
    if (error == Error::kOk) Finish(requests[i], id);
    CompleteInline(requests[i], error);
  }
}

uint64_t CrashDevice::Begin(const IoRequest& request) {
  if (request.op == IoOp::kRead) return 0;
  if (request.op == IoOp::kFlush) {
    MutexLock lock(&mutex_);
    events_.push_back({EventKind::kFlushSubmitted, flushes_});
    return flushes_++;
  }
  std::shared_ptr<const CrashLog::Write> write = CopyOf(request);
  MutexLock lock(&mutex_);
  const uint64_t id = writes_.size();
  writes_.push_back(std::move(write));
  events_.push_back({EventKind::kWriteSubmitted, id});
  return id;
}

void CrashDevice::Finish(IoRequest* request, uint64_t id) {
  MutexLock lock(&mutex_);
  switch (request->op) {
    case IoOp::kRead: {
      uint64_t at = request->offset;
      for (std::span<std::byte> buffer : request->buffers) {
        image_.Read(at, buffer);
        at += buffer.size();
      }
      return;
    }
    case IoOp::kFlush:
      events_.push_back({EventKind::kFlushCompleted, id});
      return;
    case IoOp::kWrite:
      image_.Write(request->offset, writes_[id]->data);
      break;
    case IoOp::kDiscard:
      image_.Erase(request->offset, request->length);
      break;
  }
  events_.push_back({EventKind::kWriteCompleted, id});
}

void CrashDevice::Mark(uint64_t value) {
  MutexLock lock(&mutex_);
  events_.push_back({EventKind::kMark, value});
}

void CrashDevice::StartLog() {
  MutexLock lock(&mutex_);
  base_ = image_.Share();
  events_.clear();
  writes_.clear();
  flushes_ = 0;
}

CrashLog CrashDevice::TakeLog() const {
  MutexLock lock(&mutex_);
  return {base_.Share(), events_, writes_};
}

MemoryImage CrashDevice::Image() const {
  MutexLock lock(&mutex_);
  return image_.Share();
}

}  // namespace sluice
