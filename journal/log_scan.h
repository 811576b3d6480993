// SPDX-License-Identifier: Apache-2.0
//
// Reading the log: the first pass of replay. Walks the transactions from the tail and verifies
// every record and every image; writes nothing.
//
// Where does the log end? At the first transaction that is not complete. Transaction N+1 is not
// submitted before N's last flush has finished, so if a valid record of this incarnation with a
// larger tid lies anywhere in the ring, what looks like an end is damage in the middle.
#ifndef SLUICE_JOURNAL_LOG_SCAN_H_
#define SLUICE_JOURNAL_LOG_SCAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/error.h"
#include "base/units.h"
#include "block/device.h"
#include "format/geometry.h"
#include "journal/log_area.h"

namespace sluice {

// A block image in the log.
struct LogImage {
  BlockNumber home = kNoBlock;
  uint64_t index = 0;  // log block
  uint64_t checksum = 0;
  Tid tid = 0;
};

struct LogRevoke {
  BlockNumber block = kNoBlock;
  Tid tid = 0;
};

// What the complete transactions contain, in log order.
struct LogContents {
  Tid next_tid = 0;  // of the first transaction that is not complete
  uint64_t transactions = 0;
  std::vector<LogImage> images;
  std::vector<LogRevoke> revokes;
};

// Used once, by one thread.
class LogScan {
 public:
  // All outlive the scan. `log->state` must have been read and say that the log is not empty.
  LogScan(Device* device, const format::Geometry& geometry, const LogArea& log);

  // kCorrupt: `problem()` says what and where.
  Result<LogContents> Run();

  const std::string& problem() const { return problem_; }

 private:
  enum class Verdict { kComplete, kIncomplete };

  // Log blocks are read in pieces; this is the current one.
  Result<const std::byte*> Block(uint64_t index);

  // Parses the transaction `tid_` at `position_`; complete ones are appended to `contents_`.
  Result<Verdict> ScanTransaction();
  Result<Verdict> ScanDescriptor(const std::byte* block);
  Error ScanRevoke(const std::byte* block);
  Result<Verdict> ScanCommit(const std::byte* block,
                             const std::vector<std::byte>& header_checksums);

  // A record of this incarnation at its place with a right checksum.
  bool IsRecord(const std::byte* block, uint64_t index) const;
  bool MayBeReplayed(BlockNumber home) const;
  // kCorrupt if a record younger than `tid_` lies anywhere in the ring.
  Error CheckNothingYounger();
  Error Corrupt(std::string problem);

  Device* const device_;
  const format::Geometry& geometry_;
  const LogArea& log_;
  LogContents contents_;
  Tid tid_;
  uint64_t position_;     // next log block to look at
  uint64_t used_ = 0;     // ring blocks passed since the tail
  uint64_t started_ = 0;  // `used_` where the current transaction began
  std::string problem_;

  AlignedBuffer chunk_;
  uint64_t chunk_start_ = 0;
  uint64_t chunk_blocks_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_JOURNAL_LOG_SCAN_H_
