// SPDX-License-Identifier: Apache-2.0
//
// A device request that a test can wait for.
#ifndef SLUICE_TESTS_SUPPORT_TEST_REQUEST_H_
#define SLUICE_TESTS_SUPPORT_TEST_REQUEST_H_

#include <span>

#include "base/mutex.h"
#include "block/device.h"

namespace sluice {

class TestRequest final : public IoRequest {
 public:
  explicit TestRequest(IoOp which, uint64_t at = 0, std::span<std::byte> memory = {}) {
    op = which;
    offset = at;
    length = memory.size();
    if (!memory.empty()) buffers = {memory};
  }

  void Done(Error error) override {
    MutexLock lock(&mutex_);
    error_ = error;
    ++done_;
    condition_.SignalAll();
  }

  // Sleeps until the request is done.
  Error Wait() {
    MutexLock lock(&mutex_);
    while (done_ == 0) condition_.Wait(&mutex_);
    return error_;
  }
  int times_done() {
    MutexLock lock(&mutex_);
    return done_;
  }
  bool done() { return times_done() > 0; }

  std::span<IoRequest* const> AsSpan() { return {&self_, 1}; }

 private:
  IoRequest* const self_ = this;
  Mutex mutex_;
  CondVar condition_;
  int done_ ABSL_GUARDED_BY(mutex_) = 0;
  Error error_ ABSL_GUARDED_BY(mutex_) = Error::kOk;
};

}  // namespace sluice

#endif  // SLUICE_TESTS_SUPPORT_TEST_REQUEST_H_
