// SPDX-License-Identifier: Apache-2.0
//
// Two devices as one: the second's blocks lie behind the first's. A filesystem with its log on a
// device of its own is then one space of block numbers, and what works on a log need not know.
//
// A flush flushes both, and ends when both have: whatever had been completed anywhere is durable,
// so each rule about order that holds on one device holds on two.
#ifndef SLUICE_BLOCK_JOINED_DEVICE_H_
#define SLUICE_BLOCK_JOINED_DEVICE_H_

#include <cstdint>

#include "block/device.h"

namespace sluice {

// Thread-safe. A request that touches both devices is kInvalid.
class JoinedDevice final : public Device {
 public:
  // The first `first_bytes` of `first`, then `second` from its byte `second_offset` on,
  // `second_bytes` of it. Both outlive this.
  JoinedDevice(Device* first, uint64_t first_bytes, Device* second, uint64_t second_offset,
               uint64_t second_bytes)
      : first_(first),
        first_bytes_(first_bytes),
        second_(second),
        second_offset_(second_offset),
        second_bytes_(second_bytes) {}

  uint64_t size() const override { return first_bytes_ + second_bytes_; }
  bool read_only() const override { return first_->read_only() || second_->read_only(); }
  void Submit(std::span<IoRequest* const> requests) override;
  void Promote() override;
  Error Read(uint64_t offset, std::span<std::byte> data, IoKind kind = IoKind::kRead) override;
  Error Write(uint64_t offset, std::span<const std::byte> data,
              IoKind kind = IoKind::kSyncWrite) override;
  Error WriteGather(uint64_t offset, std::span<const std::span<const std::byte>> pieces,
                    IoKind kind = IoKind::kSyncWrite) override;
  Error Flush(IoKind kind = IoKind::kJournal) override;
  Error Discard(uint64_t offset, uint64_t length) override;

 private:
  class Moved;
  class BothFlushes;

  struct Place {
    Device* device;
    uint64_t offset;
  };
  // Where a valid range lies; kInvalid if it lies in both.
  Result<Place> Find(uint64_t offset, uint64_t length) const;

  Device* const first_;
  const uint64_t first_bytes_;
  Device* const second_;
  const uint64_t second_offset_;
  const uint64_t second_bytes_;
};

}  // namespace sluice

#endif  // SLUICE_BLOCK_JOINED_DEVICE_H_
