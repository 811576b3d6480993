// SPDX-License-Identifier: Apache-2.0
#include "format/log_record.h"

#include "format/superblock.h"

namespace sluice::format {

namespace {

uint64_t ChecksumOf(uint64_t seed, const JournalSuper& super) {
  return ChecksumSkipping(seed,
                          std::span(reinterpret_cast<const std::byte*>(&super), sizeof(super)),
                          offsetof(JournalSuper, checksum));
}

}  // namespace

void SealJournalSuper(uint64_t seed, JournalSuper* super) {
  super->magic = kJournalMagic;
  super->checksum = ChecksumOf(seed, *super);
}

Error CheckJournalSuper(uint64_t seed, const JournalSuper& super, uint64_t expected_blocks) {
  if (super.magic != kJournalMagic || super.checksum != ChecksumOf(seed, super)) {
    return Error::kCorrupt;
  }
  if (super.log_blocks < kMinJournalBlocks || super.log_blocks > kMaxJournalBlocks ||
      super.log_blocks != expected_blocks) {
    return Error::kCorrupt;
  }
  const uint64_t tail = super.tail_block;
  if (tail != 0 && (tail < kLogFirst || tail >= super.log_blocks)) return Error::kCorrupt;
  return Error::kOk;
}

}  // namespace sluice::format
