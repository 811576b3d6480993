// SPDX-License-Identifier: Apache-2.0
//
// A disk in memory, for tests: sparse, poison until written, with faults on demand. Requests are
// done before Submit returns. It keeps what it was told whether or not it was flushed; a disk that
// forgets is the crash device's business (block/crash_device.h).
#ifndef SLUICE_BLOCK_MEMORY_DEVICE_H_
#define SLUICE_BLOCK_MEMORY_DEVICE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "block/device.h"
#include "block/memory_image.h"

namespace sluice {

// Thread-safe.
class MemoryDevice final : public Device {
 public:
  // `size` in bytes, a multiple of the sector size.
  explicit MemoryDevice(uint64_t size, std::byte fill = kPoisonByte)
      : MemoryDevice(MemoryImage(size, fill)) {}
  explicit MemoryDevice(MemoryImage image);

  uint64_t size() const override { return size_; }
  bool read_only() const override { return read_only_; }
  void Submit(std::span<IoRequest* const> requests) override;

  // Another device with the same contents, no faults, and counters at zero. Cheap.
  std::unique_ptr<MemoryDevice> Clone() const;
  // The contents. Cheap.
  MemoryImage Image() const;

  // Set before the device is used: writes and discards are then kReadOnly.
  void set_read_only(bool read_only) { read_only_ = read_only; }

  // Fails the `nth` request of `op` from now (1 is the next one) with `error`, once. The medium is
  // not touched.
  void FailNth(IoOp op, uint64_t nth, Error error = Error::kIo);
  // Fails every request of `op` that touches the bytes, until ClearFaults.
  void FailRange(IoOp op, uint64_t offset, uint64_t length, Error error = Error::kIo);
  // Fails every write, flush and discard, until ClearFaults. A test that must not write sees with
  // `count` whether somebody tried.
  void RefuseWrites(Error error = Error::kIo);
  void ClearFaults();

  // Requests of `op` seen so far, failed ones included; malformed ones not.
  uint64_t count(IoOp op) const;

 private:
  static constexpr size_t kOps = 4;
  struct Countdown {
    IoOp op;
    uint64_t left;
    Error error;
  };
  struct BadRange {
    IoOp op;
    uint64_t offset, length;
    Error error;
  };

  Error Serve(IoRequest* request);
  Error InjectedLocked(const IoRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t size_;
  bool read_only_ = false;
  mutable Mutex mutex_;
  mutable MemoryImage image_ ABSL_GUARDED_BY(mutex_);
  std::vector<Countdown> countdowns_ ABSL_GUARDED_BY(mutex_);
  std::vector<BadRange> bad_ranges_ ABSL_GUARDED_BY(mutex_);
  Error refusal_ ABSL_GUARDED_BY(mutex_) = Error::kOk;
  std::array<uint64_t, kOps> counts_ ABSL_GUARDED_BY(mutex_) = {};
};

}  // namespace sluice

#endif  // SLUICE_BLOCK_MEMORY_DEVICE_H_
