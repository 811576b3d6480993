// SPDX-License-Identifier: Apache-2.0
//
// A device whose requests wait in the doorway until the test lets them go: for tests about what
// may and what may not happen while I/O is in flight.
#ifndef SLUICE_TESTS_SUPPORT_HELD_DEVICE_H_
#define SLUICE_TESTS_SUPPORT_HELD_DEVICE_H_

#include <cstddef>
#include <vector>

#include "base/mutex.h"
#include "block/device.h"

namespace sluice {

// Stands on `base` and passes everything through until Hold. Thread-safe. Blocking forms go
// through Submit, so they are held too. Nothing may be held at its end.
class HeldDevice final : public Device {
 public:
  explicit HeldDevice(Device* base) : base_(base) {}

  uint64_t size() const override { return base_->size(); }
  bool read_only() const override { return base_->read_only(); }

  void Submit(std::span<IoRequest* const> requests) override {
    std::vector<IoRequest*> pass;
    {
      MutexLock lock(&mutex_);
      for (IoRequest* request : requests) {
        const bool hold = hold_[static_cast<size_t>(request->op)];
        (hold ? held_ : pass).push_back(request);
      }
      changed_.SignalAll();
    }
    base_->Submit(pass);
  }

  // Requests of `op` wait from now on.
  void Hold(IoOp op) {
    MutexLock lock(&mutex_);
    hold_[static_cast<size_t>(op)] = true;
  }
  // Sleeps until at least `count` requests wait.
  void WaitForHeld(size_t count) {
    MutexLock lock(&mutex_);
    while (held_.size() < count) changed_.Wait(&mutex_);
  }
  size_t held() {
    MutexLock lock(&mutex_);
    return held_.size();
  }
  // Lets the oldest request go; later ones still wait.
  void ReleaseOne() {
    IoRequest* request = nullptr;
    {
      MutexLock lock(&mutex_);
      if (held_.empty()) return;
      request = held_.front();
      held_.erase(held_.begin());
    }
    base_->Submit({&request, 1});
  }
  // Lets all go and holds nothing from now on.
  void Release() {
    std::vector<IoRequest*> pass;
    {
      MutexLock lock(&mutex_);
      for (bool& hold : hold_) hold = false;
      pass.swap(held_);
    }
    base_->Submit(pass);
  }

 private:
  Device* const base_;
  Mutex mutex_;
  CondVar changed_;
  bool hold_[4] ABSL_GUARDED_BY(mutex_) = {};
  std::vector<IoRequest*> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_TESTS_SUPPORT_HELD_DEVICE_H_
