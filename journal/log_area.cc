// SPDX-License-Identifier: Apache-2.0
#include "journal/log_area.h"

#include <sys/random.h>

#include <algorithm>
#include <cstring>

#include "base/aligned_buffer.h"
#include "format/block_header.h"
#include "format/journal_device.h"
#include "journal/log_ring.h"

namespace sluice {
namespace {

constexpr uint64_t kChunkBlocks = 256;

// One slot as read: its bytes are good only if `error` is kOk.
Error ReadSlot(Device* device, uint64_t offset, format::JournalSuper* super) {
  AlignedBuffer block(kBlockSize);
  RETURN_IF_ERROR(device->Read(offset, block.span()));
  std::memcpy(super, block.data(), sizeof(*super));
  return Error::kOk;
}

// The tid of a valid commit record of any incarnation at log index `index`; 0 if it is none.
Tid CommittedTid(uint64_t seed, uint64_t index, const std::byte* block) {
  const auto* header = format::As<format::BlockHeader>(block);
  const format::BlockIdentity commit{format::BlockKind::kLogCommit, header->owner, 0};
  const format::ConstBlockSpan span(block, kBlockSize);
  if (format::VerifyBlock(seed, index, commit, span) != Error::kOk) return 0;
  return format::LogCommitOf(block)->tid;
}

}  // namespace

LogArea::LogArea(const format::Superblock& super)
    : seed_(super.fixed.checksum_seed), uuid_(std::to_array(super.fixed.uuid)) {
  if (format::HasExternalJournal(super.fixed)) {
    // Behind the last block: see block/joined_device.h.
    blocks_ = format::ExternalJournalOf(&super.fixed)->log_blocks;
    runs_.push_back({super.fixed.block_count, blocks_});
    return;
  }
  const uint32_t count = std::min<uint32_t>(super.fixed.journal_run_count, format::kMaxJournalRuns);
  for (uint32_t i = 0; i < count; ++i) {
    const format::JournalRun& run = super.fixed.journal_runs[i];
    runs_.push_back({run.start, run.length});
    blocks_ += run.length;
  }
}

uint64_t LogArea::DeviceOffset(uint64_t index, uint64_t* contiguous) const {
  SLUICE_CHECK(index < blocks_);
  for (const Run& run : runs_) {
    if (index < run.length) {
      *contiguous = run.length - index;
      return (run.start + index) << kBlockShift;
    }
    index -= run.length;
  }
  SLUICE_CHECK(false);
  return 0;
}

bool LogArea::Contains(BlockNumber block) const {
  return std::any_of(runs_.begin(), runs_.end(), [block](const Run& run) {
    return block >= run.start && block - run.start < run.length;
  });
}

uint64_t LogArea::Advance(uint64_t index, uint64_t count) const {
  return LogRing(blocks_).Advance(index, count);
}

Error LogArea::ReadState(Device* device) {
  int found = 0;
  for (uint32_t slot = 0; slot < format::kLogFirst; ++slot) {
    format::JournalSuper super;
    uint64_t contiguous = 0;
    RETURN_IF_ERROR(ReadSlot(device, DeviceOffset(slot, &contiguous), &super));
    if (format::CheckJournalSuper(seed_, super, blocks_) != Error::kOk) continue;
    if (++found == 2 && super.generation <= state.generation) continue;
    slot_ = slot;
    state = {super.generation, super.incarnation, super.tail_block, super.tail_tid, super.error};
  }
  if (found == 0) return Error::kCorrupt;
  return found == 1 && state.tail_block == 0 ? CheckNothingCommitted(device) : Error::kOk;
}

Error LogArea::CheckNothingCommitted(Device* device) const {
  AlignedBuffer chunk(kChunkBlocks * kBlockSize);
  for (uint64_t start = format::kLogFirst; start < blocks_; start += kChunkBlocks) {
    const uint64_t count = std::min(kChunkBlocks, blocks_ - start);
    RETURN_IF_ERROR(ReadBlocks(device, start, chunk.span().first(count * kBlockSize)));
    for (uint64_t i = 0; i < count; ++i) {
      const std::byte* block = chunk.data() + i * kBlockSize;
      if (CommittedTid(seed_, start + i, block) >= state.tail_tid) return Error::kCorrupt;
    }
  }
  return Error::kOk;
}

Error LogArea::WriteState(Device* device) {
  AlignedBuffer block(kBlockSize);
  std::memset(block.data(), 0, kBlockSize);
  auto* super = format::As<format::JournalSuper>(block.data());
  super->magic = format::kJournalMagic;
  super->generation = state.generation + 1;
  super->incarnation = state.incarnation;
  super->log_blocks = blocks_;
  super->tail_block = state.tail_block;
  super->tail_tid = state.tail_tid;
  std::memcpy(super->uuid, uuid_.data(), uuid_.size());
  super->error = state.error;
  format::SealJournalSuper(seed_, super);

  const uint32_t slot = slot_ ^ 1;
  uint64_t contiguous = 0;
  RETURN_IF_ERROR(device->Write(DeviceOffset(slot, &contiguous), block.span(), IoKind::kJournal));
  slot_ = slot;
  ++state.generation;
  return Error::kOk;
}

Error LogArea::ReadBlocks(Device* device, uint64_t index, std::span<std::byte> data) const {
  while (!data.empty()) {
    const Piece piece = PieceAt(index, data.size());
    RETURN_IF_ERROR(device->Read(piece.offset, data.first(piece.bytes)));
    data = data.subspan(piece.bytes);
    index = Advance(index, piece.bytes >> kBlockShift);
  }
  return Error::kOk;
}

Error LogArea::WriteBlocks(Device* device, uint64_t index, std::span<const std::byte> data,
                           IoKind kind) const {
  while (!data.empty()) {
    const Piece piece = PieceAt(index, data.size());
    RETURN_IF_ERROR(device->Write(piece.offset, data.first(piece.bytes), kind));
    data = data.subspan(piece.bytes);
    index = Advance(index, piece.bytes >> kBlockShift);
  }
  return Error::kOk;
}

LogArea::Piece LogArea::PieceAt(uint64_t index, uint64_t bytes) const {
  SLUICE_CHECK(index >= format::kLogFirst && bytes % kBlockSize == 0);
  uint64_t contiguous = 0;
  const uint64_t offset = DeviceOffset(index, &contiguous);
  return {offset, std::min(bytes, contiguous << kBlockShift)};
}

uint64_t LogArea::NewIncarnation(uint64_t old) {
  uint64_t fresh = 0;
  do {
    // Interrupted or not yet seeded: the sum still differs from `old`, which is all that is needed
    // then.
    if (getrandom(&fresh, sizeof(fresh), 0) != ssize_t{sizeof(fresh)}) fresh = old + 1;
  } while (fresh == old || fresh == 0);
  return fresh;
}

}  // namespace sluice
