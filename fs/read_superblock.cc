// SPDX-License-Identifier: Apache-2.0
#include "fs/read_superblock.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/aligned_buffer.h"

namespace sluice {
namespace {

format::BlockSpan SpanOf(AlignedBuffer& buffer) {
  return format::BlockSpan(buffer.data(), kBlockSize);
}

bool HasMagic(const std::byte* sector) {
  return *format::As<format::Le64>(sector) == format::kSuperMagic;
}

// Whether block 0 held a superblock of ours: one of its two sectors still says so, or it was wiped.
bool WasOurs(format::ConstBlockSpan block) {
  return HasMagic(block.data()) || HasMagic(block.data() + kSectorSize) ||
         std::all_of(block.begin(), block.end(), [](std::byte b) { return b == std::byte{0}; });
}

bool ReadBackup(Device* device, AlignedBuffer& buffer, FoundSuperblock* found) {
  const uint64_t groups = device->size() / kBlockSize / format::kBlocksPerGroup + 1;
  for (uint64_t group = 1; group < groups; ++group) {
    if (!format::IsBackupGroup(static_cast<GroupNumber>(group))) continue;
    const uint64_t offset = group * format::kBlocksPerGroup * kBlockSize;
    if (offset + kBlockSize > device->size()) break;
    if (device->Read(offset, buffer.span()) != Error::kOk) continue;
    if (format::ParseSuperblock(SpanOf(buffer), &found->super, nullptr) != Error::kOk) continue;
    if (found->super.fixed.backup_group != group) continue;
    found->backup_group = static_cast<GroupNumber>(group);
    return true;
  }
  return false;
}

Error CheckSize(const Device& device, const format::Superblock& super, std::string* message) {
  const uint64_t needed = super.fixed.block_count * kBlockSize;
  if (device.size() >= needed) return Error::kOk;
  *message = absl::StrCat("the image is smaller than its superblock claims: ", device.size(),
                          " bytes instead of ", needed, "; has it been truncated?");
  return Error::kCorrupt;
}

}  // namespace

Result<FoundSuperblock> ReadSuperblock(Device* device, std::string* message) {
  if (device->size() < kBlockSize) {
    *message = "not a sluicefs image: it is too small";
    return Error::kUnknownFormat;
  }
  FoundSuperblock found;
  AlignedBuffer buffer(kBlockSize);
  const Error read = device->Read(0, buffer.span());
  std::string reason = "the superblock cannot be read";
  Error error = read;
  if (read == Error::kOk) error = format::ParseSuperblock(SpanOf(buffer), &found.super, &reason);
  if (error == Error::kOk) {
    RETURN_IF_ERROR(CheckSize(*device, found.super, message));
    return found;
  }
  *message = reason;
  if (error == Error::kNewerFormat) return error;
  if (read == Error::kOk && !WasOurs(SpanOf(buffer))) {
    *message = "not a sluicefs image";
    return Error::kUnknownFormat;
  }
  if (!ReadBackup(device, buffer, &found)) {
    if (error != Error::kUnknownFormat) absl::StrAppend(message, ", and no backup of it is good");
    return error;
  }
  found.problem = reason;
  message->clear();
  RETURN_IF_ERROR(CheckSize(*device, found.super, message));
  return found;
}

}  // namespace sluice
