// SPDX-License-Identifier: Apache-2.0
//
// A device of its own for one filesystem's log. Block 0 carries the structure below in its first
// 512 bytes; the log is blocks 1 to `log_blocks`: log block i is the device's block 1 + i.
#ifndef SLUICE_FORMAT_JOURNAL_DEVICE_H_
#define SLUICE_FORMAT_JOURNAL_DEVICE_H_

#include <cstddef>
#include <string>

#include "base/error.h"
#include "base/units.h"
#include "format/endian.h"
#include "format/superblock.h"

namespace sluice::format {

inline constexpr uint64_t kJournalDeviceMagic = 0x5645444a49554c53;  // "SLUIJDEV" as bytes
inline constexpr uint32_t kJournalDeviceVersion = 1;
inline constexpr uint64_t kJournalDeviceFirst = 1;  // block of the device with log block 0

struct JournalDeviceSuper {
  Le64 magic;
  Le64 checksum;  // XXH3-64 (seed 0) over the 512 bytes with this field zero
  Le32 version;
  Le32 reserved0;
  Le64 log_blocks;    // kMinJournalBlocks to kMaxJournalBlocks
  uint8_t uuid[16];   // of the device; a filesystem's journal_uuid names it
  uint8_t owner[16];  // UUID of the filesystem whose log this is; zero: nobody's
  LeS64 created;      // ns since the epoch
  uint8_t reserved[440];
};
static_assert(OnDisk<JournalDeviceSuper>);
static_assert(sizeof(JournalDeviceSuper) == 512);
static_assert(offsetof(JournalDeviceSuper, magic) == 0);
static_assert(offsetof(JournalDeviceSuper, checksum) == 8);
static_assert(offsetof(JournalDeviceSuper, version) == 16);
static_assert(offsetof(JournalDeviceSuper, reserved0) == 20);
static_assert(offsetof(JournalDeviceSuper, log_blocks) == 24);
static_assert(offsetof(JournalDeviceSuper, uuid) == 32);
static_assert(offsetof(JournalDeviceSuper, owner) == 48);
static_assert(offsetof(JournalDeviceSuper, created) == 64);
static_assert(offsetof(JournalDeviceSuper, reserved) == 72);

// What a superblock with kFeatureIncompatExternalJournal says besides journal_uuid, at the start of
// SuperSector0::reserved. There are no journal runs then: the log is numbered as if it lay behind
// the last block of the filesystem.
struct ExternalJournal {
  Le64 log_blocks;  // as in the device's superblock
  char path[192];   // where mkfs found the device, NUL-padded; only a hint
};
static_assert(OnDisk<ExternalJournal> && sizeof(ExternalJournal) == 200);
static_assert(offsetof(ExternalJournal, log_blocks) == 0);
static_assert(offsetof(ExternalJournal, path) == 8);
static_assert(sizeof(ExternalJournal) <= sizeof(SuperSector0::reserved));

inline bool HasExternalJournal(const SuperSector0& fixed) {
  return (fixed.feature_incompat & kFeatureIncompatExternalJournal) != 0;
}
inline ExternalJournal* ExternalJournalOf(SuperSector0* fixed) {
  return As<ExternalJournal>(reinterpret_cast<std::byte*>(fixed->reserved));
}
inline const ExternalJournal* ExternalJournalOf(const SuperSector0* fixed) {
  return As<ExternalJournal>(reinterpret_cast<const std::byte*>(fixed->reserved));
}
// The recorded path; empty if there is none.
std::string ExternalJournalPath(const SuperSector0& fixed);

void SealJournalDevice(JournalDeviceSuper* super);
// kUnknownFormat: no magic. kNewerFormat: another version. kCorrupt: checksum or size.
Error CheckJournalDevice(const JournalDeviceSuper& super);

}  // namespace sluice::format

#endif  // SLUICE_FORMAT_JOURNAL_DEVICE_H_
