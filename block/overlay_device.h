// SPDX-License-Identifier: Apache-2.0
//
// A writable device over one that must not be written: what is written stays in memory and is
// forgotten at the end. For `fsck -n` and read-only mounts of an image whose log is not empty.
// Nothing but reads reaches the base.
#ifndef SLUICE_BLOCK_OVERLAY_DEVICE_H_
#define SLUICE_BLOCK_OVERLAY_DEVICE_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "block/device.h"

namespace sluice {

// Thread-safe. A read that runs together with a write of the same sectors sees any mixture.
class OverlayDevice final : public Device {
 public:
  // `base` outlives the overlay; it may be read-only.
  explicit OverlayDevice(Device* base) : base_(base) {}

  uint64_t size() const override { return base_->size(); }
  bool read_only() const override { return false; }
  void Submit(std::span<IoRequest* const> requests) override;
  Error Read(uint64_t offset, std::span<std::byte> data, IoKind kind = IoKind::kRead) override;

  // Bytes held in memory.
  uint64_t memory() const;

 private:
  class PatchedRead;

  // One block with a bit per sector that has been written; the others are the base's.
  struct Block {
    std::array<std::byte, kBlockSize> bytes;
    uint8_t written = 0;
  };

  // What can be answered at once, true; a read that the base must serve, false.
  bool Serve(IoRequest* request, Error* error);
  void Store(uint64_t offset, std::span<const std::byte> data);
  // Puts the written sectors over what the base gave.
  void Patch(uint64_t offset, std::span<std::byte> data) const;

  Device* const base_;
  mutable Mutex mutex_;
  absl::flat_hash_map<BlockNumber, std::unique_ptr<Block>> blocks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_BLOCK_OVERLAY_DEVICE_H_
