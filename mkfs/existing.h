// SPDX-License-Identifier: Apache-2.0
//
// What mkfs would destroy: filesystems and partition tables that are on an image already, and
// mounts of it.
#ifndef SLUICE_MKFS_EXISTING_H_
#define SLUICE_MKFS_EXISTING_H_

#include <string>

namespace sluice {

// The path without symbolic links, as the mount table has it; the same path if it leads nowhere.
std::string CanonicalPath(const std::string& path);

// "an ext4 filesystem", "a gpt partition table", "a sluicefs filesystem labelled home"; empty if
// nothing is recognised. Reads only.
std::string DescribeContents(const std::string& path);

// Who uses the file or device: "mounted on /mnt", "in use by the system" (a block device that
// cannot be opened exclusively); empty if nobody is seen. Finds mounts of `path` and of loop
// devices over it.
std::string DescribeUse(const std::string& path);

// Removes the marks by which libblkid knows other formats, so that the image is not taken for one
// of them afterwards. False if that failed.
[[nodiscard]] bool EraseSignatures(const std::string& path);

}  // namespace sluice

#endif  // SLUICE_MKFS_EXISTING_H_
