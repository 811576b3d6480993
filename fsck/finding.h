// SPDX-License-Identifier: Apache-2.0
//
// One thing that is wrong, or worth knowing, about an image. The catalogue is findings.def.
#ifndef SLUICE_FSCK_FINDING_H_
#define SLUICE_FSCK_FINDING_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/units.h"

namespace sluice {

enum class Severity : uint8_t { kError, kNote };
enum class Repair : uint8_t { kReportOnly, kRepairable };

enum class FindingId : uint16_t {
#define SLUICE_FINDING(number, identifier, name, severity, repair, text) identifier = number,
#include "fsck/findings.def"
#undef SLUICE_FINDING
};

struct FindingInfo {
  FindingId id;
  const char* name;
  Severity severity;
  Repair repair;
  const char* text;
};

// Never fails: the identifiers are the catalogue's.
const FindingInfo& InfoOf(FindingId id);

// Which fields mean something depends on the text of the catalogue.
struct Finding {
  FindingId id = FindingId::kUnreadable;
  InodeNumber ino = 0;
  InodeNumber other = 0;
  BlockNumber block = 0;
  uint64_t count = 0;
  GroupNumber group = 0;
  uint64_t expected = 0;
  uint64_t found = 0;
  std::string text;
  std::string name;         // of a directory entry, as on disk
  std::string path;         // of `ino`, if it was looked for and found
  bool repairable = false;  // by this version, in this image
  bool repaired = false;    // and seen to be gone
};

// One line for a person, without the path, without a newline; what is not printable ASCII is \xNN.
std::string Describe(const Finding& finding);

// A JSON object with number, name, severity, message, and the fields that the text uses.
std::string ToJson(const Finding& finding);

}  // namespace sluice

#endif  // SLUICE_FSCK_FINDING_H_
