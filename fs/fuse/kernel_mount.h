// SPDX-License-Identifier: Apache-2.0
//
// Tying a /dev/fuse connection to a mountpoint and undoing it: by mount(2) for root, through
// fusermount3 for plain users.
#ifndef SLUICE_FS_FUSE_KERNEL_MOUNT_H_
#define SLUICE_FS_FUSE_KERNEL_MOUNT_H_

#include <string>

namespace sluice {

enum class MountType { kFuse, kFuseblk };

struct MountPlan {
  MountType type = MountType::kFuse;
  std::string source;  // shown in the mount table; for kFuseblk a block device
  std::string mountpoint;
  unsigned long flags = 0;  // MS_*
  bool allow_other = false;
  bool default_permissions = true;
};

struct MountAttempt {
  int fd = -1;  // the /dev/fuse connection, owned by the caller; -1 on failure
  int error = 0;
  std::string why;
};

// As the effective user may: mount(2) as root, fusermount3 otherwise (never kFuseblk).
[[nodiscard]] MountAttempt MountAtKernel(const MountPlan& plan);

// Changes MS_* flags of the mounted filesystem. 0 or an errno. Root only.
[[nodiscard]] int RemountAtKernel(const std::string& mountpoint, unsigned long flags);

// Not lazily. 0 or an errno (EBUSY while somebody uses the mount). Blocks while the kernel waits
// for the daemon, so the receive threads must be serving.
[[nodiscard]] int UnmountAtKernel(const std::string& mountpoint);

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_KERNEL_MOUNT_H_
