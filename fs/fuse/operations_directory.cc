// SPDX-License-Identifier: Apache-2.0
//
// Reading directories, with and without the entries' attributes.
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fs/fuse/operations.h"
#include "fs/fuse/replies.h"

namespace sluice {
namespace {

// libfuse wants names that end with NUL.
class TerminatedName {
 public:
  explicit TerminatedName(std::string_view name) {
    const size_t size = std::min(name.size(), sizeof(text_) - 1);
    name.copy(text_, size);
    text_[size] = '\0';
  }
  const char* c_str() const { return text_; }

 private:
  char text_[256];
};

mode_t ModeOfType(uint8_t type) { return static_cast<mode_t>(type) << 12; }

// A reply under construction: whole entries, as many as fit.
class DirectoryReply {
 public:
  DirectoryReply(FuseServer* server, fuse_req_t req, size_t capacity)
      : server_(server),
        req_(req),
        capacity_(std::min(capacity, ReceiveBuffer::payload_capacity())),
        buffer_(server->session().buffers().Take()) {}
  ~DirectoryReply() { server_->session().buffers().Give(std::move(buffer_)); }
  DirectoryReply(const DirectoryReply&) = delete;
  DirectoryReply& operator=(const DirectoryReply&) = delete;

  // False when the entry does not fit (and was not added).
  bool Add(std::string_view name, InodeNumber ino, uint8_t type, uint64_t cookie) {
    struct stat st {};
    st.st_ino = ino;
    st.st_mode = ModeOfType(type);
    const size_t size = fuse_add_direntry(req_, end(), left(), TerminatedName(name).c_str(), &st,
                                          static_cast<off_t>(cookie));
    return Take(size);
  }
  bool AddPlus(std::string_view name, const fuse_entry_param& entry, uint64_t cookie) {
    const size_t size = fuse_add_direntry_plus(req_, end(), left(), TerminatedName(name).c_str(),
                                               &entry, static_cast<off_t>(cookie));
    return Take(size);
  }
  // As fuse_reply_buf: not 0 when the kernel did not take it.
  int Send() {
    return fuse_reply_buf(req_, reinterpret_cast<const char*>(buffer_->payload()), used_);
  }

 private:
  char* end() { return reinterpret_cast<char*>(buffer_->payload()) + used_; }
  size_t left() const { return capacity_ - used_; }
  bool Take(size_t size) {
    if (size > left()) return false;
    used_ += size;
    return true;
  }

  FuseServer* const server_;
  const fuse_req_t req_;
  const size_t capacity_;
  std::unique_ptr<ReceiveBuffer> buffer_;
  size_t used_ = 0;
};

// Entries change only through the kernel, so it may keep what it has read.
void Opendir(fuse_req_t req, fuse_ino_t, fuse_file_info* info) {
  info->cache_readdir = 1;
  info->keep_cache = 1;
  fuse_reply_open(req, info);
}

void Readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t cookie, fuse_file_info*) {
  FuseServer* const server = FuseServer::Of(req);
  server->Run(req, [=](Attempt& attempt) -> Error {
    Filesystem& fs = server->fs();
    ASSIGN_OR_RETURN(const InodeRef directory, fs.GetInode(attempt, ino));
    DirectoryReply reply(server, req, size);
    RETURN_IF_ERROR(
        fs.Readdir(attempt, directory, static_cast<uint64_t>(cookie),
                   [&reply](std::string_view name, InodeNumber entry, uint8_t type, uint64_t next) {
                     return reply.Add(name, entry, type, next);
                   }));
    reply.Send();
    return Error::kOk;
  });
}

struct PlusEntry {
  std::string name;
  InodeNumber ino;
  uint8_t type;
  uint64_t cookie;
  InodeRef inode;  // null: the kernel gets the name without attributes
};

// One readdirplus request over its attempts: names are read once, then their inodes, each of which
// may have to be read from the image.
class PlusReader {
 public:
  PlusReader(FuseServer* server, fuse_req_t req, InodeNumber directory, size_t size,
             uint64_t cookie)
      : server_(server), req_(req), directory_(directory), size_(size), cookie_(cookie) {}

  Error operator()(Attempt& attempt) {
    if (!have_names_) RETURN_IF_ERROR(ReadNames(attempt));
    RETURN_IF_ERROR(LoadInodes(attempt));
    Reply();
    return Error::kOk;
  }

 private:
  static constexpr size_t kEntryOverhead = sizeof(fuse_direntplus);

  Error ReadNames(Attempt& attempt) {
    ASSIGN_OR_RETURN(const InodeRef directory, server_->fs().GetInode(attempt, directory_));
    entries_.clear();
    size_t room = size_;
    RETURN_IF_ERROR(server_->fs().Readdir(
        attempt, directory, cookie_,
        [&](std::string_view name, InodeNumber ino, uint8_t type, uint64_t cookie) {
          const size_t needed = FUSE_DIRENT_ALIGN(kEntryOverhead + name.size());
          if (needed > room) return false;
          room -= needed;
          entries_.push_back({std::string(name), ino, type, cookie, nullptr});
          return true;
        }));
    have_names_ = true;
    return Error::kOk;
  }

  // "." and ".." need none. An inode that cannot be had (gone meanwhile, damaged) must not hide the
  // other names: its own lookup will tell.
  Error LoadInodes(Attempt& attempt) {
    for (; loaded_ < entries_.size(); ++loaded_) {
      PlusEntry& entry = entries_[loaded_];
      if (entry.name == "." || entry.name == "..") continue;
      Result<InodeRef> inode = server_->fs().GetInode(attempt, entry.ino);
      if (WouldBlock(inode)) return Error::kWouldBlock;
      if (inode.ok()) entry.inode = std::move(inode).value();
    }
    return Error::kOk;
  }

  void Reply() {
    DirectoryReply reply(server_, req_, size_);
    size_t added = 0;
    for (; added < entries_.size(); ++added) {
      const PlusEntry& entry = entries_[added];
      if (!reply.AddPlus(entry.name, ParametersFor(entry), entry.cookie)) break;
      if (entry.inode != nullptr) server_->fs().AddLookup(entry.inode);
    }
    if (reply.Send() == 0) return;
    for (size_t i = 0; i < added; ++i) {
      if (entries_[i].inode != nullptr) server_->fs().Forget(entries_[i].ino, 1);
    }
  }

  fuse_entry_param ParametersFor(const PlusEntry& entry) {
    if (entry.inode != nullptr) return EntryFor(server_->fs(), entry.inode);
    fuse_entry_param parameters{};
    parameters.attr.st_ino = entry.ino;
    parameters.attr.st_mode = ModeOfType(entry.type);
    return parameters;
  }

  FuseServer* server_;
  fuse_req_t req_;
  InodeNumber directory_;
  size_t size_;
  uint64_t cookie_;
  bool have_names_ = false;
  size_t loaded_ = 0;
  std::vector<PlusEntry> entries_;
};

void Readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t cookie, fuse_file_info*) {
  FuseServer* const server = FuseServer::Of(req);
  server->Run(req, PlusReader(server, req, ino, size, static_cast<uint64_t>(cookie)));
}

}  // namespace

void AddDirectoryOperations(fuse_lowlevel_ops* operations) {
  operations->opendir = Opendir;
  operations->readdir = Readdir;
  operations->readdirplus = Readdirplus;
}

}  // namespace sluice
