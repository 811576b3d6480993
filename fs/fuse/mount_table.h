// SPDX-License-Identifier: Apache-2.0
//
// Questions to the kernel's mount table (/proc/self/mountinfo), which never touches a mount and so
// also works on a dead one.
#ifndef SLUICE_FS_FUSE_MOUNT_TABLE_H_
#define SLUICE_FS_FUSE_MOUNT_TABLE_H_

#include <sys/types.h>

#include <optional>
#include <string>

namespace sluice {

struct MountEntry {
  std::string source;
  std::string type;  // "fuse.sluicefs"
  dev_t device = 0;
};

// The topmost mount at exactly this path (absolute, without symbolic links).
std::optional<MountEntry> FindMountAt(const std::string& mountpoint);

// Whether this filesystem is mounted anywhere in our mount namespace.
bool IsMountedAnywhere(dev_t device);

bool IsSluicefs(const MountEntry& entry);

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_MOUNT_TABLE_H_
