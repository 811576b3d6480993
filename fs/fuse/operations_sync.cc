// SPDX-License-Identifier: Apache-2.0
//
// Durability: fsync of files and directories, sync(2) and syncfs(2) where the kernel sends them
// (fuseblk).
#include "fs/fuse/open_files.h"
#include "fs/fuse/operations.h"
#include "fs/fuse/replies.h"

namespace sluice {
namespace {

void SyncInode(fuse_req_t req, fuse_ino_t ino, bool data_only, OpenFile* file) {
  FuseServer* const server = FuseServer::Of(req);
  server->Run(req, [=](Attempt& attempt) -> Error {
    ASSIGN_OR_RETURN(const InodeRef inode, server->fs().GetInode(attempt, ino));
    return server->fs().Fsync(attempt, file, inode, data_only,
                              [req](Error error) { ReplyError(req, error); });
  });
}

void Fsync(fuse_req_t req, fuse_ino_t ino, int data_only, fuse_file_info* info) {
  SyncInode(req, ino, data_only != 0, OpenFiles::Get(info->fh));
}

void Fsyncdir(fuse_req_t req, fuse_ino_t ino, int data_only, fuse_file_info*) {
  SyncInode(req, ino, data_only != 0, nullptr);
}

}  // namespace

void HandleSyncfs(FuseServer* server, const RawRequest& request) {
  server->RunOnWorker([=] { ReplyError(request, server->fs().Sync()); });
}

void AddSyncOperations(fuse_lowlevel_ops* operations) {
  operations->fsync = Fsync;
  operations->fsyncdir = Fsyncdir;
}

}  // namespace sluice
