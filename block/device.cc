// SPDX-License-Identifier: Apache-2.0
#include "block/device.h"

#include "base/mutex.h"

namespace sluice {
namespace {

// A request whose submitter sleeps until it is done.
class BlockingRequest final : public IoRequest {
 public:
  void Done(Error error) override {
    // Signalled under the mutex: the waiter may destroy this as soon as it owns the mutex again.
    MutexLock lock(&mutex_);
    error_ = error;
    done_ = true;
    condition_.Signal();
  }

  Error Run(Device* device) {
    IoRequest* const self = this;
    device->Submit({&self, 1});
    MutexLock lock(&mutex_);
    while (!done_) condition_.Wait(&mutex_);
    return error_;
  }

 private:
  Mutex mutex_;
  CondVar condition_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  Error error_ ABSL_GUARDED_BY(mutex_) = Error::kOk;
};

bool Aligned(uint64_t value) { return value % kSectorSize == 0; }

}  // namespace

Error Device::Read(uint64_t offset, std::span<std::byte> data, IoKind kind) {
  BlockingRequest request;
  request.op = IoOp::kRead;
  request.kind = kind;
  request.offset = offset;
  request.length = data.size();
  request.buffers = {data};
  return request.Run(this);
}

Error Device::Write(uint64_t offset, std::span<const std::byte> data, IoKind kind) {
  return WriteGather(offset, {&data, 1}, kind);
}

Error Device::WriteGather(uint64_t offset, std::span<const std::span<const std::byte>> pieces,
                          IoKind kind) {
  BlockingRequest request;
  request.op = IoOp::kWrite;
  request.kind = kind;
  request.offset = offset;
  request.buffers.reserve(pieces.size());
  for (std::span<const std::byte> piece : pieces) {
    // A write never changes the memory it is given; requests have one buffer type for both ways.
    request.buffers.emplace_back(const_cast<std::byte*>(piece.data()), piece.size());
    request.length += piece.size();
  }
  return request.Run(this);
}

Error Device::Flush(IoKind kind) {
  BlockingRequest request;
  request.op = IoOp::kFlush;
  request.kind = kind;
  return request.Run(this);
}

Error Device::Discard(uint64_t offset, uint64_t length) {
  BlockingRequest request;
  request.op = IoOp::kDiscard;
  request.kind = IoKind::kDiscard;
  request.offset = offset;
  request.length = length;
  return request.Run(this);
}

Error CheckRange(const Device& device, IoOp op, uint64_t offset, uint64_t length) {
  if (op != IoOp::kRead && device.read_only()) return Error::kReadOnly;
  const uint64_t size = device.size();
  const bool inside = offset <= size && length <= size - offset;
  return Aligned(offset) && Aligned(length) && inside ? Error::kOk : Error::kInvalid;
}

Error CheckRequest(const Device& device, const IoRequest& request) {
  if (request.op == IoOp::kFlush) return Error::kOk;
  RETURN_IF_ERROR(CheckRange(device, request.op, request.offset, request.length));
  if (request.op == IoOp::kDiscard) return Error::kOk;
  uint64_t sum = 0;
  for (std::span<std::byte> buffer : request.buffers) {
    if (!Aligned(buffer.size())) return Error::kInvalid;
    sum += buffer.size();
  }
  return sum == request.length ? Error::kOk : Error::kInvalid;
}

}  // namespace sluice
