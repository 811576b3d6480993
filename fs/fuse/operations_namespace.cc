// SPDX-License-Identifier: Apache-2.0
//
// Names: lookup, creation, links, rename, removal, and the kernel's references to inodes.
#include <linux/fs.h>
#include <sys/sysmacros.h>

#include <cstring>

#include "fs/fuse/fuse_protocol.h"
#include "fs/fuse/operations.h"
#include "fs/fuse/replies.h"

namespace sluice {
namespace {

NewNode NodeFrom(mode_t mode, dev_t device) {
  return {static_cast<uint16_t>(mode), major(device), minor(device)};
}

void Lookup(fuse_req_t req, fuse_ino_t parent, const char* name) {
  FuseServer* const server = FuseServer::Of(req);
  server->Run(req, [=](Attempt& attempt) -> Error {
    Filesystem& fs = server->fs();
    ASSIGN_OR_RETURN(const InodeRef directory, fs.GetInode(attempt, parent));
    const Result<InodeRef> found = fs.Lookup(attempt, directory, name);
    if (found.error() == Error::kNotFound) {
      ReplyNegativeEntry(req);
      return Error::kOk;
    }
    if (!found.ok()) return found.error();
    ReplyEntry(req, fs, *found);
    return Error::kOk;
  });
}

void Forget(fuse_req_t req, fuse_ino_t ino, uint64_t count) {
  FuseServer::Of(req)->fs().Forget(ino, count);
  fuse_reply_none(req);
}

void ForgetMulti(fuse_req_t req, size_t count, fuse_forget_data* forgets) {
  Filesystem& fs = FuseServer::Of(req)->fs();
  for (size_t i = 0; i < count; ++i) fs.Forget(forgets[i].ino, forgets[i].nlookup);
  fuse_reply_none(req);
}

void MakeNode(fuse_req_t req, fuse_ino_t parent, const char* name, const NewNode& node) {
  FuseServer* const server = FuseServer::Of(req);
  server->Run(req, [=](Attempt& attempt) -> Error {
    Filesystem& fs = server->fs();
    ASSIGN_OR_RETURN(const InodeRef directory, fs.GetInode(attempt, parent));
    ASSIGN_OR_RETURN(const InodeRef inode,
                     fs.Create(attempt, CallerOf(req), directory, name, node));
    return server->ReplyWhenFinished(req, attempt, [=] { ReplyEntry(req, server->fs(), inode); });
  });
}

void Mknod(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode, dev_t device) {
  MakeNode(req, parent, name, NodeFrom(mode, device));
}

void Mkdir(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode) {
  MakeNode(req, parent, name, NodeFrom((mode & 07777) | S_IFDIR, 0));
}

void Symlink(fuse_req_t req, const char* target, fuse_ino_t parent, const char* name) {
  FuseServer* const server = FuseServer::Of(req);
  server->Run(req, [=](Attempt& attempt) -> Error {
    Filesystem& fs = server->fs();
    ASSIGN_OR_RETURN(const InodeRef directory, fs.GetInode(attempt, parent));
    ASSIGN_OR_RETURN(const InodeRef inode,
                     fs.Symlink(attempt, CallerOf(req), directory, name, target));
    return server->ReplyWhenFinished(req, attempt, [=] { ReplyEntry(req, server->fs(), inode); });
  });
}

void Readlink(fuse_req_t req, fuse_ino_t ino) {
  FuseServer* const server = FuseServer::Of(req);
  server->Run(req, [=](Attempt& attempt) -> Error {
    ASSIGN_OR_RETURN(const InodeRef inode, server->fs().GetInode(attempt, ino));
    ASSIGN_OR_RETURN(const std::string target, server->fs().Readlink(attempt, inode));
    fuse_reply_readlink(req, target.c_str());
    return Error::kOk;
  });
}

void Link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char* new_name) {
  FuseServer* const server = FuseServer::Of(req);
  server->Run(req, [=](Attempt& attempt) -> Error {
    Filesystem& fs = server->fs();
    ASSIGN_OR_RETURN(const InodeRef inode, fs.GetInode(attempt, ino));
    ASSIGN_OR_RETURN(const InodeRef directory, fs.GetInode(attempt, new_parent));
    RETURN_IF_ERROR(fs.Link(attempt, inode, directory, new_name));
    return server->ReplyWhenFinished(req, attempt, [=] { ReplyEntry(req, server->fs(), inode); });
  });
}

using Removal = Error (Filesystem::*)(Attempt&, const InodeRef&, std::string_view);

void Remove(fuse_req_t req, fuse_ino_t parent, const char* name, Removal removal) {
  FuseServer* const server = FuseServer::Of(req);
  server->Run(req, [=](Attempt& attempt) -> Error {
    Filesystem& fs = server->fs();
    ASSIGN_OR_RETURN(const InodeRef directory, fs.GetInode(attempt, parent));
    RETURN_IF_ERROR((fs.*removal)(attempt, directory, name));
    return server->ReplyWhenFinished(req, attempt, [req] { fuse_reply_err(req, 0); });
  });
}

void Unlink(fuse_req_t req, fuse_ino_t parent, const char* name) {
  Remove(req, parent, name, &Filesystem::Unlink);
}

void Rmdir(fuse_req_t req, fuse_ino_t parent, const char* name) {
  Remove(req, parent, name, &Filesystem::Rmdir);
}

Result<RenameFlags> RenameFlagsFrom(unsigned flags) {
  switch (flags) {
    case 0:
      return RenameFlags::kNone;
    case RENAME_NOREPLACE:
      return RenameFlags::kNoReplace;
    case RENAME_EXCHANGE:
      return RenameFlags::kExchange;
    default:
      return Error::kInvalid;
  }
}

void Rename(fuse_req_t req, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
            const char* new_name, unsigned flags) {
  FuseServer* const server = FuseServer::Of(req);
  server->Run(req, [=](Attempt& attempt) -> Error {
    Filesystem& fs = server->fs();
    ASSIGN_OR_RETURN(const RenameFlags rename_flags, RenameFlagsFrom(flags));
    ASSIGN_OR_RETURN(const InodeRef from, fs.GetInode(attempt, parent));
    ASSIGN_OR_RETURN(const InodeRef to, fs.GetInode(attempt, new_parent));
    RETURN_IF_ERROR(fs.Rename(attempt, from, name, to, new_name, rename_flags));
    return server->ReplyWhenFinished(req, attempt, [req] { fuse_reply_err(req, 0); });
  });
}

}  // namespace

void AddNamespaceOperations(fuse_lowlevel_ops* operations) {
  operations->lookup = Lookup;
  operations->forget = Forget;
  operations->forget_multi = ForgetMulti;
  operations->mknod = Mknod;
  operations->mkdir = Mkdir;
  operations->symlink = Symlink;
  operations->readlink = Readlink;
  operations->link = Link;
  operations->unlink = Unlink;
  operations->rmdir = Rmdir;
  operations->rename = Rename;
}

}  // namespace sluice
