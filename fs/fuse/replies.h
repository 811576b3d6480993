// SPDX-License-Identifier: Apache-2.0
//
// What replies are made of: attributes in the kernel's forms, and entries with their lookup
// reference.
#ifndef SLUICE_FS_FUSE_REPLIES_H_
#define SLUICE_FS_FUSE_REPLIES_H_

#include <sys/stat.h>

#include "fs/filesystem.h"
#include "fs/fuse/fuse_server.h"

namespace sluice {

// Long: the image has one owner (about 30 years; the kernel limits it to what it can count).
inline constexpr double kForeverSeconds = 1e9;

struct stat StatFrom(const Attributes& attributes);
fuse_attr FuseAttrFrom(const Attributes& attributes);
StatxAttributes StatxFrom(const Attributes& attributes);

// The entry for `inode`, which the kernel may keep forever.
fuse_entry_param EntryFor(Filesystem& fs, const InodeRef& inode);

// Replies with `inode` as an entry; the kernel gets one lookup reference.
void ReplyEntry(fuse_req_t req, Filesystem& fs, const InodeRef& inode);
// "No such name", for the kernel to remember.
void ReplyNegativeEntry(fuse_req_t req);

Caller CallerOf(fuse_req_t req);

// Seconds and nanoseconds of a time, also before 1970.
timespec TimespecFrom(Nanoseconds time);
Nanoseconds NanosecondsFrom(const timespec& time);

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_REPLIES_H_
