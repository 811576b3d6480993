// SPDX-License-Identifier: Apache-2.0
//
// umount.sluicefs and its sisters, called by umount(8): a plain FUSE unmount returns while the
// daemon still writes, so the helper lets `umount -i` do the work and then waits for the daemon's
// lock on the image. When umount returns, the image may be copied.
#ifndef SLUICE_FS_FUSE_UMOUNT_HELPER_H_
#define SLUICE_FS_FUSE_UMOUNT_HELPER_H_

#include "fs/fuse/command_line.h"

namespace sluice {

// The exit code: umount(8)'s own, and 0 only once the image is free (or when somebody still has it
// mounted elsewhere, so that it will not become free).
int RunUmount(const UmountCommand& command);

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_UMOUNT_HELPER_H_
