// SPDX-License-Identifier: Apache-2.0
#include "mkfs/journal_target.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "block/file_device.h"
#include "format/debug_string.h"
#include "journal/external_log.h"
#include "mkfs/existing.h"

namespace sluice {
namespace {

bool IsOwned(const format::JournalDeviceSuper& super) {
  return std::ranges::any_of(super.owner, [](uint8_t byte) { return byte != 0; });
}

}  // namespace

std::optional<JournalTarget> JournalTarget::Open(const std::string& path, bool force, bool dry_run,
                                                 MkfsOptions* options, std::string* why) {
  JournalTarget target;
  std::optional<ImageLock> lock =
      ImageLock::Acquire(path, dry_run ? ImageLockMode::kShared : ImageLockMode::kExclusive, why);
  if (!lock) return std::nullopt;
  target.lock_ = *std::move(lock);
  Result<std::unique_ptr<Device>> device = OpenFileDevice(path, {.read_only = dry_run});
  if (!device.ok()) {
    *why = absl::StrCat(path, ": ", std::string(ErrorText(device.error())));
    return std::nullopt;
  }
  target.device_ = *std::move(device);
  const Result<format::JournalDeviceSuper> super = ReadJournalDevice(target.device_.get(), why);
  if (!super.ok()) {
    *why = absl::StrCat(path, ": ", *why);
    return std::nullopt;
  }
  if (IsOwned(*super) && !force) {
    *why = absl::StrCat(path, ": is the journal of the filesystem ", format::UuidText(super->owner),
                        "; use -F to take it away");
    return std::nullopt;
  }
  options->external_journal_blocks = super->log_blocks;
  std::ranges::copy(super->uuid, options->external_journal_uuid.begin());
  options->external_journal_path = CanonicalPath(path);
  return target;
}

Result<std::unique_ptr<Device>> JournalTarget::ClaimAndJoin(Device* image,
                                                            const MkfsLayout& layout) {
  RETURN_IF_ERROR(ClaimJournalDevice(device_.get(), std::to_array(layout.super.fixed.uuid)));
  std::string why;
  return JoinExternalLog(image, device_.get(), layout.super, &why);
}

}  // namespace sluice
