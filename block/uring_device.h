// SPDX-License-Identifier: Apache-2.0
//
// The daemon's device: an image file or block device with many requests in flight. Submitted
// requests go through one io_uring (or, where the kernel refuses that, through a few threads), one
// system call for each Submit; a full ring keeps the rest in a queue. The blocking forms are plain
// pread, pwrite and fdatasync on the caller's thread, which for one thread that waits anyway is
// faster than the way through a ring.
//
// O_DIRECT where the host allows it, buffered where it does not. A flush that failed once fails
// until the device is opened anew (block/backing_file.h says why).
#ifndef SLUICE_BLOCK_URING_DEVICE_H_
#define SLUICE_BLOCK_URING_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "block/backing_file.h"
#include "block/device.h"
#include "block/io_engine.h"

namespace sluice {

struct UringDeviceOptions {
  bool read_only = false;
  unsigned queue_depth = 128;  // requests that the kernel has at once
  bool direct = true;
  bool use_ring = true;  // false: the threads, as where there is no io_uring
};

// Thread-safe. The destructor waits for what is in flight; it must not run inside a Done.
class UringDevice final : public Device {
 public:
  UringDevice(std::unique_ptr<BackingFile> file, const UringDeviceOptions& options);

  uint64_t size() const override { return file_->size(); }
  bool read_only() const override { return file_->read_only(); }
  void Submit(std::span<IoRequest* const> requests) override;
  Error Read(uint64_t offset, std::span<std::byte> data, IoKind kind = IoKind::kRead) override;
  Error WriteGather(uint64_t offset, std::span<const std::span<const std::byte>> pieces,
                    IoKind kind = IoKind::kSyncWrite) override;
  Error Flush(IoKind kind = IoKind::kJournal) override;
  Error Discard(uint64_t offset, uint64_t length) override;

  bool direct() const { return file_->direct(); }
  bool uses_ring() const { return uses_ring_; }

  struct Stats {
    uint64_t in_flight, max_in_flight;  // now, and the most so far; blocking forms count too
    uint64_t reads, writes, flushes, discards;
    uint64_t bytes_read, bytes_written;
  };
  Stats stats() const;

 private:
  void Count(IoOp op, uint64_t length);
  // Null: the request needs no I/O and has `error`.
  IoOperation* Accept(IoRequest* request, Error* error);
  void Finish(IoOperation* operation, Error error);
  Error TransferNow(IoOp op, uint64_t offset, std::span<const iovec> pieces);

  const std::unique_ptr<BackingFile> file_;
  IoCounters counters_;
  std::atomic<uint64_t> requests_[4] = {};
  std::atomic<uint64_t> bytes_read_{0};
  std::atomic<uint64_t> bytes_written_{0};
  bool uses_ring_ = false;
  std::unique_ptr<IoEngine> engine_;  // last: its threads use the above
};

// Errors as those of OpenFileDevice. Starts threads: a daemon opens its device after it has forked.
Result<std::unique_ptr<UringDevice>> OpenUringDevice(const std::string& path,
                                                     const UringDeviceOptions& options);

}  // namespace sluice

#endif  // SLUICE_BLOCK_URING_DEVICE_H_
