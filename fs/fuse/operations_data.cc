// SPDX-License-Identifier: Apache-2.0
//
// File contents: read, write, fallocate, SEEK_DATA and SEEK_HOLE.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "fs/fuse/open_files.h"
#include "fs/fuse/operations.h"
#include "fs/fuse/replies.h"

namespace sluice {
namespace {

// The memory that a read's reply is gathered in: page-aligned, recycled.
class ReadReply {
 public:
  ReadReply(FuseServer* server, fuse_req_t req)
      : server_(server), req_(req), buffer_(server->session().buffers().Take()) {}
  ~ReadReply() { server_->session().buffers().Give(std::move(buffer_)); }
  ReadReply(const ReadReply&) = delete;
  ReadReply& operator=(const ReadReply&) = delete;

  std::span<std::byte> memory(size_t size) { return {buffer_->payload(), size}; }
  void Send(const Result<size_t>& count) {
    if (count.ok()) {
      fuse_reply_buf(req_, reinterpret_cast<const char*>(buffer_->payload()), *count);
    } else {
      ReplyError(req_, count.error());
    }
  }

 private:
  FuseServer* const server_;
  const fuse_req_t req_;
  std::unique_ptr<ReceiveBuffer> buffer_;
};

void Read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, fuse_file_info*) {
  FuseServer* const server = FuseServer::Of(req);
  const size_t wanted = std::min(size, ReceiveBuffer::payload_capacity());
  server->Run(req, [=](Attempt& attempt) -> Error {
    ASSIGN_OR_RETURN(const InodeRef inode, server->fs().GetInode(attempt, ino));
    auto reply = std::make_unique<ReadReply>(server, req);
    ReadReply* const pending = reply.get();
    RETURN_IF_ERROR(server->fs().Read(attempt, inode, static_cast<uint64_t>(offset),
                                      pending->memory(wanted), [pending](Result<size_t> count) {
                                        pending->Send(count);
                                        delete pending;
                                      }));
    (void)reply.release();  // the completion has it, or has deleted it already
    return Error::kOk;
  });
}

// From protocol 7.45 the kernel itself sends an FSYNC after a write through its cache with O_SYNC;
// after direct ones (FOPEN_DIRECT_IO), and in older kernels, that is left to us.
bool MustSyncWrite(FuseServer* server, int flags) {
  return OpensForSync(flags) && ((flags & O_DIRECT) != 0 || !server->kernel_syncs_writes());
}

Error FinishSyncWrite(FuseServer* server, Attempt& attempt, fuse_req_t req, OpenFile* file,
                      const InodeRef& inode, bool data_only, size_t written) {
  return server->fs().Fsync(attempt, file, inode, data_only, [req, written](Error error) {
    if (error == Error::kOk) {
      fuse_reply_write(req, written);
    } else {
      ReplyError(req, error);
    }
  });
}

void Write(fuse_req_t req, fuse_ino_t ino, const char* data, size_t size, off_t offset,
           fuse_file_info* info) {
  FuseServer* const server = FuseServer::Of(req);
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const bool kill_suidgid = Session::CurrentKillsSuidgid();
  const int flags = info->flags;
  OpenFile* const file = OpenFiles::Get(info->fh);
  // `written` outlives an attempt: what was accepted is not written again. The offset is the
  // kernel's also for O_APPEND: it holds the inode's lock and knows the size.
  server->Run(req, [=, written = size_t{0}](Attempt& attempt) mutable -> Error {
    Filesystem& fs = server->fs();
    ASSIGN_OR_RETURN(const InodeRef inode, fs.GetInode(attempt, ino));
    while (written < bytes.size()) {
      const Result<size_t> accepted =
          fs.Write(attempt, CallerOf(req), inode, static_cast<uint64_t>(offset) + written,
                   bytes.subspan(written), /*append=*/false, kill_suidgid);
      if (WouldBlock(accepted) || (!accepted.ok() && written == 0)) return accepted.error();
      if (!accepted.ok()) break;  // a short write; the next one meets the error
      written += *accepted;
    }
    if (MustSyncWrite(server, flags)) {
      const bool data_only = (flags & O_SYNC) != O_SYNC;
      return FinishSyncWrite(server, attempt, req, file, inode, data_only, written);
    }
    fuse_reply_write(req, written);
    return Error::kOk;
  });
}

void Fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
               fuse_file_info* info) {
  if (offset < 0 || length <= 0) {
    fuse_reply_err(req, EINVAL);
    return;
  }
  FuseServer* const server = FuseServer::Of(req);
  OpenFile* const file = OpenFiles::Get(info->fh);
  server->Run(req, [=](Attempt& attempt) -> Error {
    Filesystem& fs = server->fs();
    ASSIGN_OR_RETURN(const InodeRef inode, fs.GetInode(attempt, ino));
    RETURN_IF_ERROR(fs.Fallocate(attempt, CallerOf(req), inode, static_cast<uint32_t>(mode),
                                 static_cast<uint64_t>(offset), static_cast<uint64_t>(length)));
    if (file != nullptr && file->sync) {
      // Done again if this has to wait, which finds nothing left to do.
      return fs.Fsync(attempt, file, inode, /*data_only=*/false,
                      [req](Error error) { ReplyError(req, error); });
    }
    return server->ReplyWhenFinished(req, attempt, [req] { fuse_reply_err(req, 0); });
  });
}

void Lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence, fuse_file_info*) {
  if (whence != SEEK_DATA && whence != SEEK_HOLE) {
    fuse_reply_err(req, EINVAL);
    return;
  }
  FuseServer* const server = FuseServer::Of(req);
  server->Run(req, [=](Attempt& attempt) -> Error {
    Filesystem& fs = server->fs();
    ASSIGN_OR_RETURN(const InodeRef inode, fs.GetInode(attempt, ino));
    const uint64_t from = static_cast<uint64_t>(offset);
    ASSIGN_OR_RETURN(const uint64_t found, whence == SEEK_DATA ? fs.SeekData(attempt, inode, from)
                                                               : fs.SeekHole(attempt, inode, from));
    fuse_reply_lseek(req, static_cast<off_t>(found));
    return Error::kOk;
  });
}

}  // namespace

void AddDataOperations(fuse_lowlevel_ops* operations) {
  operations->read = Read;
  operations->write = Write;
  operations->fallocate = Fallocate;
  operations->lseek = Lseek;
}

}  // namespace sluice
