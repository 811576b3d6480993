// SPDX-License-Identifier: Apache-2.0
//
// A disk that remembers how its contents came about, so that every state it could be in after a
// power cut can be made and looked at (block/crash_states.h). Only for tests; in memory.
//
// The model
// - It starts as poison, or as an older image (say, an earlier filesystem with the same UUID),
//   never as zeros.
// - A write is in flight from its submission to its completion and unflushed from its submission
//   until a flush that covers it has completed. A flush covers exactly the writes that had
//   completed before it was submitted. Nothing else makes a write durable: not time, not a later
//   write, not a flush that is still running.
// - After a power cut at any moment, each sector (512 bytes) of each unflushed write is there or
//   not, independently of all others: writes vanish, appear out of order, or are torn. A flushed
//   write is there, whole. A sector itself is never torn.
// - Where unflushed writes overlap, a sector holds the newest of those of its writes that made it.
//   A write is newer than another if it was submitted after the other's completion; of two that
//   were in flight together either may be.
// - A discard is a write of poison: its range may read as anything at any time until it is
//   rewritten.
// - Reads see completed writes, flushed or not.
// Requests of one Submit are in flight together; so are those of different threads that overlap.
#ifndef SLUICE_BLOCK_CRASH_DEVICE_H_
#define SLUICE_BLOCK_CRASH_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "block/device.h"
#include "block/memory_image.h"

namespace sluice {

// What happened to the device, in order.
struct CrashLog {
  struct Write {
    uint64_t offset = 0;
    uint64_t length = 0;
    std::vector<std::byte> data;  // empty: a discard
  };
  enum class EventKind : uint8_t {
    kWriteSubmitted,
    kWriteCompleted,
    kFlushSubmitted,
    kFlushCompleted,
    kMark,
  };
  struct Event {
    EventKind kind;
    uint64_t id;  // of the write (its index in `writes`) or flush, or the mark's value
  };

  MemoryImage base{0};  // durable when the log began
  std::vector<Event> events;
  std::vector<std::shared_ptr<const Write>> writes;
};

// Thread-safe. Requests are done before Submit returns.
class CrashDevice final : public Device {
 public:
  // Poison of `size` bytes.
  explicit CrashDevice(uint64_t size) : CrashDevice(MemoryImage(size)) {}
  explicit CrashDevice(MemoryImage base);

  uint64_t size() const override { return size_; }
  bool read_only() const override { return false; }
  void Submit(std::span<IoRequest* const> requests) override;

  // Writes a value into the log, between the events around it: "this much has been promised". A
  // state tells the last mark before its crash.
  void Mark(uint64_t value);

  // Forgets what was recorded: everything completed so far counts as durable. For the end of a
  // workload's preparation. No request may be in flight.
  void StartLog();
  // What happened since StartLog. Cheap enough to be called in the middle of a workload.
  CrashLog TakeLog() const;

  // The contents as read now. Cheap.
  MemoryImage Image() const;

 private:
  uint64_t Begin(const IoRequest& request);
  void Finish(IoRequest* request, uint64_t id);

  const uint64_t size_;
  mutable Mutex mutex_;
  mutable MemoryImage image_ ABSL_GUARDED_BY(mutex_);
  mutable MemoryImage base_ ABSL_GUARDED_BY(mutex_);
  std::vector<CrashLog::Event> events_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<const CrashLog::Write>> writes_ ABSL_GUARDED_BY(mutex_);
  uint64_t flushes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice

#endif  // SLUICE_BLOCK_CRASH_DEVICE_H_
