// SPDX-License-Identifier: Apache-2.0
//
// Access times, as mount(8)'s relatime, strictatime, noatime and nodiratime say. They are changed
// in memory only and journaled lazily.
#ifndef SLUICE_FS_ATIME_H_
#define SLUICE_FS_ATIME_H_

#include "base/units.h"
#include "fs/filesystem_impl.h"
#include "fs/inode.h"

namespace sluice {

// Whether a read now must set the access time. (Not while the filesystem is frozen, but that is
// TouchAtime's to know.) The inode's mutex is held, shared at least.
inline bool AtimeIsDue(const MountOptions& options, const Inode& inode, Nanoseconds now) {
  const InodeFields& fields = inode.fields;
  if (options.atime == AtimeMode::kNone || (fields.flags & format::kInodeNoAtime) != 0) {
    return false;
  }
  if (options.nodiratime && inode.is_directory()) return false;
  if (options.atime == AtimeMode::kStrict) return true;
  constexpr Nanoseconds kDay = Nanoseconds{86'400} * 1'000'000'000;
  return fields.atime <= fields.mtime || fields.atime <= fields.ctime || now - fields.atime >= kDay;
}

// Sets it if it is (still) due. The inode's mutex is not held.
inline void TouchAtime(Filesystem::Impl* fs, const InodeRef& inode) {
  if (!fs->gate.open()) return;
  const Nanoseconds now = fs->Now();
  MutexLock lock(&inode->mutex);
  if (!AtimeIsDue(fs->options, *inode, now)) return;
  inode->fields.atime = now;
  inode->lazy_dirty = true;
}

}  // namespace sluice

#endif  // SLUICE_FS_ATIME_H_
