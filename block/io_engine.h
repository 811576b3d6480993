// SPDX-License-Identifier: Apache-2.0
//
// How a UringDevice gets its requests done while their submitters go on: an io_uring, or, where
// the kernel has none for us, a few threads with plain system calls.
#ifndef SLUICE_BLOCK_IO_ENGINE_H_
#define SLUICE_BLOCK_IO_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/error.h"
#include "block/backing_file.h"
#include "block/device.h"

namespace sluice {

// One request on its way. Owned by the device, lent to the engine from Start to the finish.
struct IoOperation {
  IoOperation(IoRequest* which, std::span<const iovec> pieces)
      : request(which), offset(which->offset), cursor(pieces) {}

  IoRequest* const request;
  uint64_t offset;      // of what is left
  PieceCursor cursor;   // memory for what is left: the request's or the bounce buffer's
  bool direct = false;  // through the direct descriptor
  BounceBuffer bounce;
};

// What is in flight and what has been: read by statistics, written by many threads.
class IoCounters {
 public:
  void Begin() {
    const uint64_t now = in_flight_.fetch_add(1, std::memory_order_relaxed) + 1;
    uint64_t most = max_in_flight_.load(std::memory_order_relaxed);
    while (now > most &&
           !max_in_flight_.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
    }
  }
  void End() { in_flight_.fetch_sub(1, std::memory_order_relaxed); }
  uint64_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }
  uint64_t max_in_flight() const { return max_in_flight_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> in_flight_{0};
  std::atomic<uint64_t> max_in_flight_{0};
};

// Thread-safe. The destructor waits for all operations.
class IoEngine {
 public:
  // Called exactly once per operation, on a thread of the engine's, with no lock held.
  using Finish = std::function<void(IoOperation*, Error)>;

  virtual ~IoEngine() = default;
  virtual void Start(std::span<IoOperation* const> operations) = 0;
};

// Null when the kernel refuses an io_uring. `file` and `counters` outlive the engine.
std::unique_ptr<IoEngine> MakeRingEngine(BackingFile* file, unsigned depth, IoCounters* counters,
                                         IoEngine::Finish finish);
std::unique_ptr<IoEngine> MakePoolEngine(BackingFile* file, unsigned depth, IoCounters* counters,
                                         IoEngine::Finish finish);

}  // namespace sluice

#endif  // SLUICE_BLOCK_IO_ENGINE_H_
