// SPDX-License-Identifier: Apache-2.0
#include "block/attempt.h"

#include <memory>

#include "base/mutex.h"

namespace sluice {
namespace {

// Shared, since who resumes may still be in it when the waiter is gone.
struct Resumption {
  Mutex mutex;
  CondVar changed;
  bool resumed ABSL_GUARDED_BY(mutex) = false;
};

}  // namespace

Error Attempt::WaitParked(const ParkFunction& park) {
  auto resumption = std::make_shared<Resumption>();
  park([resumption] {
    MutexLock lock(&resumption->mutex);
    resumption->resumed = true;
    resumption->changed.SignalAll();
  });
  MutexLock lock(&resumption->mutex);
  while (!resumption->resumed) resumption->changed.Wait(&resumption->mutex);
  return Error::kOk;
}

}  // namespace sluice
