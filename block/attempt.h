// SPDX-License-Identifier: Apache-2.0
//
// The attempt protocol: how every operation of the filesystem waits.
//
// An operation is a function that can be run again from its start. While it holds a lock or a
// journal handle it never waits for I/O, log space, a commit or a range lock. When it meets
// something it would have to wait for (a metadata block that is not in memory, a locked
// transaction), the thing that said so stores a wait function in the Attempt and the operation
// returns Error::kWouldBlock, having changed nothing (or having left a consistent state). Then,
// with no lock and no handle held, somebody calls Wait() and runs the operation again. A thread
// that must not wait hands the Attempt to one that may.
//
// A wait that somebody else's will ends (a frozen filesystem) may last: such an operation is parked
// instead, which takes no thread. Who runs operations for others takes the park function and gives
// it a function that goes on; the others just Wait().
//
// An operation that succeeded may still owe something before its caller may be told so: with
// `-o sync` the commit of its transaction. It leaves that as the Attempt's finish function, and who
// runs the operation calls Finish() (which may wait) between a success and the answer.
//
// This is invariant J2 by construction: no thread waits while it holds an open handle.
#ifndef SLUICE_BLOCK_ATTEMPT_H_
#define SLUICE_BLOCK_ATTEMPT_H_

#include <functional>
#include <type_traits>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/check.h"
#include "base/error.h"
#include "block/buffer_cache.h"

namespace sluice {

// State of one operation over all its attempts. Used by one thread at a time.
class Attempt {
 public:
  Attempt() = default;
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;
  Attempt(Attempt&&) = default;
  Attempt& operator=(Attempt&&) = default;

  // Says what to wait for and returns kWouldBlock: `return attempt.Block([...] { ... });`. `wait`
  // runs with no lock held; its error becomes the operation's result. The last caller wins.
  Error Block(std::function<Error()> wait) {
    wait_ = std::move(wait);
    return Error::kWouldBlock;
  }

  // As Block, for a wait that must not hold up a thread. `park` gets a function to call, once, on
  // any thread, when the operation may be tried again (perhaps at once).
  using ParkFunction = std::function<void(std::function<void()> resume)>;
  Error Park(ParkFunction park) {
    park_ = std::move(park);
    return Error::kWouldBlock;
  }
  // Instead of Wait: non-empty if the last attempt asked to be parked. Called with no lock and no
  // handle held, by who will run the operation again when resumed.
  bool parks() const { return park_ != nullptr; }
  ParkFunction TakePark() { return std::exchange(park_, nullptr); }

  // Keeps a buffer in memory until the operation ends, so that each attempt gets further than the
  // one before.
  void Pin(BufferRef buffer) { pins_.push_back(std::move(buffer)); }

  // Waits for what the last attempt met. Precondition: it returned kWouldBlock. Must be called
  // with no lock and no handle held.
  Error Wait() {
    if (park_ != nullptr) return WaitParked(TakePark());
    SLUICE_CHECK(wait_ != nullptr);
    std::function<Error()> wait = std::exchange(wait_, nullptr);
    return wait();
  }
  bool must_wait() const { return wait_ != nullptr || park_ != nullptr; }

  // Says what must happen before a success of this operation is told to anybody. `finish` runs
  // with no lock and no handle held and may wait; its error becomes the operation's result.
  void BeforeReply(std::function<Error()> finish) { finish_ = std::move(finish); }
  bool must_finish() const { return finish_ != nullptr; }
  // kOk at once if there is nothing to do.
  Error Finish() {
    if (finish_ == nullptr) return Error::kOk;
    std::function<Error()> finish = std::exchange(finish_, nullptr);
    return finish();
  }

  // True the first time it is asked: an operation that found no space asks once for what deletions
  // and the running commit will give back, and then answers kNoSpace.
  bool TakeSpaceRetry() { return std::exchange(space_retry_, false); }

 private:
  static Error WaitParked(const ParkFunction& park);

  std::function<Error()> wait_;
  ParkFunction park_;
  std::function<Error()> finish_;
  bool space_retry_ = true;
  absl::InlinedVector<BufferRef, 4> pins_;
};

inline bool WouldBlock(Error error) { return error == Error::kWouldBlock; }
template <typename T>
bool WouldBlock(const Result<T>& result) {
  return result.error() == Error::kWouldBlock;
}
inline bool Succeeded(Error error) { return error == Error::kOk; }
template <typename T>
bool Succeeded(const Result<T>& result) {
  return result.ok();
}

// Runs `operation(Attempt&)` (returning Error or Result<T>) until it no longer has to wait, on a
// thread that may wait.
template <typename Operation>
std::invoke_result_t<Operation, Attempt&> RunBlocking(Operation&& operation) {
  Attempt attempt;
  for (;;) {
    auto result = operation(attempt);
    if (!WouldBlock(result)) {
      if (Succeeded(result)) RETURN_IF_ERROR(attempt.Finish());
      return result;
    }
    RETURN_IF_ERROR(attempt.Wait());
  }
}

}  // namespace sluice

#endif  // SLUICE_BLOCK_ATTEMPT_H_
