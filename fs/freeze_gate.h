// SPDX-License-Identifier: Apache-2.0
//
// The door that every change of the filesystem passes: closed, nobody changes anything, and who
// comes is parked (block/attempt.h) until it opens. Linux' sb_start_write and freeze_super do the
// same for a kernel filesystem.
#ifndef SLUICE_FS_FREEZE_GATE_H_
#define SLUICE_FS_FREEZE_GATE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "block/attempt.h"

namespace sluice {

// Thread-safe.
class FreezeGate {
 public:
  // Who holds one is inside. Held during one try of an operation, never across a wait; declared
  // before the operation's locks and handle, so that they end first. Move-only.
  class Pass {
   public:
    Pass() = default;
    explicit Pass(FreezeGate* gate) : gate_(gate) {}
    Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Pass& operator=(Pass&&) = delete;
    ~Pass() {
      if (gate_ != nullptr) gate_->Leave();
    }

   private:
    FreezeGate* gate_ = nullptr;
  };

  // kWouldBlock, and `attempt` parked until the gate opens, when it is not open.
  Result<Pass> Enter(Attempt& attempt) ABSL_LOCKS_EXCLUDED(mutex_);

  bool open() const { return !barred_.load(); }

  // Closing: BeginClose bars the door and waits until nobody is inside (no try of an operation
  // waits, so soon); EndClose(true) leaves it closed, EndClose(false) opens it again. kBusy if it
  // is not open. Opening: BeginOpen (kInvalid if it is open, kBusy if somebody opens or closes it
  // now), then EndOpen(true), or EndOpen(false) to leave it closed. Between begin and end the door
  // is barred and belongs to the caller.
  Error BeginClose() ABSL_LOCKS_EXCLUDED(mutex_);
  void EndClose(bool closed) ABSL_LOCKS_EXCLUDED(mutex_);
  Error BeginOpen() ABSL_LOCKS_EXCLUDED(mutex_);
  void EndOpen(bool opened) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until nobody is between begin and end.
  void WaitSettled() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class State { kOpen, kClosing, kClosed, kOpening };

  void Leave() ABSL_LOCKS_EXCLUDED(mutex_);
  // Calls `resume` when the door opens; now if it is open.
  void Park(std::function<void()> resume) ABSL_LOCKS_EXCLUDED(mutex_);
  void Settle(State state) ABSL_LOCKS_EXCLUDED(mutex_);

  // An entrant counts itself, then looks at the bar; who bars the door then looks at the count.
  // Both in one total order: one of them sees the other.
  std::atomic<bool> barred_{false};
  std::atomic<int64_t> inside_{0};
  Mutex mutex_;
  CondVar changed_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kOpen;
  std::vector<std::function<void()>> parked_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_FS_FREEZE_GATE_H_
