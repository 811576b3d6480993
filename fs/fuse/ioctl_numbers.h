// SPDX-License-Identifier: Apache-2.0
//
// ioctls of a mounted filesystem, on any file or directory of it. For root only.
#ifndef SLUICE_FS_FUSE_IOCTL_NUMBERS_H_
#define SLUICE_FS_FUSE_IOCTL_NUMBERS_H_

#include <sys/ioctl.h>

#include <cstdint>

namespace sluice {

// The kernel answers FIFREEZE and FITHAW itself (no FUSE filesystem can be frozen through it), so
// these are our own. What programs stored through mmap is the kernel's until somebody syncs: call
// syncfs(2) before the freeze.
inline constexpr unsigned kIoctlFreeze = _IO(0x5C, 1);  // EBUSY: frozen already
inline constexpr unsigned kIoctlThaw = _IO(0x5C, 2);    // EINVAL: not frozen

// Stops the filesystem at once and for good; the argument is one of the flags below.
inline constexpr unsigned kIoctlShutdown = _IOW(0x5C, 3, uint32_t);
// The same under ext4's name EXT4_IOC_SHUTDOWN, which is XFS_IOC_GOINGDOWN. FUSE does not hand over
// its argument, since its number says that it is an answer; it is read from the caller's memory
// where that is allowed, and else taken for kGoingDefault.
inline constexpr unsigned kIoctlGoingDown = _IOR('X', 125, uint32_t);
inline constexpr uint32_t kGoingDefault = 0;     // everything accepted becomes durable first
inline constexpr uint32_t kGoingLogFlush = 1;    // the log does
inline constexpr uint32_t kGoingNoLogFlush = 2;  // nothing does

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_IOCTL_NUMBERS_H_
