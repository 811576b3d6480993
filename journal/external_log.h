// SPDX-License-Identifier: Apache-2.0
//
// A log on a device of its own: making such a device, giving it to a filesystem, and joining the
// two for use. LogArea finds the log behind the last block of the filesystem (see
// format/journal_device.h and block/joined_device.h).
#ifndef SLUICE_JOURNAL_EXTERNAL_LOG_H_
#define SLUICE_JOURNAL_EXTERNAL_LOG_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/units.h"
#include "block/device.h"
#include "format/journal_device.h"
#include "format/superblock.h"

namespace sluice {

// Reads and checks block 0. kUnknownFormat: not a journal device; kNewerFormat, kCorrupt, kIo.
// `why` gets a line for a person.
Result<format::JournalDeviceSuper> ReadJournalDevice(Device* journal, std::string* why);

// Makes a journal device that belongs to nobody: a log as large as the device allows. kInvalid: too
// small. May wait.
Error FormatJournalDevice(Device* journal, const std::array<uint8_t, 16>& uuid, Nanoseconds time,
                          std::string* why);

// Makes `owner` (a filesystem's UUID) the owner; durable when it returns kOk. May wait.
Error ClaimJournalDevice(Device* journal, const std::array<uint8_t, 16>& owner);

// The image and its log as one device. `super` says that the log is external. kNoDevice, with a
// line in `why`: `journal` is not this filesystem's (either names another, or the size differs).
// Nothing is written. Both devices outlive the result.
Result<std::unique_ptr<Device>> JoinExternalLog(Device* image, Device* journal,
                                                const format::Superblock& super, std::string* why);

}  // namespace sluice

#endif  // SLUICE_JOURNAL_EXTERNAL_LOG_H_
