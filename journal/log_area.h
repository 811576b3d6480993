// SPDX-License-Identifier: Apache-2.0
//
// Where the log lies on its device, and its superblock's two slots. Shared by mkfs, fsck, replay
// and the journal.
#ifndef SLUICE_JOURNAL_LOG_AREA_H_
#define SLUICE_JOURNAL_LOG_AREA_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "block/device.h"
#include "format/log_record.h"
#include "format/superblock.h"

namespace sluice {

// State of the log as its superblock tells it.
struct LogState {
  uint64_t generation = 0;
  uint64_t incarnation = 0;
  uint64_t tail_block = 0;  // 0: empty
  Tid tail_tid = 0;         // if empty: the next tid
  uint32_t error = 0;
};

// Thread-compatible; cheap to copy.
class LogArea {
 public:
  LogArea() = default;
  // `super` must have been parsed. Does no I/O.
  explicit LogArea(const format::Superblock& super);

  uint64_t blocks() const { return blocks_; }  // of the log, superblock slots included
  uint64_t ring_blocks() const { return blocks_ - format::kLogFirst; }
  uint64_t seed() const { return seed_; }
  const std::array<uint8_t, 16>& uuid() const { return uuid_; }

  // Byte offset on the device of log block `index`, and how many log blocks lie contiguously from
  // there (at least 1).
  uint64_t DeviceOffset(uint64_t index, uint64_t* contiguous) const;

  // Whether physical block `block` belongs to the log.
  bool Contains(BlockNumber block) const;

  // Ring arithmetic: the log index `count` blocks after `index`.
  uint64_t Advance(uint64_t index, uint64_t count) const;

  LogState state;  // as last read or written

  // Reads both slots and takes the valid one with the larger generation. kCorrupt if none is, or if
  // the only valid one says "empty" and the ring shows that transactions were committed after it:
  // then the other one was lost, not torn, and an image taken for complete would lack them.
  //
  // A lost slot beside one that says "not empty" does no harm. The other then names an older tail
  // (or the log has been emptied since, see WriteState). If nothing was written over the released
  // part, all of the log is replayed, and ends where the image is; if something was, it begins at
  // the older tail itself, and the scan finds records that are younger than the end it sees.
  Error ReadState(Device* device);
  // Writes `state` with generation + 1 to the slot that the current one does not use. Does not
  // flush; the caller flushes before it writes the state again (else both slots could be torn). An
  // empty log is written to both, so that a later loss of one cannot bring back the log as it was,
  // over an image that has been repaired since.
  Error WriteState(Device* device);

  // Reads or writes log blocks [index, index + data.size()/4096), wrapping in the ring.
  Error ReadBlocks(Device* device, uint64_t index, std::span<std::byte> data) const;
  Error WriteBlocks(Device* device, uint64_t index, std::span<const std::byte> data,
                    IoKind kind = IoKind::kJournal) const;

  // A number that differs from every incarnation this image had (random, never 0).
  static uint64_t NewIncarnation(uint64_t old);

 private:
  // kCorrupt if the ring has a commit record with a tid that `state` has still to come.
  Error CheckNothingCommitted(Device* device) const;

  struct Run {
    uint64_t start, length;
  };
  struct Piece {
    uint64_t offset, bytes;  // on the device
  };
  // The contiguous piece of at most `bytes` at ring index `index`.
  Piece PieceAt(uint64_t index, uint64_t bytes) const;

  std::vector<Run> runs_;
  uint64_t blocks_ = 0;
  uint64_t seed_ = 0;
  std::array<uint8_t, 16> uuid_{};
  uint32_t slot_ = 1;  // the one that `state` was read from or written to
};

}  // namespace sluice

#endif  // SLUICE_JOURNAL_LOG_AREA_H_
