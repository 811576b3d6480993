// SPDX-License-Identifier: Apache-2.0
//
// The one doorway to storage. Everything above sends its reads, writes, flushes and discards
// through a Device; only block/ knows what is behind it: a file through io_uring, memory, a crash
// model, an overlay. A Device may stand on another Device (the scheduler will).
//
// Ordering: requests complete in any order. A flush covers exactly the writes that had completed
// before it was submitted; nothing else makes a write durable. Callers that need order wait.
#ifndef SLUICE_BLOCK_DEVICE_H_
#define SLUICE_BLOCK_DEVICE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/units.h"

namespace sluice {

enum class IoOp : uint8_t { kRead, kWrite, kFlush, kDiscard };

// What a request is for: who waits, and how urgently it should be served.
enum class IoKind : uint8_t {
  kRead,             // somebody waits for the data
  kSyncWrite,        // fsync, O_DIRECT: somebody waits
  kJournal,          // log blocks, commit records, and the flushes between
  kBackgroundWrite,  // flusher, checkpoint: nobody waits (yet)
  kDiscard,
};

// One contiguous piece of the device, scattered over memory. Owned by the submitter, which keeps
// it and the memory it names alive until Done is called. Not reused while in flight.
class IoRequest {
 public:
  virtual ~IoRequest() = default;

  // Called exactly once per Submit, on a thread of the device's (or the submitter's, before Submit
  // returns). Must not block and must not wait for other I/O; it may submit more requests and
  // delete this.
  virtual void Done(Error error) = 0;

  IoOp op = IoOp::kRead;
  IoKind kind = IoKind::kRead;
  uint64_t flow = 0;    // who pays: an id the scheduler understands; 0 is the filesystem itself
  uint64_t offset = 0;  // bytes; a multiple of kSectorSize
  uint64_t length = 0;  // bytes; kRead and kWrite: the sum of `buffers`
  // Memory pieces, each a multiple of kSectorSize; page-aligned memory avoids a copy.
  std::vector<std::span<std::byte>> buffers;
  // Somebody waits for this background request: set by anyone who makes sure that it is not Done
  // meanwhile, before, during or after Submit, and followed by Device::Promote.
  std::atomic<bool> urgent{false};
  // For devices: whether this request, or the one that it stands for, is marked so.
  virtual bool IsUrgent() const { return urgent.load(std::memory_order_acquire); }
};

// Thread-safe, all of it.
class Device {
 public:
  virtual ~Device() = default;

  // Bytes; constant.
  virtual uint64_t size() const = 0;
  // A request that is neither aligned nor inside the device is a bug of the caller's and completes
  // with kInvalid.
  virtual bool read_only() const = 0;

  // Starts the requests. Never waits for the device: a full queue is kept inside.
  virtual void Submit(std::span<IoRequest* const> requests) = 0;

  // Requests may have been marked urgent: those that are still queued go out as if somebody had
  // waited for them from the start. Like Submit it never waits and may call Done. No lock may be
  // held that a Done takes.
  virtual void Promote() {}

  // Blocking forms, for threads that may wait (mount, commit, checkpoint, tools). Whole or error:
  // a short transfer is kIo. The defaults stand on Submit; a file device does them directly,
  // since a plain pwrite + fdatasync is faster than a ring for one thread.
  virtual Error Read(uint64_t offset, std::span<std::byte> data, IoKind kind = IoKind::kRead);
  virtual Error Write(uint64_t offset, std::span<const std::byte> data,
                      IoKind kind = IoKind::kSyncWrite);
  // Writes the pieces one behind the other from `offset`.
  virtual Error WriteGather(uint64_t offset, std::span<const std::span<const std::byte>> pieces,
                            IoKind kind = IoKind::kSyncWrite);
  // All writes completed before the call are durable when it returns kOk. An error means that any
  // of them may be lost; it is never retried silently.
  virtual Error Flush(IoKind kind = IoKind::kJournal);
  // The range may read as anything afterwards. kNotSupported is no failure.
  virtual Error Discard(uint64_t offset, uint64_t length);
};

// What every device says to a request before it looks at the medium: kOk, kReadOnly (a write or
// discard on a read-only device) or kInvalid (not aligned, outside the device, or a length that is
// not the sum of the buffers).
Error CheckRequest(const Device& device, const IoRequest& request);
// The same for a range alone, for the blocking forms.
Error CheckRange(const Device& device, IoOp op, uint64_t offset, uint64_t length);

}  // namespace sluice

#endif  // SLUICE_BLOCK_DEVICE_H_
