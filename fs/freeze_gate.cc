// SPDX-License-Identifier: Apache-2.0
#include "fs/freeze_gate.h"

#include "base/check.h"
#include "journal/journal.h"

namespace sluice {

Result<FreezeGate::Pass> FreezeGate::Enter(Attempt& attempt) {
  inside_.fetch_add(1);
  if (!barred_.load()) [[likely]]
    return Pass(this);
  Leave();
  return attempt.Park([this](std::function<void()> resume) { Park(std::move(resume)); });
}

void FreezeGate::Leave() {
  if (inside_.fetch_sub(1) != 1 || !barred_.load()) [[likely]]
    return;
  MutexLock lock(&mutex_);
  changed_.SignalAll();
}

void FreezeGate::Park(std::function<void()> resume) {
  {
    MutexLock lock(&mutex_);
    if (state_ != State::kOpen) {
      parked_.push_back(std::move(resume));
      return;
    }
  }
  resume();
}

Error FreezeGate::BeginClose() {
  SLUICE_CHECK(!Journal::ThreadHasHandle());  // J2
  MutexLock lock(&mutex_);
  if (state_ != State::kOpen) return Error::kBusy;
  state_ = State::kClosing;
  barred_.store(true);
  while (inside_.load() != 0) changed_.Wait(&mutex_);
  return Error::kOk;
}

void FreezeGate::EndClose(bool closed) { Settle(closed ? State::kClosed : State::kOpen); }

Error FreezeGate::BeginOpen() {
  MutexLock lock(&mutex_);
  if (state_ == State::kOpen) return Error::kInvalid;
  if (state_ != State::kClosed) return Error::kBusy;
  state_ = State::kOpening;
  return Error::kOk;
}

void FreezeGate::EndOpen(bool opened) { Settle(opened ? State::kOpen : State::kClosed); }

void FreezeGate::WaitSettled() {
  MutexLock lock(&mutex_);
  while (state_ == State::kClosing || state_ == State::kOpening) changed_.Wait(&mutex_);
}

void FreezeGate::Settle(State state) {
  std::vector<std::function<void()>> resumed;
  {
    MutexLock lock(&mutex_);
    state_ = state;
    if (state == State::kOpen) {
      barred_.store(false);
      resumed.swap(parked_);
    }
    changed_.SignalAll();
  }
  for (const auto& resume : resumed) resume();
}

}  // namespace sluice
