// SPDX-License-Identifier: Apache-2.0
//
// What stat, chmod, chown, utimes, chattr and statfs see and change.
#include <sys/stat.h>

#include <utility>

#include "fs/credits.h"
#include "fs/filesystem.h"
#include "fs/filesystem_impl.h"
#include "fs/namespace.h"

namespace sluice {
namespace {

constexpr uint64_t kSectorsPerBlock = kBlockSize / kSectorSize;
constexpr uint16_t kPermissions = 07777;
constexpr uint32_t kChangeableFlags = format::kInodeSync | format::kInodeImmutable |
                                      format::kInodeAppend | format::kInodeNoDump |
                                      format::kInodeNoAtime | format::kInodeDirSync;

// The inode's mutex is held, shared at least.
Attributes AttributesOf(const Inode& inode) {
  const InodeFields& fields = inode.fields;
  Attributes attributes;
  attributes.ino = inode.ino;
  attributes.generation = fields.generation;
  attributes.mode = fields.mode;
  attributes.links = fields.links;
  attributes.uid = fields.uid;
  attributes.gid = fields.gid;
  attributes.size = fields.size;
  attributes.sectors = fields.blocks * kSectorsPerBlock;
  if (S_ISCHR(fields.mode) || S_ISBLK(fields.mode)) {
    attributes.major = static_cast<uint32_t>(fields.device >> 32);
    attributes.minor = static_cast<uint32_t>(fields.device);
  }
  attributes.flags = fields.flags & ~format::kInodeInlineSymlink;
  attributes.atime = fields.atime;
  attributes.mtime = fields.mtime;
  attributes.ctime = fields.ctime;
  attributes.btime = fields.btime;
  return attributes;
}

// Whether the change touches more than the size, which TruncateFile has dealt with.
bool ChangesFields(const AttributeChange& change) {
  return change.mode.has_value() || change.uid.has_value() || change.gid.has_value() ||
         change.atime.has_value() || change.mtime.has_value() || change.ctime.has_value() ||
         change.atime_now || change.mtime_now || change.kill_suid_sgid;
}

void Apply(const AttributeChange& change, Nanoseconds now, InodeFields* fields) {
  if (change.kill_suid_sgid && !S_ISDIR(fields->mode)) {
    uint16_t drop = S_ISUID;
    if ((fields->mode & S_IXGRP) != 0) drop |= S_ISGID;
    fields->mode = static_cast<uint16_t>(fields->mode & ~drop);
  }
  if (change.mode.has_value()) {
    fields->mode =
        static_cast<uint16_t>((fields->mode & ~kPermissions) | (*change.mode & kPermissions));
  }
  if (change.uid.has_value()) fields->uid = *change.uid;
  if (change.gid.has_value()) fields->gid = *change.gid;
  if (change.atime.has_value()) fields->atime = *change.atime;
  if (change.mtime.has_value()) fields->mtime = *change.mtime;
  if (change.atime_now) fields->atime = now;
  if (change.mtime_now) fields->mtime = now;
  fields->ctime = change.ctime.value_or(now);
}

// Immutable inodes keep all; append-only ones let their times be set to now (ext4, utimes(2)).
Error CheckMayChange(const Inode& inode, const AttributeChange& change) {
  if ((inode.fields.flags & format::kInodeImmutable) != 0) return Error::kNotPermitted;
  const bool only_now = !change.mode.has_value() && !change.uid.has_value() &&
                        !change.gid.has_value() && !change.atime.has_value() &&
                        !change.mtime.has_value();
  if ((inode.fields.flags & format::kInodeAppend) != 0 && !only_now) return Error::kNotPermitted;
  return Error::kOk;
}

void SyncInode(Filesystem::Impl* fs, Attempt& attempt, const Inode& inode, Tid tid) {
  if (!fs->options.sync && (inode.fields.flags & format::kInodeSync) == 0) return;
  attempt.BeforeReply(
      [journal = fs->journal.get(), tid] { return journal->Commit(tid, CommitReason::kSync); });
}

}  // namespace

Attributes Filesystem::GetAttributes(const InodeRef& inode) {
  ReaderMutexLock lock(&inode->mutex);
  return AttributesOf(*inode);
}

Result<Attributes> Filesystem::SetAttributes(Attempt& attempt, const Caller&, const InodeRef& inode,
                                             const AttributeChange& change) {
  Impl* fs = impl_.get();
  ASSIGN_OR_RETURN(const FreezeGate::Pass pass, fs->BeginChange(attempt));
  if (change.size.has_value()) {
    // Run again with the rest it finds the size as it should be.
    RETURN_IF_ERROR(TruncateFile(fs, attempt, inode, *change.size, change.kill_suid_sgid));
  }
  MutexLock lock(&inode->mutex);
  if (!ChangesFields(change)) {
    if (change.size.has_value()) SyncInode(fs, attempt, *inode, inode->sync_tid.load());
    return AttributesOf(*inode);
  }
  RETURN_IF_ERROR(CheckMayChange(*inode, change));
  ASSIGN_OR_RETURN(Handle handle,
                   fs->journal->TryStart(attempt, OpType::kInode, credits::kAttributes));
  Apply(change, fs->Now(), &inode->fields);
  inode->WriteBack(handle, false);
  SyncInode(fs, attempt, *inode, handle.tid());
  return AttributesOf(*inode);
}

Error Filesystem::SetFlags(Attempt& attempt, const InodeRef& inode, uint32_t flags) {
  Impl* fs = impl_.get();
  ASSIGN_OR_RETURN(const FreezeGate::Pass pass, fs->BeginChange(attempt));
  if (!inode->is_regular() && !inode->is_directory()) return Error::kNotSupported;
  if ((flags & ~kChangeableFlags) != 0) return Error::kNotSupported;
  if ((flags & format::kInodeDirSync) != 0 && !inode->is_directory()) return Error::kNotSupported;
  MutexLock lock(&inode->mutex);
  ASSIGN_OR_RETURN(Handle handle,
                   fs->journal->TryStart(attempt, OpType::kInode, credits::kAttributes));
  inode->fields.flags = (inode->fields.flags & ~kChangeableFlags) | flags;
  inode->fields.ctime = fs->Now();
  inode->WriteBack(handle, false);
  SyncInode(fs, attempt, *inode, handle.tid());
  return Error::kOk;
}

// As ext4: what the format itself takes, the journal included, counts neither as size nor as used.
SpaceInfo Filesystem::Statfs() const {
  const Impl& fs = *impl_;
  const SpaceTotals totals = fs.groups->totals();
  const BlockCount reserved = fs.super.fixed.reserved_blocks;
  SpaceInfo info;
  info.blocks = fs.geometry.block_count() - fs.overhead;
  info.free_blocks = totals.free_blocks;
  info.available_blocks = totals.free_blocks > reserved ? totals.free_blocks - reserved : 0;
  info.inodes = fs.geometry.inode_count();
  info.free_inodes = totals.free_inodes;
  return info;
}

}  // namespace sluice
