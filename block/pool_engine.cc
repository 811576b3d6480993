// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "block/io_engine.h"

namespace sluice {
namespace {

// More threads than this cost more than the depth they bring.
constexpr unsigned kMaxThreads = 32;

// Thread-safe.
class PoolEngine final : public IoEngine {
 public:
  PoolEngine(BackingFile* file, unsigned depth, IoCounters* counters, Finish finish)
      : file_(file), counters_(counters), finish_(std::move(finish)) {
    const unsigned count = std::clamp(depth, 1u, kMaxThreads);
    for (unsigned i = 0; i < count; ++i) threads_.emplace_back([this] { Work(); });
  }

  ~PoolEngine() override {
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
      changed_.SignalAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  void Start(std::span<IoOperation* const> operations) override {
    MutexLock lock(&mutex_);
    for (IoOperation* operation : operations) {
      waiting_.push_back(operation);
      changed_.Signal();
    }
  }

 private:
  void Work() {
    while (IoOperation* const operation = Next()) {
      counters_->Begin();
      const Error error = Serve(operation);
      counters_->End();
      finish_(operation, error);
    }
  }

  // Null: the end.
  IoOperation* Next() {
    MutexLock lock(&mutex_);
    while (waiting_.empty() && !stopping_) changed_.Wait(&mutex_);
    if (waiting_.empty()) return nullptr;
    IoOperation* const operation = waiting_.front();
    waiting_.pop_front();
    return operation;
  }

  Error Serve(IoOperation* operation) {
    const IoRequest& request = *operation->request;
    if (request.op == IoOp::kFlush) return file_->Flush();
    if (request.op == IoOp::kDiscard) return file_->Discard(request.offset, request.length);
    return file_->Transfer(request.op, operation->offset,
                           {operation->cursor.data(), operation->cursor.left()});
  }

  BackingFile* const file_;
  IoCounters* const counters_;
  const Finish finish_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<IoOperation*> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<IoEngine> MakePoolEngine(BackingFile* file, unsigned depth, IoCounters* counters,
                                         IoEngine::Finish finish) {
  return std::make_unique<PoolEngine>(file, depth, counters, std::move(finish));
}

}  // namespace sluice
