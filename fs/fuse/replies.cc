// SPDX-License-Identifier: Apache-2.0
//
// See replies.h.
#include "fs/fuse/replies.h"

#include <sys/sysmacros.h>

#include <limits>

#include "base/units.h"
#include "format/inode.h"

// In <linux/stat.h>, which clashes with <sys/stat.h> in some versions.
#ifndef STATX_ATTR_IMMUTABLE
#define STATX_ATTR_IMMUTABLE 0x00000010
#define STATX_ATTR_APPEND 0x00000020
#define STATX_ATTR_NODUMP 0x00000040
#endif

namespace sluice {
namespace {

constexpr Nanoseconds kSecond = 1'000'000'000;

StatxTime StatxTimeFrom(Nanoseconds time) {
  const timespec split = TimespecFrom(time);
  return {split.tv_sec, static_cast<uint32_t>(split.tv_nsec), 0};
}

uint64_t StatxAttributeBits(uint32_t flags) {
  uint64_t bits = 0;
  if ((flags & format::kInodeImmutable) != 0) bits |= STATX_ATTR_IMMUTABLE;
  if ((flags & format::kInodeAppend) != 0) bits |= STATX_ATTR_APPEND;
  if ((flags & format::kInodeNoDump) != 0) bits |= STATX_ATTR_NODUMP;
  return bits;
}

}  // namespace

timespec TimespecFrom(Nanoseconds time) {
  Nanoseconds seconds = time / kSecond;
  Nanoseconds rest = time % kSecond;
  if (rest < 0) {
    rest += kSecond;
    --seconds;
  }
  return {static_cast<time_t>(seconds), static_cast<long>(rest)};
}

// Times beyond what an inode can hold (about +-292 years) become the nearest that it can.
Nanoseconds NanosecondsFrom(const timespec& time) {
  constexpr Nanoseconds kMost = std::numeric_limits<Nanoseconds>::max();
  constexpr Nanoseconds kLeast = std::numeric_limits<Nanoseconds>::min();
  if (time.tv_sec > kMost / kSecond - 1) return kMost;
  if (time.tv_sec < kLeast / kSecond + 1) return kLeast;
  return time.tv_sec * kSecond + time.tv_nsec;
}

struct stat StatFrom(const Attributes& attributes) {
  struct stat st {};
  st.st_ino = attributes.ino;
  st.st_mode = attributes.mode;
  st.st_nlink = attributes.links;
  st.st_uid = attributes.uid;
  st.st_gid = attributes.gid;
  st.st_rdev = makedev(attributes.major, attributes.minor);
  st.st_size = static_cast<off_t>(attributes.size);
  st.st_blksize = kBlockSize;
  st.st_blocks = static_cast<blkcnt_t>(attributes.sectors);
  st.st_atim = TimespecFrom(attributes.atime);
  st.st_mtim = TimespecFrom(attributes.mtime);
  st.st_ctim = TimespecFrom(attributes.ctime);
  return st;
}

fuse_attr FuseAttrFrom(const Attributes& attributes) {
  fuse_attr attr{};
  attr.ino = attributes.ino;
  attr.size = attributes.size;
  attr.blocks = attributes.sectors;
  const timespec atime = TimespecFrom(attributes.atime);
  const timespec mtime = TimespecFrom(attributes.mtime);
  const timespec ctime = TimespecFrom(attributes.ctime);
  attr.atime = static_cast<uint64_t>(atime.tv_sec);
  attr.mtime = static_cast<uint64_t>(mtime.tv_sec);
  attr.ctime = static_cast<uint64_t>(ctime.tv_sec);
  attr.atimensec = static_cast<uint32_t>(atime.tv_nsec);
  attr.mtimensec = static_cast<uint32_t>(mtime.tv_nsec);
  attr.ctimensec = static_cast<uint32_t>(ctime.tv_nsec);
  attr.mode = attributes.mode;
  attr.nlink = attributes.links;
  attr.uid = attributes.uid;
  attr.gid = attributes.gid;
  attr.rdev = static_cast<uint32_t>(makedev(attributes.major, attributes.minor));
  attr.blksize = kBlockSize;
  return attr;
}

StatxAttributes StatxFrom(const Attributes& attributes) {
  constexpr uint32_t kBasicAndBirth = 0x0fff;  // STATX_BASIC_STATS | STATX_BTIME
  StatxAttributes statx{};
  statx.mask = kBasicAndBirth;
  statx.block_size = kBlockSize;
  statx.attributes = StatxAttributeBits(attributes.flags);
  statx.attributes_mask = STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND | STATX_ATTR_NODUMP;
  statx.links = attributes.links;
  statx.uid = attributes.uid;
  statx.gid = attributes.gid;
  statx.mode = attributes.mode;
  statx.inode = attributes.ino;
  statx.size = attributes.size;
  statx.sectors = attributes.sectors;
  statx.access = StatxTimeFrom(attributes.atime);
  statx.birth = StatxTimeFrom(attributes.btime);
  statx.change = StatxTimeFrom(attributes.ctime);
  statx.modification = StatxTimeFrom(attributes.mtime);
  statx.rdev_major = attributes.major;
  statx.rdev_minor = attributes.minor;
  return statx;
}

fuse_entry_param EntryFor(Filesystem& fs, const InodeRef& inode) {
  const Attributes attributes = fs.GetAttributes(inode);
  fuse_entry_param entry{};
  entry.ino = attributes.ino;
  entry.generation = attributes.generation;
  entry.attr = StatFrom(attributes);
  entry.attr_timeout = kForeverSeconds;
  entry.entry_timeout = kForeverSeconds;
  return entry;
}

void ReplyEntry(fuse_req_t req, Filesystem& fs, const InodeRef& inode) {
  const fuse_entry_param entry = EntryFor(fs, inode);
  // Before the reply: the kernel may forget it at once.
  fs.AddLookup(inode);
  if (fuse_reply_entry(req, &entry) != 0) fs.Forget(entry.ino, 1);
}

void ReplyNegativeEntry(fuse_req_t req) {
  fuse_entry_param entry{};
  entry.entry_timeout = kForeverSeconds;
  fuse_reply_entry(req, &entry);
}

Caller CallerOf(fuse_req_t req) {
  const fuse_ctx* context = fuse_req_ctx(req);
  return {context->uid, context->gid, context->pid};
}

}  // namespace sluice
