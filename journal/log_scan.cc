// SPDX-License-Identifier: Apache-2.0
#include "journal/log_scan.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "format/block_header.h"
#include "format/log_record.h"

namespace sluice {
namespace {

constexpr uint64_t kChunkBlocks = 256;

format::ConstBlockSpan Span(const std::byte* block) {
  return format::ConstBlockSpan(block, kBlockSize);
}

bool IsLogKind(format::BlockKind kind) {
  return kind == format::BlockKind::kLogDescriptor || kind == format::BlockKind::kLogRevoke ||
         kind == format::BlockKind::kLogCommit;
}

format::BlockKind KindOf(const std::byte* block) {
  return static_cast<format::BlockKind>(
      static_cast<uint16_t>(format::As<format::BlockHeader>(block)->kind));
}

bool IsHomeKind(uint16_t kind) {
  return kind >= static_cast<uint16_t>(format::BlockKind::kBlockBitmap) &&
         kind <= static_cast<uint16_t>(format::BlockKind::kOrphan);
}

}  // namespace

LogScan::LogScan(Device* device, const format::Geometry& geometry, const LogArea& log)
    : device_(device),
      geometry_(geometry),
      log_(log),
      tid_(log.state.tail_tid),
      position_(log.state.tail_block),
      chunk_(kChunkBlocks * kBlockSize) {}

Result<LogContents> LogScan::Run() {
  if (position_ < format::kLogFirst || position_ >= log_.blocks()) {
    return Corrupt(absl::StrCat("the log's tail ", position_, " lies outside the log"));
  }
  for (;;) {
    const size_t images = contents_.images.size();
    const size_t revokes = contents_.revokes.size();
    ASSIGN_OR_RETURN(const Verdict verdict, ScanTransaction());
    if (verdict == Verdict::kIncomplete) {
      contents_.images.resize(images);
      contents_.revokes.resize(revokes);
      break;
    }
    ++contents_.transactions;
    ++tid_;
  }
  RETURN_IF_ERROR(CheckNothingYounger());
  contents_.next_tid = tid_;
  return std::move(contents_);
}

Result<const std::byte*> LogScan::Block(uint64_t index) {
  if (index < chunk_start_ || index - chunk_start_ >= chunk_blocks_) {
    const uint64_t count = std::min(kChunkBlocks, log_.blocks() - index);
    chunk_blocks_ = 0;
    RETURN_IF_ERROR(log_.ReadBlocks(device_, index, chunk_.span().first(count * kBlockSize)));
    chunk_start_ = index;
    chunk_blocks_ = count;
  }
  return static_cast<const std::byte*>(chunk_.data()) + (index - chunk_start_) * kBlockSize;
}

Result<LogScan::Verdict> LogScan::ScanTransaction() {
  started_ = used_;
  std::vector<std::byte> header_checksums;
  while (used_ < log_.ring_blocks()) {
    ASSIGN_OR_RETURN(const std::byte* block, Block(position_));
    // LogCommit and LogRecordHeader both begin with the tid.
    if (!IsRecord(block, position_) || format::LogRecordOf(block)->tid != tid_) {
      return Verdict::kIncomplete;
    }
    const format::BlockKind kind = KindOf(block);
    if (kind == format::BlockKind::kLogCommit) return ScanCommit(block, header_checksums);

    const auto* checksum =
        reinterpret_cast<const std::byte*>(&format::As<format::BlockHeader>(block)->checksum);
    header_checksums.insert(header_checksums.end(), checksum, checksum + sizeof(uint64_t));
    if (kind == format::BlockKind::kLogRevoke) {
      RETURN_IF_ERROR(ScanRevoke(block));
    } else {
      ASSIGN_OR_RETURN(const Verdict verdict, ScanDescriptor(block));
      if (verdict == Verdict::kIncomplete) return verdict;
    }
  }
  return Verdict::kIncomplete;
}

Error LogScan::ScanRevoke(const std::byte* block) {
  const uint32_t count = format::LogRecordOf(block)->count;
  if (count == 0 || count > format::kRevokesPerBlock) {
    return Corrupt(absl::StrCat("log block ", position_, ": impossible revoke count ", count));
  }
  const format::Le64* blocks = format::LogRevokesOf(block);
  for (uint32_t i = 0; i < count; ++i) {
    if (blocks[i] >= geometry_.block_count()) {
      return Corrupt(absl::StrCat("log block ", position_, ": revokes block ", uint64_t{blocks[i]},
                                  " outside the image"));
    }
    contents_.revokes.push_back({blocks[i], tid_});
  }
  position_ = log_.Advance(position_, 1);
  ++used_;
  return Error::kOk;
}

Result<LogScan::Verdict> LogScan::ScanDescriptor(const std::byte* block) {
  const uint32_t count = format::LogRecordOf(block)->count;
  if (count == 0 || count > format::kTagsPerDescriptor) {
    return Corrupt(absl::StrCat("log block ", position_, ": impossible tag count ", count));
  }
  // The chunk is replaced while the images are read.
  std::vector<format::LogTag> tags(format::LogTagsOf(block), format::LogTagsOf(block) + count);
  const uint64_t descriptor = position_;
  position_ = log_.Advance(position_, 1);
  ++used_;
  for (const format::LogTag& tag : tags) {
    if (!MayBeReplayed(tag.block) || !IsHomeKind(tag.kind)) {
      return Corrupt(absl::StrCat("log block ", descriptor, ": an image of block ",
                                  uint64_t{tag.block}, " of kind ", uint16_t{tag.kind},
                                  " has no place there"));
    }
    if (used_ >= log_.ring_blocks()) return Verdict::kIncomplete;
    ASSIGN_OR_RETURN(const std::byte* image, Block(position_));
    if (format::Checksum(log_.seed(), Span(image)) != tag.checksum) return Verdict::kIncomplete;
    contents_.images.push_back({tag.block, position_, tag.checksum, tid_});
    position_ = log_.Advance(position_, 1);
    ++used_;
  }
  return Verdict::kComplete;
}

Result<LogScan::Verdict> LogScan::ScanCommit(const std::byte* block,
                                             const std::vector<std::byte>& header_checksums) {
  const format::LogCommit* commit = format::LogCommitOf(block);
  if (commit->log_blocks != used_ - started_ + 1 ||
      commit->transaction_checksum != format::Checksum(log_.seed(), header_checksums)) {
    return Verdict::kIncomplete;
  }
  position_ = log_.Advance(position_, 1);
  ++used_;
  return Verdict::kComplete;
}

bool LogScan::IsRecord(const std::byte* block, uint64_t index) const {
  const format::BlockIdentity identity{KindOf(block), log_.state.incarnation, 0};
  return IsLogKind(identity.kind) &&
         format::VerifyBlock(log_.seed(), index, identity, Span(block)) == Error::kOk;
}

bool LogScan::MayBeReplayed(BlockNumber home) const {
  if (home == 0 || home >= geometry_.block_count() || log_.Contains(home)) return false;
  const GroupNumber group = geometry_.GroupOfBlock(home);
  return !(format::IsBackupGroup(group) && home == geometry_.GroupStart(group));
}

Error LogScan::CheckNothingYounger() {
  for (uint64_t index = format::kLogFirst; index < log_.blocks(); ++index) {
    ASSIGN_OR_RETURN(const std::byte* block, Block(index));
    if (!IsRecord(block, index)) continue;
    const Tid tid = format::LogRecordOf(block)->tid;
    if (tid > tid_) {
      return Corrupt(absl::StrCat("transaction ", tid_, " at log block ", position_,
                                  " is damaged: transaction ", tid, " at log block ", index,
                                  " was written after it"));
    }
  }
  return Error::kOk;
}

Error LogScan::Corrupt(std::string problem) {
  problem_ = std::move(problem);
  return Error::kCorrupt;
}

}  // namespace sluice
