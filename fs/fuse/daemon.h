// SPDX-License-Identifier: Apache-2.0
//
// A mount from its command line to its end: lock the image, open the filesystem, mount, serve,
// unmount, unlock.
#ifndef SLUICE_FS_FUSE_DAEMON_H_
#define SLUICE_FS_FUSE_DAEMON_H_

#include "fs/fuse/command_line.h"

namespace sluice {

// The exit code of mount(8). In the background case it returns in the daemon, after the unmount;
// the caller's process has exited before. Prints errors to stderr.
int RunMount(const MountCommand& command);

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_DAEMON_H_
