// GoogleTest's main for every test program: the same, plus Abseil's lock-order detector, so that
// two mutexes taken in both orders abort the test even when the deadlock itself did not happen.
//
// SPDX-License-Identifier: Apache-2.0
#include <absl/synchronization/mutex.h>
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kAbort);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
