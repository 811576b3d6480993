// SPDX-License-Identifier: Apache-2.0
#include "format/journal_device.h"

#include <cstring>
#include <span>

#include "format/block_header.h"
#include "format/superblock.h"

namespace sluice::format {
namespace {

uint64_t ChecksumOf(JournalDeviceSuper super) {
  super.checksum = 0;
  return Checksum(0, std::as_bytes(std::span(&super, 1)));
}

}  // namespace

std::string ExternalJournalPath(const SuperSector0& fixed) {
  const ExternalJournal* external = ExternalJournalOf(&fixed);
  return std::string(external->path, strnlen(external->path, sizeof(external->path)));
}

void SealJournalDevice(JournalDeviceSuper* super) { super->checksum = ChecksumOf(*super); }

Error CheckJournalDevice(const JournalDeviceSuper& super) {
  if (super.magic != kJournalDeviceMagic) return Error::kUnknownFormat;
  if (super.checksum != ChecksumOf(super)) return Error::kCorrupt;
  if (super.version != kJournalDeviceVersion) return Error::kNewerFormat;
  const bool possible =
      super.log_blocks >= kMinJournalBlocks && super.log_blocks <= kMaxJournalBlocks;
  return possible ? Error::kOk : Error::kCorrupt;
}

}  // namespace sluice::format
