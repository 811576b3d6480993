// SPDX-License-Identifier: Apache-2.0
#include "journal/external_log.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/aligned_buffer.h"
#include "block/joined_device.h"
#include "format/debug_string.h"

namespace sluice {
namespace {

Error Fail(Error error, std::string text, std::string* why) {
  *why = std::move(text);
  return error;
}

Error WriteSuper(Device* journal, format::JournalDeviceSuper super) {
  format::SealJournalDevice(&super);
  AlignedBuffer block(kBlockSize);
  std::memset(block.data(), 0, kBlockSize);
  std::memcpy(block.data(), &super, sizeof(super));
  RETURN_IF_ERROR(journal->Write(0, block.span()));
  return journal->Flush();
}

bool Same(const uint8_t (&a)[16], const uint8_t (&b)[16]) { return std::ranges::equal(a, b); }

}  // namespace

Result<format::JournalDeviceSuper> ReadJournalDevice(Device* journal, std::string* why) {
  if (journal->size() < kBlockSize) {
    return Fail(Error::kUnknownFormat, "not a journal device: it is too small", why);
  }
  AlignedBuffer block(kBlockSize);
  const Error read = journal->Read(0, block.span());
  if (read != Error::kOk) {
    return Fail(read, absl::StrCat("cannot be read: ", std::string(ErrorText(read))), why);
  }
  format::JournalDeviceSuper super;
  std::memcpy(&super, block.data(), sizeof(super));
  const Error error = format::CheckJournalDevice(super);
  if (error == Error::kUnknownFormat) {
    return Fail(error, "not a journal device (mkfs.sluicefs -O journal_dev makes one)", why);
  }
  if (error != Error::kOk) {
    return Fail(error, absl::StrCat("its superblock: ", std::string(ErrorText(error))), why);
  }
  if (journal->size() >> kBlockShift < format::kJournalDeviceFirst + super.log_blocks) {
    return Fail(Error::kCorrupt, "smaller than its superblock claims; has it been truncated?", why);
  }
  return super;
}

Error FormatJournalDevice(Device* journal, const std::array<uint8_t, 16>& uuid, Nanoseconds time,
                          std::string* why) {
  const uint64_t blocks = journal->size() >> kBlockShift;
  if (blocks < format::kJournalDeviceFirst + format::kMinJournalBlocks) {
    return Fail(Error::kInvalid, "a journal has at least 4 MiB, and its device a block more", why);
  }
  format::JournalDeviceSuper super;
  std::memset(&super, 0, sizeof(super));
  super.magic = format::kJournalDeviceMagic;
  super.version = format::kJournalDeviceVersion;
  super.log_blocks = std::min(blocks - format::kJournalDeviceFirst, format::kMaxJournalBlocks);
  std::ranges::copy(uuid, super.uuid);
  super.created = time;
  return WriteSuper(journal, super);
}

Error ClaimJournalDevice(Device* journal, const std::array<uint8_t, 16>& owner) {
  std::string why;
  ASSIGN_OR_RETURN(format::JournalDeviceSuper super, ReadJournalDevice(journal, &why));
  std::ranges::copy(owner, super.owner);
  return WriteSuper(journal, super);
}

Result<std::unique_ptr<Device>> JoinExternalLog(Device* image, Device* journal,
                                                const format::Superblock& super, std::string* why) {
  const format::SuperSector0& fixed = super.fixed;
  ASSIGN_OR_RETURN(const format::JournalDeviceSuper found, ReadJournalDevice(journal, why));
  if (!Same(found.uuid, fixed.journal_uuid)) {
    return Fail(
        Error::kNoDevice,
        absl::StrCat("has the UUID ", format::UuidText(found.uuid),
                     "; the filesystem's journal has ", format::UuidText(fixed.journal_uuid)),
        why);
  }
  if (!Same(found.owner, fixed.uuid)) {
    return Fail(Error::kNoDevice,
                absl::StrCat("is the journal of the filesystem ", format::UuidText(found.owner)),
                why);
  }
  if (found.log_blocks != format::ExternalJournalOf(&fixed)->log_blocks) {
    return Fail(Error::kNoDevice,
                absl::StrCat("has a log of ", uint64_t{found.log_blocks}, " blocks instead of ",
                             uint64_t{format::ExternalJournalOf(&fixed)->log_blocks}),
                why);
  }
  return std::unique_ptr<Device>(std::make_unique<JoinedDevice>(
      image, fixed.block_count << kBlockShift, journal, format::kJournalDeviceFirst << kBlockShift,
      found.log_blocks << kBlockShift));
}

}  // namespace sluice
