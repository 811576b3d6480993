// SPDX-License-Identifier: Apache-2.0
//
// A device between the filesystem and the crash device that breaks a rule on purpose.
#ifndef SLUICE_TESTS_CRASH_FAULTY_DEVICE_H_
#define SLUICE_TESTS_CRASH_FAULTY_DEVICE_H_

#include <span>

#include "block/device.h"

namespace sluice::crash {

// Hands every request on, but for those that a test keeps for itself.
class FaultyDevice : public Device {
 public:
  explicit FaultyDevice(Device* below) : below_(below) {}
  uint64_t size() const override { return below_->size(); }
  bool read_only() const override { return false; }
  void Submit(std::span<IoRequest* const> requests) override {
    for (IoRequest* request : requests) {
      if (!Swallow(*request)) {
        below_->Submit({&request, 1});
      } else {
        request->Done(Error::kOk);
      }
    }
  }

 protected:
  // True: the request is told to have succeeded and goes no further.
  virtual bool Swallow(const IoRequest& request) = 0;
  Device* below() const { return below_; }

 private:
  Device* const below_;
};

}  // namespace sluice::crash

#endif  // SLUICE_TESTS_CRASH_FAULTY_DEVICE_H_
