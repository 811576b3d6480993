// SPDX-License-Identifier: Apache-2.0
//
// One line per structure for people: fsck -v, sluicectl, test failures. Not parsed by anything;
// safe on any bytes.
#ifndef SLUICE_FORMAT_DEBUG_STRING_H_
#define SLUICE_FORMAT_DEBUG_STRING_H_

#include <string>

#include "format/block_header.h"
#include "format/directory.h"
#include "format/extent.h"
#include "format/group_desc.h"
#include "format/inode.h"
#include "format/log_record.h"
#include "format/superblock.h"

namespace sluice::format {

// "directory", "inode table", ...; "kind 77" for a number that is none.
std::string KindName(uint16_t kind);
// Text of a NUL-padded field, with anything but printable ASCII as \xNN.
std::string PrintableText(const char* text, size_t size);
// A UUID as 8-4-4-4-12 hex digits.
std::string UuidText(const uint8_t (&uuid)[16]);

std::string DebugString(const BlockHeader& header);
std::string DebugString(const JournalRun& run);
std::string DebugString(const SuperSector0& sector);
std::string DebugString(const SuperSector1& sector);
std::string DebugString(const GroupDesc& desc);
std::string DebugString(const ExtentHeader& header);
std::string DebugString(const Extent& extent);
std::string DebugString(const ExtentIndex& index);
std::string DebugString(const Inode& inode);
std::string DebugString(const DirNodeHeader& header);
std::string DebugString(const DirIndexEntry& entry);
// Without the name, which follows the structure.
std::string DebugString(const DirEntry& entry);
std::string DebugString(const OrphanHeader& header);
std::string DebugString(const JournalSuper& super);
std::string DebugString(const LogRecordHeader& header);
std::string DebugString(const LogTag& tag);
std::string DebugString(const LogCommit& commit);

}  // namespace sluice::format

#endif  // SLUICE_FORMAT_DEBUG_STRING_H_
