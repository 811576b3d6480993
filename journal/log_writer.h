// SPDX-License-Identifier: Apache-2.0
//
// Writes one transaction into the log: revoke blocks, then groups of a descriptor and its images,
// then the commit record. The twin of LogScan. Blocks are laid out in one aligned piece of memory,
// as they will lie in the log, and written in large pieces.
#ifndef SLUICE_JOURNAL_LOG_WRITER_H_
#define SLUICE_JOURNAL_LOG_WRITER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/error.h"
#include "base/units.h"
#include "block/device.h"
#include "format/block_header.h"
#include "journal/log_area.h"

namespace sluice {

// Used by the commit thread, one transaction after the other.
class LogWriter {
 public:
  // Both outlive the writer.
  LogWriter(Device* device, const LogArea* log);

  // The transaction's first block goes to log index `start`.
  void Begin(Tid tid, uint64_t start);
  // Before the first image. Ascending.
  Error AddRevokes(std::span<const BlockNumber> blocks);
  // Where the next image is to be put together. It counts once AddImage is called.
  Result<std::byte*> NextImage();
  void AddImage(BlockNumber home, format::BlockKind kind);
  // Everything so far is written (completed, not flushed).
  Error FinishRecord();
  // Written, not flushed.
  Error WriteCommit(Nanoseconds time);

  // Log blocks of the transaction, the commit record included once it is written.
  uint64_t log_blocks() const { return written_ + pending_; }

 private:
  uint64_t NextIndex() const { return log_->Advance(start_, written_ + pending_); }
  std::byte* Slot(uint64_t slot) { return memory_.data() + slot * kBlockSize; }
  // A zeroed block with a header at the next place in memory.
  std::byte* StartBlock(format::BlockKind kind);
  // Seals a descriptor or revoke block and adds it to the transaction's checksum.
  void SealRecord(std::byte* block);
  void EndGroup();
  Error WritePending();

  Device* const device_;
  const LogArea* const log_;
  AlignedBuffer memory_;
  Tid tid_ = 0;
  uint64_t start_ = 0;               // log index
  uint64_t written_ = 0;             // blocks of the transaction on the device
  uint64_t pending_ = 0;             // behind them, in memory
  std::byte* descriptor_ = nullptr;  // of the open group
  uint32_t tags_ = 0;
  std::vector<std::byte> header_checksums_;
};

}  // namespace sluice

#endif  // SLUICE_JOURNAL_LOG_WRITER_H_
