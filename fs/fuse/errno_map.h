// SPDX-License-Identifier: Apache-2.0
//
// The one place where an Error becomes an errno for the kernel.
#ifndef SLUICE_FS_FUSE_ERRNO_MAP_H_
#define SLUICE_FS_FUSE_ERRNO_MAP_H_

#include "base/error.h"

namespace sluice {

// 0 for kOk. kWouldBlock has no errno: it must not leave the attempt protocol (checked).
int ErrnoOf(Error error);

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_ERRNO_MAP_H_
