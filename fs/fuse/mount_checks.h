// SPDX-License-Identifier: Apache-2.0
//
// What can be found wrong with an image and a mountpoint before anything is opened or changed.
#ifndef SLUICE_FS_FUSE_MOUNT_CHECKS_H_
#define SLUICE_FS_FUSE_MOUNT_CHECKS_H_

#include <string>

namespace sluice {

enum class ImageUse { kReadOnly, kReadWrite };

// Absolute and without symbolic links. False with a line for a person in `why`: missing, no
// directory, or already a mounted sluicefs.
[[nodiscard]] bool ResolveMountpoint(const std::string& given, std::string* resolved,
                                     std::string* why);

// False with a line for a person in `why`: missing, neither file nor block device, not readable, or
// read-only (also by its mode, which root could overrule) where writing is wanted.
[[nodiscard]] bool CheckImageFile(const std::string& path, ImageUse use, std::string* why);

// `path` under the current directory, if it is relative; otherwise exactly as given.
std::string AbsolutePath(const std::string& path);

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_MOUNT_CHECKS_H_
