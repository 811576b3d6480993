// SPDX-License-Identifier: Apache-2.0
//
// Attributes: stat, statx, chmod, chown, truncate, times, chattr, statfs.
#include <linux/fs.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>

#include "format/inode.h"
#include "fs/fuse/operations.h"
#include "fs/fuse/replies.h"

namespace sluice {
namespace {

void Getattr(fuse_req_t req, fuse_ino_t ino, fuse_file_info*) {
  FuseServer* const server = FuseServer::Of(req);
  server->Run(req, [=](Attempt& attempt) -> Error {
    ASSIGN_OR_RETURN(const InodeRef inode, server->fs().GetInode(attempt, ino));
    const struct stat st = StatFrom(server->fs().GetAttributes(inode));
    fuse_reply_attr(req, &st, kForeverSeconds);
    return Error::kOk;
  });
}

AttributeChange ChangeFrom(const struct stat& st, int to_set, bool kill_suidgid) {
  AttributeChange change;
  if ((to_set & FUSE_SET_ATTR_MODE) != 0) change.mode = static_cast<uint16_t>(st.st_mode & 07777);
  if ((to_set & FUSE_SET_ATTR_UID) != 0) change.uid = st.st_uid;
  if ((to_set & FUSE_SET_ATTR_GID) != 0) change.gid = st.st_gid;
  if ((to_set & FUSE_SET_ATTR_SIZE) != 0) change.size = static_cast<uint64_t>(st.st_size);
  change.atime_now = (to_set & FUSE_SET_ATTR_ATIME_NOW) != 0;
  change.mtime_now = (to_set & FUSE_SET_ATTR_MTIME_NOW) != 0;
  if ((to_set & FUSE_SET_ATTR_ATIME) != 0 && !change.atime_now) {
    change.atime = NanosecondsFrom(st.st_atim);
  }
  if ((to_set & FUSE_SET_ATTR_MTIME) != 0 && !change.mtime_now) {
    change.mtime = NanosecondsFrom(st.st_mtim);
  }
  if ((to_set & FUSE_SET_ATTR_CTIME) != 0) change.ctime = NanosecondsFrom(st.st_ctim);
  // HANDLE_KILLPRIV_V2: a change of owner always drops set-id bits, a truncate when asked to.
  change.kill_suid_sgid = kill_suidgid || change.uid.has_value() || change.gid.has_value();
  return change;
}

void Setattr(fuse_req_t req, fuse_ino_t ino, struct stat* wanted, int to_set, fuse_file_info*) {
  FuseServer* const server = FuseServer::Of(req);
  const AttributeChange change = ChangeFrom(*wanted, to_set, Session::CurrentKillsSuidgid());
  server->Run(req, [=](Attempt& attempt) -> Error {
    Filesystem& fs = server->fs();
    ASSIGN_OR_RETURN(const InodeRef inode, fs.GetInode(attempt, ino));
    ASSIGN_OR_RETURN(const Attributes attributes,
                     fs.SetAttributes(attempt, CallerOf(req), inode, change));
    const struct stat st = StatFrom(attributes);
    fuse_reply_attr(req, &st, kForeverSeconds);
    return Error::kOk;
  });
}

void Statfs(fuse_req_t req, fuse_ino_t) {
  const SpaceInfo space = FuseServer::Of(req)->fs().Statfs();
  struct statvfs st {};
  st.f_bsize = kBlockSize;
  st.f_frsize = kBlockSize;
  st.f_blocks = space.blocks;
  st.f_bfree = space.free_blocks;
  st.f_bavail = space.available_blocks;
  st.f_files = space.inodes;
  st.f_ffree = space.free_inodes;
  st.f_favail = space.free_inodes;
  st.f_namemax = 255;
  fuse_reply_statfs(req, &st);
}

// chattr's flags, of those that an image keeps, in the kernel's two forms.
struct FlagRow {
  uint32_t ours;
  uint32_t flag;   // FS_IOC_GETFLAGS
  uint32_t xflag;  // FS_IOC_FSGETXATTR; 0: none
};
constexpr FlagRow kFlagRows[] = {
    {format::kInodeSync, FS_SYNC_FL, FS_XFLAG_SYNC},
    {format::kInodeImmutable, FS_IMMUTABLE_FL, FS_XFLAG_IMMUTABLE},
    {format::kInodeAppend, FS_APPEND_FL, FS_XFLAG_APPEND},
    {format::kInodeNoDump, FS_NODUMP_FL, FS_XFLAG_NODUMP},
    {format::kInodeNoAtime, FS_NOATIME_FL, FS_XFLAG_NOATIME},
    {format::kInodeDirSync, FS_DIRSYNC_FL, 0},
};

using FlagColumn = uint32_t FlagRow::*;

uint32_t KernelFlags(uint32_t ours, FlagColumn column) {
  uint32_t kernels = 0;
  for (const FlagRow& row : kFlagRows) {
    if ((ours & row.ours) != 0) kernels |= row.*column;
  }
  return kernels;
}

// `before`: what the inode has; flags that the column cannot say stay.
Result<uint32_t> OurFlags(uint32_t kernels, FlagColumn column, uint32_t before) {
  uint32_t ours = 0;
  for (const FlagRow& row : kFlagRows) {
    const bool set = row.*column != 0 ? (kernels & row.*column) != 0 : (before & row.ours) != 0;
    if (set) ours |= row.ours;
    kernels &= ~(row.*column);
  }
  if (kernels != 0) return Error::kNotSupported;
  return ours;
}

Error SetFlags(FuseServer* server, Attempt& attempt, InodeNumber ino, uint32_t kernels,
               FlagColumn column) {
  ASSIGN_OR_RETURN(const InodeRef inode, server->fs().GetInode(attempt, ino));
  const uint32_t before = server->fs().GetAttributes(inode).flags;
  ASSIGN_OR_RETURN(const uint32_t flags, OurFlags(kernels, column, before));
  return server->fs().SetFlags(attempt, inode, flags);
}

void IoctlGetFlags(fuse_req_t req, fuse_ino_t ino) {
  FuseServer* const server = FuseServer::Of(req);
  server->Run(req, [=](Attempt& attempt) -> Error {
    ASSIGN_OR_RETURN(const InodeRef inode, server->fs().GetInode(attempt, ino));
    const uint32_t flags = KernelFlags(server->fs().GetAttributes(inode).flags, &FlagRow::flag);
    fuse_reply_ioctl(req, 0, &flags, sizeof(flags));
    return Error::kOk;
  });
}

void IoctlGetXattrFlags(fuse_req_t req, fuse_ino_t ino) {
  FuseServer* const server = FuseServer::Of(req);
  server->Run(req, [=](Attempt& attempt) -> Error {
    ASSIGN_OR_RETURN(const InodeRef inode, server->fs().GetInode(attempt, ino));
    fsxattr reply{};
    reply.fsx_xflags = KernelFlags(server->fs().GetAttributes(inode).flags, &FlagRow::xflag);
    fuse_reply_ioctl(req, 0, &reply, sizeof(reply));
    return Error::kOk;
  });
}

void IoctlSetFlags(fuse_req_t req, fuse_ino_t ino, uint32_t kernels, FlagColumn column) {
  FuseServer* const server = FuseServer::Of(req);
  server->Run(req, [=](Attempt& attempt) -> Error {
    RETURN_IF_ERROR(SetFlags(server, attempt, ino, kernels, column));
    fuse_reply_ioctl(req, 0, nullptr, 0);
    return Error::kOk;
  });
}

// The kernel sends FS_IOC_GETFLAGS and SETFLAGS with an argument of 32 bits, whatever their numbers
// say. It has checked who may change which flag.
void Ioctl(fuse_req_t req, fuse_ino_t ino, unsigned command, void* argument, fuse_file_info*,
           unsigned, const void* in, size_t in_size, size_t) {
  if (command == static_cast<unsigned>(FS_IOC_GETFLAGS)) return IoctlGetFlags(req, ino);
  if (command == static_cast<unsigned>(FS_IOC_FSGETXATTR)) return IoctlGetXattrFlags(req, ino);
  if (command == static_cast<unsigned>(FS_IOC_SETFLAGS) && in_size >= sizeof(uint32_t)) {
    uint32_t flags;
    std::memcpy(&flags, in, sizeof(flags));
    return IoctlSetFlags(req, ino, flags, &FlagRow::flag);
  }
  if (command == static_cast<unsigned>(FS_IOC_FSSETXATTR) && in_size >= sizeof(fsxattr)) {
    fsxattr wanted;
    std::memcpy(&wanted, in, sizeof(wanted));
    // Project ids and extent size hints are not kept.
    const bool other = wanted.fsx_projid != 0 || wanted.fsx_extsize != 0;
    if (!other) return IoctlSetFlags(req, ino, wanted.fsx_xflags, &FlagRow::xflag);
    fuse_reply_err(req, EOPNOTSUPP);
    return;
  }
  if (!HandleAdminIoctl(req, command, argument, in, in_size)) fuse_reply_err(req, ENOTTY);
}

}  // namespace

void HandleStatx(FuseServer* server, const RawRequest& request, std::span<const std::byte>) {
  server->Run(request, [=](Attempt& attempt) -> Error {
    ASSIGN_OR_RETURN(const InodeRef inode, server->fs().GetInode(attempt, request.header.nodeid));
    StatxOut reply{};
    reply.valid_seconds = static_cast<uint64_t>(kForeverSeconds);
    reply.stat = StatxFrom(server->fs().GetAttributes(inode));
    request.Reply(std::as_bytes(std::span(&reply, 1)));
    return Error::kOk;
  });
}

void AddAttributeOperations(fuse_lowlevel_ops* operations) {
  operations->getattr = Getattr;
  operations->setattr = Setattr;
  operations->statfs = Statfs;
  operations->ioctl = Ioctl;
}

}  // namespace sluice
