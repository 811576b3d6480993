// SPDX-License-Identifier: Apache-2.0
#include "block/memory_device.h"

#include <utility>

#include "base/check.h"
#include "block/inline_completion.h"

namespace sluice {

MemoryDevice::MemoryDevice(MemoryImage image) : size_(image.size()), image_(std::move(image)) {
  SLUICE_CHECK(size_ % kSectorSize == 0);
}

void MemoryDevice::Submit(std::span<IoRequest* const> requests) {
  for (IoRequest* request : requests) CompleteInline(request, Serve(request));
}

Error MemoryDevice::Serve(IoRequest* request) {
  RETURN_IF_ERROR(CheckRequest(*this, *request));
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(InjectedLocked(*request));
  uint64_t at = request->offset;
  switch (request->op) {
    case IoOp::kRead:
      for (std::span<std::byte> buffer : request->buffers) {
        image_.Read(at, buffer);
        at += buffer.size();
      }
      break;
    case IoOp::kWrite:
      for (std::span<std::byte> buffer : request->buffers) {
        image_.Write(at, buffer);
        at += buffer.size();
      }
      break;
    case IoOp::kDiscard:
      image_.Erase(request->offset, request->length);
      break;
    case IoOp::kFlush:
      break;
  }
  return Error::kOk;
}

Error MemoryDevice::InjectedLocked(const IoRequest& request) {
  ++counts_[static_cast<size_t>(request.op)];
  if (request.op != IoOp::kRead) RETURN_IF_ERROR(refusal_);
  for (auto it = countdowns_.begin(); it != countdowns_.end();) {
    if (it->op == request.op && --it->left == 0) {
      const Error error = it->error;
      countdowns_.erase(it);
      return error;
    }
    ++it;
  }
  for (const BadRange& bad : bad_ranges_) {
    if (bad.op == request.op && request.offset < bad.offset + bad.length &&
        bad.offset < request.offset + request.length) {
      return bad.error;
    }
  }
  return Error::kOk;
}

std::unique_ptr<MemoryDevice> MemoryDevice::Clone() const {
  return std::make_unique<MemoryDevice>(Image());
}

MemoryImage MemoryDevice::Image() const {
  MutexLock lock(&mutex_);
  return image_.Share();
}

void MemoryDevice::FailNth(IoOp op, uint64_t nth, Error error) {
  SLUICE_CHECK(nth > 0 && error != Error::kOk);
  MutexLock lock(&mutex_);
  countdowns_.push_back({op, nth, error});
}

void MemoryDevice::FailRange(IoOp op, uint64_t offset, uint64_t length, Error error) {
  SLUICE_CHECK(error != Error::kOk);
  MutexLock lock(&mutex_);
  bad_ranges_.push_back({op, offset, length, error});
}

void MemoryDevice::RefuseWrites(Error error) {
  SLUICE_CHECK(error != Error::kOk);
  MutexLock lock(&mutex_);
  refusal_ = error;
}

void MemoryDevice::ClearFaults() {
  MutexLock lock(&mutex_);
  countdowns_.clear();
  bad_ranges_.clear();
  refusal_ = Error::kOk;
}

uint64_t MemoryDevice::count(IoOp op) const {
  MutexLock lock(&mutex_);
  return counts_[static_cast<size_t>(op)];
}

}  // namespace sluice
