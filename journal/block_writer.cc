// SPDX-License-Identifier: Apache-2.0
#include "journal/block_writer.h"

#include <vector>

#include "base/mutex.h"

namespace sluice {
namespace {

constexpr uint64_t kMaxRequestBytes = 256 * kBlockSize;

}  // namespace

// Counts down the requests of one call. It is the waiter who destroys it, so the last request
// touches it only under the mutex.
class HomeWrites::Latch {
 public:
  explicit Latch(size_t count) : pending_(count) {}

  void Finished(Error error) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    if (error_ == Error::kOk) error_ = error;
    if (--pending_ == 0) done_.Signal();
  }

  Error Wait() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    while (pending_ > 0) done_.Wait(&mutex_);
    return error_;
  }

 private:
  Mutex mutex_;
  CondVar done_;
  size_t pending_ ABSL_GUARDED_BY(mutex_);
  Error error_ ABSL_GUARDED_BY(mutex_) = Error::kOk;
};

class HomeWrites::Request final : public IoRequest {
 public:
  Request(const HomeBlock& first, IoKind io_kind) {
    op = IoOp::kWrite;
    kind = io_kind;
    offset = first.home << kBlockShift;
    Append(first);
  }
  bool Continues(const HomeBlock& block) const {
    return block.home << kBlockShift == offset + length && length < kMaxRequestBytes;
  }
  void Append(const HomeBlock& block) {
    // Copies that lie side by side in memory make one piece.
    if (!buffers.empty() && buffers.back().data() + buffers.back().size() == block.copy) {
      buffers.back() = {buffers.back().data(), buffers.back().size() + kBlockSize};
    } else {
      buffers.push_back({block.copy, kBlockSize});
    }
    length += kBlockSize;
  }
  void Done(Error error) override { latch->Finished(error); }

  Latch* latch = nullptr;
};

HomeWrites::HomeWrites(std::span<const HomeBlock> blocks, IoKind kind) {
  for (const HomeBlock& block : blocks) {
    if (!requests_.empty() && requests_.back().Continues(block)) {
      requests_.back().Append(block);
    } else {
      requests_.emplace_back(block, kind);
    }
  }
}

HomeWrites::~HomeWrites() = default;

Error HomeWrites::Write(Device* device) {
  Latch latch(requests_.size());
  std::vector<IoRequest*> submit;
  submit.reserve(requests_.size());
  for (Request& request : requests_) {
    request.latch = &latch;
    submit.push_back(&request);
  }
  device->Submit(submit);
  return latch.Wait();
}

void HomeWrites::MarkUrgent() {
  for (Request& request : requests_) request.urgent.store(true, std::memory_order_release);
}

Error WriteHomeBlocks(Device* device, std::span<const HomeBlock> blocks, IoKind kind) {
  return HomeWrites(blocks, kind).Write(device);
}

}  // namespace sluice
