// SPDX-License-Identifier: Apache-2.0
//
// The external journal of a filesystem that is to be made: opened, locked and looked at before
// anything is written.
#ifndef SLUICE_MKFS_JOURNAL_TARGET_H_
#define SLUICE_MKFS_JOURNAL_TARGET_H_

#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "block/device.h"
#include "block/image_lock.h"
#include "mkfs/layout.h"

namespace sluice {

// Thread-compatible.
class JournalTarget {
 public:
  // Opens the journal device at `path` and notes it in `options`. Nullopt, with a line for a
  // person in `why`: it is none, is in use, or belongs to a filesystem (unless `force`). With
  // `dry_run` it is only read.
  static std::optional<JournalTarget> Open(const std::string& path, bool force, bool dry_run,
                                           MkfsOptions* options, std::string* why);

  // Gives it to the filesystem, durably, and joins the two for writing. `image` and this outlive
  // the result.
  Result<std::unique_ptr<Device>> ClaimAndJoin(Device* image, const MkfsLayout& layout);

 private:
  ImageLock lock_;
  std::unique_ptr<Device> device_;
};

}  // namespace sluice

#endif  // SLUICE_MKFS_JOURNAL_TARGET_H_
