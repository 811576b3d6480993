// SPDX-License-Identifier: Apache-2.0
//
// A device whose requests wait until the test lets them go.
#ifndef SLUICE_TESTS_WRITEBACK_HELD_DEVICE_H_
#define SLUICE_TESTS_WRITEBACK_HELD_DEVICE_H_

#include <span>
#include <vector>

#include "base/mutex.h"
#include "block/memory_device.h"

namespace sluice {

// Thread-safe.
class HeldDevice : public Device {
 public:
  explicit HeldDevice(uint64_t size) : disk_(size) {}

  uint64_t size() const override { return disk_.size(); }
  bool read_only() const override { return false; }
  void Submit(std::span<IoRequest* const> requests) override {
    MutexLock lock(&mutex_);
    held_.insert(held_.end(), requests.begin(), requests.end());
  }

  // Lets everything that is held go to the disk (or fail).
  void Release(Error error = Error::kOk) {
    std::vector<IoRequest*> requests;
    {
      MutexLock lock(&mutex_);
      requests.swap(held_);
    }
    for (IoRequest* request : requests) {
      if (error == Error::kOk) {
        disk_.Submit({&request, 1});
      } else {
        request->Done(error);
      }
    }
  }

  size_t held() {
    MutexLock lock(&mutex_);
    return held_.size();
  }
  uint64_t length(size_t index) {
    MutexLock lock(&mutex_);
    return held_.at(index)->length;
  }
  uint64_t offset(size_t index) {
    MutexLock lock(&mutex_);
    return held_.at(index)->offset;
  }
  MemoryDevice& disk() { return disk_; }

 private:
  MemoryDevice disk_;
  Mutex mutex_;
  std::vector<IoRequest*> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_TESTS_WRITEBACK_HELD_DEVICE_H_
