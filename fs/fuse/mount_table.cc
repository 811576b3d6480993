// SPDX-License-Identifier: Apache-2.0
//
// See mount_table.h.
#include "fs/fuse/mount_table.h"

#include <libmount/libmount.h>

#include <memory>

namespace sluice {
namespace {

using Table = std::unique_ptr<libmnt_table, void (*)(libmnt_table*)>;

Table ReadTable() {
  return Table(mnt_new_table_from_file("/proc/self/mountinfo"), mnt_unref_table);
}

std::string TextOrEmpty(const char* text) { return text == nullptr ? "" : text; }

}  // namespace

std::optional<MountEntry> FindMountAt(const std::string& mountpoint) {
  const Table table = ReadTable();
  if (table == nullptr) return std::nullopt;
  // Backward: the last mount at a path hides the others.
  libmnt_fs* fs = mnt_table_find_target(table.get(), mountpoint.c_str(), MNT_ITER_BACKWARD);
  if (fs == nullptr) return std::nullopt;
  return MountEntry{TextOrEmpty(mnt_fs_get_source(fs)), TextOrEmpty(mnt_fs_get_fstype(fs)),
                    mnt_fs_get_devno(fs)};
}

bool IsMountedAnywhere(dev_t device) {
  const Table table = ReadTable();
  return table != nullptr &&
         mnt_table_find_devno(table.get(), device, MNT_ITER_BACKWARD) != nullptr;
}

bool IsSluicefs(const MountEntry& entry) {
  return entry.type == "fuse.sluicefs" || entry.type == "fuseblk.sluicefs";
}

}  // namespace sluice
