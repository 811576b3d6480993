// SPDX-License-Identifier: Apache-2.0
//
// Extended attributes.
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "fs/fuse/operations.h"
#include "fs/fuse/replies.h"

namespace sluice {
namespace {

// listxattr(2) takes no more.
constexpr size_t kMostListBytes = 65536;

void Setxattr(fuse_req_t req, fuse_ino_t ino, const char* name, const char* value, size_t size,
              int flags) {
  XattrSetMode mode = XattrSetMode::kAny;
  if (flags == XATTR_CREATE) mode = XattrSetMode::kCreate;
  if (flags == XATTR_REPLACE) mode = XattrSetMode::kReplace;
  if (flags != 0 && mode == XattrSetMode::kAny) {
    fuse_reply_err(req, EINVAL);
    return;
  }
  FuseServer* const server = FuseServer::Of(req);
  server->Run(req, [=](Attempt& attempt) -> Error {
    ASSIGN_OR_RETURN(const InodeRef inode, server->fs().GetInode(attempt, ino));
    RETURN_IF_ERROR(server->fs().SetXattr(attempt, CallerOf(req), inode, name,
                                          std::as_bytes(std::span(value, size)), mode));
    return server->ReplyWhenFinished(req, attempt, [req] { fuse_reply_err(req, 0); });
  });
}

void Getxattr(fuse_req_t req, fuse_ino_t ino, const char* name, size_t size) {
  FuseServer* const server = FuseServer::Of(req);
  server->Run(req, [=](Attempt& attempt) -> Error {
    ASSIGN_OR_RETURN(const InodeRef inode, server->fs().GetInode(attempt, ino));
    std::array<std::byte, kBlockSize> value;  // no value is longer than its block
    const std::span<std::byte> out = std::span(value).first(std::min(size, value.size()));
    ASSIGN_OR_RETURN(const size_t count, server->fs().GetXattr(attempt, inode, name, out));
    if (size == 0) {
      fuse_reply_xattr(req, count);
    } else {
      fuse_reply_buf(req, reinterpret_cast<const char*>(value.data()), count);
    }
    return Error::kOk;
  });
}

void Listxattr(fuse_req_t req, fuse_ino_t ino, size_t size) {
  FuseServer* const server = FuseServer::Of(req);
  server->Run(req, [=](Attempt& attempt) -> Error {
    ASSIGN_OR_RETURN(const InodeRef inode, server->fs().GetInode(attempt, ino));
    std::vector<std::byte> names(std::min(size, kMostListBytes));
    ASSIGN_OR_RETURN(const size_t count,
                     server->fs().ListXattr(attempt, CallerOf(req), inode, names));
    if (size == 0) {
      fuse_reply_xattr(req, count);
    } else {
      fuse_reply_buf(req, reinterpret_cast<const char*>(names.data()), count);
    }
    return Error::kOk;
  });
}

void Removexattr(fuse_req_t req, fuse_ino_t ino, const char* name) {
  FuseServer* const server = FuseServer::Of(req);
  server->Run(req, [=](Attempt& attempt) -> Error {
    ASSIGN_OR_RETURN(const InodeRef inode, server->fs().GetInode(attempt, ino));
    RETURN_IF_ERROR(server->fs().RemoveXattr(attempt, inode, name));
    return server->ReplyWhenFinished(req, attempt, [req] { fuse_reply_err(req, 0); });
  });
}

}  // namespace

void AddXattrOperations(fuse_lowlevel_ops* operations) {
  operations->setxattr = Setxattr;
  operations->getxattr = Getxattr;
  operations->listxattr = Listxattr;
  operations->removexattr = Removexattr;
}

}  // namespace sluice
