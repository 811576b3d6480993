// SPDX-License-Identifier: Apache-2.0
//
// How an image is shown to the kernel: as fuseblk (through a loop device if it is a file), where
// umount waits for us and sync(2) reaches us, or as plain fuse.
#ifndef SLUICE_FS_FUSE_KERNEL_SIDE_H_
#define SLUICE_FS_FUSE_KERNEL_SIDE_H_

#include <string>

#include "fs/fuse/kernel_mount.h"
#include "fs/fuse/mount_options.h"

namespace sluice {

// Mounts `image` (absolute) at `mountpoint` as the settings and the user's rights allow.
[[nodiscard]] MountAttempt MountImage(const std::string& image, const std::string& mountpoint,
                                      const MountSettings& settings);

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_KERNEL_SIDE_H_
