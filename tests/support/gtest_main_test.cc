// The test programs' main must really have armed the lock-order detector.
//
// SPDX-License-Identifier: Apache-2.0
#include <absl/synchronization/mutex.h>
#include <gtest/gtest.h>

namespace {

TEST(GtestMainDeathTest, LockOrderInversionAborts) {
  absl::Mutex first;
  absl::Mutex second;
  first.Lock();
  second.Lock();
  second.Unlock();
  first.Unlock();
  EXPECT_DEATH(
      {
        second.Lock();
        first.Lock();
        first.Unlock();
        second.Unlock();
      },
      "eadlock");
}

}  // namespace
