// SPDX-License-Identifier: Apache-2.0
#include "journal/block_writer.h"

#include <deque>
#include <vector>

#include "base/mutex.h"

namespace sluice {
namespace {

constexpr uint64_t kMaxRequestBytes = 256 * kBlockSize;

// Counts down the requests of one call. It is the waiter who destroys it, so the last request
// touches it only under the mutex.
class Latch {
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

class HomeWrite : public IoRequest {
 public:
  HomeWrite(const HomeBlock& first, IoKind io_kind) {
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

}  // namespace

Error WriteHomeBlocks(Device* device, std::span<const HomeBlock> blocks, IoKind kind) {
  std::deque<HomeWrite> writes;  // addresses must not move
  for (const HomeBlock& block : blocks) {
    if (!writes.empty() && writes.back().Continues(block)) {
      writes.back().Append(block);
    } else {
      writes.emplace_back(block, kind);
    }
  }
  Latch latch(writes.size());
  std::vector<IoRequest*> requests;
  requests.reserve(writes.size());
  for (HomeWrite& write : writes) {
    write.latch = &latch;
    requests.push_back(&write);
  }
  device->Submit(requests);
  return latch.Wait();
}

}  // namespace sluice
