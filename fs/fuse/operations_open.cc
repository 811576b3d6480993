// SPDX-License-Identifier: Apache-2.0
//
// Descriptors: open, create, O_TMPFILE, flush and release.
#include <array>
#include <cstring>

#include "fs/fuse/open_files.h"
#include "fs/fuse/operations.h"
#include "fs/fuse/replies.h"

namespace sluice {
namespace {

// FOPEN_* for descriptors opened with `flags`. O_DIRECT bypasses the kernel's cache, and then
// writes to different parts of a file may run side by side.
uint32_t OpenReplyFlags(int flags) {
  if ((flags & O_DIRECT) != 0) return FOPEN_DIRECT_IO | kOpenParallelDirectWrites;
  return FOPEN_KEEP_CACHE;
}

Result<std::unique_ptr<OpenFile>> OpenDescriptor(Filesystem& fs, const InodeRef& inode, int flags) {
  ASSIGN_OR_RETURN(std::unique_ptr<OpenFile> file,
                   fs.Open(inode, OpensForWriting(flags), (flags & O_TRUNC) != 0));
  file->sync = OpensForSync(flags);
  return file;
}

void FillFileInfo(FuseServer* server, std::unique_ptr<OpenFile> file, fuse_file_info* info) {
  const uint32_t reply_flags = OpenReplyFlags(info->flags);
  info->direct_io = (reply_flags & FOPEN_DIRECT_IO) != 0;
  info->keep_cache = (reply_flags & FOPEN_KEEP_CACHE) != 0;
  Session::AddToNextOpenReply(reply_flags & kOpenParallelDirectWrites);
  info->fh = server->open_files().Add(std::move(file));
}

void Open(fuse_req_t req, fuse_ino_t ino, fuse_file_info* info) {
  FuseServer* const server = FuseServer::Of(req);
  server->Run(req, [=, info = *info](Attempt& attempt) mutable -> Error {
    Filesystem& fs = server->fs();
    ASSIGN_OR_RETURN(const InodeRef inode, fs.GetInode(attempt, ino));
    ASSIGN_OR_RETURN(std::unique_ptr<OpenFile> file, OpenDescriptor(fs, inode, info.flags));
    FillFileInfo(server, std::move(file), &info);
    if (fuse_reply_open(req, &info) != 0) fs.Release(server->open_files().Remove(info.fh));
    return Error::kOk;
  });
}

void Create(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode,
            fuse_file_info* info) {
  FuseServer* const server = FuseServer::Of(req);
  const NewNode node{static_cast<uint16_t>((mode & 07777) | S_IFREG), 0, 0};
  server->Run(req, [=, info = *info](Attempt& attempt) mutable -> Error {
    Filesystem& fs = server->fs();
    ASSIGN_OR_RETURN(const InodeRef directory, fs.GetInode(attempt, parent));
    ASSIGN_OR_RETURN(const InodeRef inode,
                     fs.Create(attempt, CallerOf(req), directory, name, node));
    ASSIGN_OR_RETURN(std::unique_ptr<OpenFile> file, OpenDescriptor(fs, inode, info.flags));
    FillFileInfo(server, std::move(file), &info);
    return server->ReplyWhenFinished(req, attempt, [=] {
      const fuse_entry_param entry = EntryFor(server->fs(), inode);
      server->fs().AddLookup(inode);
      if (fuse_reply_create(req, &entry, &info) != 0) {
        server->fs().Release(server->open_files().Remove(info.fh));
        server->fs().Forget(entry.ino, 1);
      }
    });
  });
}

// close(2): reports writeout errors that this descriptor has not seen; writes nothing.
void Flush(fuse_req_t req, fuse_ino_t, fuse_file_info* info) {
  ReplyError(req, FuseServer::Of(req)->fs().TakeError(OpenFiles::Get(info->fh)));
}

void Release(fuse_req_t req, fuse_ino_t, fuse_file_info* info) {
  FuseServer* const server = FuseServer::Of(req);
  server->fs().Release(server->open_files().Remove(info->fh));
  fuse_reply_err(req, 0);
}

struct CreateReply {
  fuse_entry_out entry;
  fuse_open_out open;
};
static_assert(sizeof(CreateReply) == 144);

CreateReply TmpfileReply(const Attributes& attributes, uint64_t handle, int flags) {
  constexpr uint64_t kForever = static_cast<uint64_t>(kForeverSeconds);
  CreateReply reply{};
  reply.entry.nodeid = attributes.ino;
  reply.entry.generation = attributes.generation;
  reply.entry.entry_valid = kForever;
  reply.entry.attr_valid = kForever;
  reply.entry.attr = FuseAttrFrom(attributes);
  reply.open.fh = handle;
  reply.open.open_flags = OpenReplyFlags(flags);
  return reply;
}

}  // namespace

void HandleTmpfile(FuseServer* server, const RawRequest& request,
                   std::span<const std::byte> argument) {
  fuse_create_in create{};
  if (argument.size() < sizeof(create)) return request.Fail(EINVAL);
  std::memcpy(&create, argument.data(), sizeof(create));
  const NewNode node{static_cast<uint16_t>((create.mode & 07777) | S_IFREG), 0, 0};
  const Caller caller{request.header.uid, request.header.gid,
                      static_cast<int32_t>(request.header.pid)};
  const int flags = static_cast<int>(create.flags);
  server->Run(request, [=](Attempt& attempt) -> Error {
    Filesystem& fs = server->fs();
    ASSIGN_OR_RETURN(const InodeRef directory, fs.GetInode(attempt, request.header.nodeid));
    ASSIGN_OR_RETURN(const InodeRef inode, fs.CreateTemporary(attempt, caller, directory, node));
    ASSIGN_OR_RETURN(std::unique_ptr<OpenFile> file, OpenDescriptor(fs, inode, flags));
    fs.AddLookup(inode);
    const CreateReply reply =
        TmpfileReply(fs.GetAttributes(inode), server->open_files().Add(std::move(file)), flags);
    request.Reply(std::as_bytes(std::span(&reply, 1)));
    return Error::kOk;
  });
}

void AddOpenOperations(fuse_lowlevel_ops* operations) {
  operations->open = Open;
  operations->create = Create;
  operations->flush = Flush;
  operations->release = Release;
}

}  // namespace sluice
