// SPDX-License-Identifier: Apache-2.0
#include "fs/namespace.h"

#include <sys/stat.h>

#include "fs/filesystem.h"
#include "fs/inode_cache.h"

namespace sluice {

Error CheckName(std::string_view name) {
  if (name.empty()) return Error::kInvalid;
  if (name.size() > format::kMaxNameLength) return Error::kNameTooLong;
  if (name.find('/') != std::string_view::npos || name.find('\0') != std::string_view::npos) {
    return Error::kInvalid;
  }
  return Error::kOk;
}

Error CheckMayAdd(const Inode& directory) {
  if (!directory.is_directory()) return Error::kNotDirectory;
  if (directory.fields.links == 0) return Error::kNotFound;
  if ((directory.fields.flags & format::kInodeImmutable) != 0) return Error::kNotPermitted;
  return Error::kOk;
}

Error CheckMayRemove(const Inode& directory) {
  RETURN_IF_ERROR(CheckMayAdd(directory));
  if ((directory.fields.flags & format::kInodeAppend) != 0) return Error::kNotPermitted;
  return Error::kOk;
}

Error CheckMayUnlink(const Inode& inode) {
  constexpr uint32_t kFixed = format::kInodeImmutable | format::kInodeAppend;
  return (inode.fields.flags & kFixed) != 0 ? Error::kNotPermitted : Error::kOk;
}

Result<InodeRef> ChildOf(Filesystem::Impl* fs, Attempt& attempt, const InodeRef& parent,
                         const DirectoryEntry& entry) {
  const auto corrupt = [&](const char* what) {
    fs->self->ReportCorruption(parent->ino, entry.leaf->block(), what);
    return Error::kCorrupt;
  };
  if (entry.ino == parent->ino || entry.ino < format::kFirstUserInode) {
    return corrupt("a name for an inode that cannot have one");
  }
  Result<InodeRef> child = fs->inodes->Get(attempt, entry.ino);
  if (!child.ok()) {
    if (child.error() == Error::kStale) return corrupt("a name for a free inode");
    return child.error();
  }
  if (EntryType((*child)->type()) != entry.type) return corrupt("a name with a wrong type");
  // Without this, a loop of directories could make two threads wait for each other. The field
  // changes only with this directory's mutex held exclusively.
  if ((*child)->is_directory() && (*child)->fields.parent != parent->ino) {
    return corrupt("a directory with two parents");
  }
  return child;
}

void DirectoryChanged(Handle& handle, Inode* directory, Nanoseconds now, int names) {
  directory->fields.mtime = now;
  directory->fields.ctime = now;
  directory->fields.device += static_cast<uint64_t>(static_cast<int64_t>(names));
  // Entries are a directory's data: an fdatasync must see them, also where their number stays.
  WriteBackLocked(handle, directory, true);
}

void SyncIfAsked(Filesystem::Impl* fs, Attempt& attempt, const Inode& directory, Tid tid) {
  constexpr uint32_t kSyncFlags = format::kInodeSync | format::kInodeDirSync;
  if (!fs->options.sync && !fs->options.dirsync && (directory.fields.flags & kSyncFlags) == 0) {
    return;
  }
  attempt.BeforeReply(
      [journal = fs->journal.get(), tid] { return journal->Commit(tid, CommitReason::kSync); });
}

}  // namespace sluice
