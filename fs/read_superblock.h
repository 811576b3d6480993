// SPDX-License-Identifier: Apache-2.0
//
// Finds the superblock of an image: the primary, or a backup if the primary was damaged.
#ifndef SLUICE_FS_READ_SUPERBLOCK_H_
#define SLUICE_FS_READ_SUPERBLOCK_H_

#include <string>

#include "base/error.h"
#include "base/units.h"
#include "block/device.h"
#include "format/superblock.h"

namespace sluice {

struct FoundSuperblock {
  format::Superblock super;
  GroupNumber backup_group = 0;  // where it was found; 0: the primary
  std::string problem;           // what was wrong with the primary, if a backup was taken
};

// kUnknownFormat, kCorrupt (no copy is good, or the device is smaller than the superblock claims),
// kNewerFormat, kIo. `message` gets a text for a person. A backup is taken only if block 0 has been
// ours or is all zero: an old backup within another filesystem's image is not a filesystem. May
// wait.
Result<FoundSuperblock> ReadSuperblock(Device* device, std::string* message);

}  // namespace sluice

#endif  // SLUICE_FS_READ_SUPERBLOCK_H_
