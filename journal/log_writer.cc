// SPDX-License-Identifier: Apache-2.0
#include "journal/log_writer.h"

#include <algorithm>
#include <cstring>

#include "format/log_record.h"

namespace sluice {
namespace {

constexpr uint64_t kGroupBlocks = 1 + format::kTagsPerDescriptor;
constexpr uint64_t kMemoryBlocks = 3 * kGroupBlocks;

}  // namespace

LogWriter::LogWriter(Device* device, const LogArea* log)
    : device_(device), log_(log), memory_(kMemoryBlocks * kBlockSize) {}

void LogWriter::Begin(Tid tid, uint64_t start) {
  tid_ = tid;
  start_ = start;
  written_ = 0;
  pending_ = 0;
  descriptor_ = nullptr;
  tags_ = 0;
  header_checksums_.clear();
}

Error LogWriter::AddRevokes(std::span<const BlockNumber> blocks) {
  while (!blocks.empty()) {
    if (pending_ == kMemoryBlocks) RETURN_IF_ERROR(WritePending());
    const size_t count = std::min<size_t>(blocks.size(), format::kRevokesPerBlock);
    std::byte* block = StartBlock(format::BlockKind::kLogRevoke);
    format::LogRecordOf(block)->tid = tid_;
    format::LogRecordOf(block)->count = static_cast<uint32_t>(count);
    std::copy_n(blocks.begin(), count, format::LogRevokesOf(block));
    SealRecord(block);
    blocks = blocks.subspan(count);
  }
  return Error::kOk;
}

Result<std::byte*> LogWriter::NextImage() {
  if (descriptor_ == nullptr) {
    if (pending_ + kGroupBlocks > kMemoryBlocks) RETURN_IF_ERROR(WritePending());
    descriptor_ = StartBlock(format::BlockKind::kLogDescriptor);
  }
  return Slot(pending_);
}

void LogWriter::AddImage(BlockNumber home, format::BlockKind kind) {
  format::LogTag& tag = format::LogTagsOf(descriptor_)[tags_];
  tag.block = home;
  tag.checksum =
      format::Checksum(log_->seed(), std::span<const std::byte>(Slot(pending_), kBlockSize));
  tag.kind = static_cast<uint16_t>(kind);
  ++pending_;
  if (++tags_ == format::kTagsPerDescriptor) EndGroup();
}

Error LogWriter::FinishRecord() {
  if (tags_ > 0) {
    EndGroup();
  } else if (descriptor_ != nullptr) {
    // Begun for an image that turned out not to be needed.
    descriptor_ = nullptr;
    --pending_;
  }
  return WritePending();
}

Error LogWriter::WriteCommit(Nanoseconds time) {
  std::byte* block = StartBlock(format::BlockKind::kLogCommit);
  format::LogCommit* commit = format::LogCommitOf(block);
  commit->tid = tid_;
  commit->time = time;
  commit->transaction_checksum = format::Checksum(log_->seed(), header_checksums_);
  commit->log_blocks = static_cast<uint32_t>(log_blocks());
  format::SealBlock(log_->seed(), format::BlockSpan(block, kBlockSize));
  return WritePending();
}

std::byte* LogWriter::StartBlock(format::BlockKind kind) {
  std::byte* block = Slot(pending_);
  std::memset(block, 0, kBlockSize);
  format::InitHeader(format::BlockSpan(block, kBlockSize), NextIndex(),
                     {kind, log_->state.incarnation, 0});
  ++pending_;
  return block;
}

void LogWriter::SealRecord(std::byte* block) {
  format::SealBlock(log_->seed(), format::BlockSpan(block, kBlockSize));
  const auto* checksum =
      reinterpret_cast<const std::byte*>(&format::As<format::BlockHeader>(block)->checksum);
  header_checksums_.insert(header_checksums_.end(), checksum, checksum + sizeof(uint64_t));
}

void LogWriter::EndGroup() {
  format::LogRecordOf(descriptor_)->tid = tid_;
  format::LogRecordOf(descriptor_)->count = tags_;
  SealRecord(descriptor_);
  descriptor_ = nullptr;
  tags_ = 0;
}

Error LogWriter::WritePending() {
  if (pending_ == 0) return Error::kOk;
  RETURN_IF_ERROR(log_->WriteBlocks(device_, log_->Advance(start_, written_),
                                    memory_.span().first(pending_ * kBlockSize)));
  written_ += pending_;
  pending_ = 0;
  return Error::kOk;
}

}  // namespace sluice
