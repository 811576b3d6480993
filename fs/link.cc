// SPDX-License-Identifier: Apache-2.0
//
// Names of inodes that exist: Link, Unlink, Rmdir.
#include <utility>

#include "fs/credits.h"
#include "fs/directory.h"
#include "fs/filesystem.h"
#include "fs/filesystem_impl.h"
#include "fs/inode_cache.h"
#include "fs/inode_locks.h"
#include "fs/namespace.h"
#include "fs/orphan_file.h"
#include "fs/space.h"

namespace sluice {
namespace {

// Whether the inode may get one more name. Its mutex is held.
Error CheckMayLink(const Inode& inode) {
  RETURN_IF_ERROR(CheckMayUnlink(inode));
  // Without links only what O_TMPFILE made may come (back) to life.
  if (inode.fields.links == 0 && !inode.linkable) return Error::kNotFound;
  return inode.fields.links >= format::kMaxLinks ? Error::kTooManyLinks : Error::kOk;
}

// Unlink (`directory` false) and Rmdir (true). The removed inode, locked by `locks`, has lost its
// last name or one of several.
Result<InodeRef> RemoveName(Filesystem::Impl* fs, Attempt& attempt, const InodeRef& parent,
                            std::string_view name, bool directory) {
  InodeLocks locks;
  locks.Lock(parent);
  RETURN_IF_ERROR(CheckMayRemove(*parent));
  Directory names(fs, parent.get());
  ASSIGN_OR_RETURN(const DirectoryEntry entry, names.Lookup(attempt, name));
  ASSIGN_OR_RETURN(InodeRef child, ChildOf(fs, attempt, parent, entry));
  if (directory && !child->is_directory()) return Error::kNotDirectory;
  if (!directory && child->is_directory()) return Error::kIsDirectory;
  locks.Lock(child);
  RETURN_IF_ERROR(CheckMayUnlink(*child));
  if (directory && child->fields.device != 0) return Error::kNotEmpty;
  const bool last = directory || child->fields.links <= 1;
  OrphanFile::Claim claim;
  if (last && child->orphan_slot == 0) {
    ASSIGN_OR_RETURN(claim, ClaimOrphan(fs, attempt));
  }
  ASSIGN_OR_RETURN(Handle handle,
                   fs->journal->TryStart(attempt, OpType::kDirectory, credits::kUnlink));
  const Nanoseconds now = fs->Now();
  names.Remove(handle, entry);
  child->fields.links = last ? 0 : child->fields.links - 1;
  child->fields.ctime = now;
  if (last && child->orphan_slot == 0) fs->orphans->Add(handle, child.get(), std::move(claim));
  WriteBackLocked(handle, child.get(), false);
  if (directory) --parent->fields.links;
  DirectoryChanged(handle, parent.get(), now, -1);
  SyncIfAsked(fs, attempt, *parent, handle.tid());
  return child;
}

}  // namespace

Error Filesystem::Link(Attempt& attempt, const InodeRef& inode, const InodeRef& parent,
                       std::string_view name) {
  Impl* fs = impl_.get();
  ASSIGN_OR_RETURN(const FreezeGate::Pass pass, fs->BeginChange(attempt));
  RETURN_IF_ERROR(CheckName(name));
  if (inode->is_directory()) return Error::kNotPermitted;
  InodeLocks locks;
  locks.Lock(parent);
  RETURN_IF_ERROR(CheckMayAdd(*parent));
  if (IsDots(name)) return Error::kExists;
  Directory directory(fs, parent.get());
  const Result<DirectoryEntry> existing = directory.Lookup(attempt, name);
  if (existing.ok()) return Error::kExists;
  if (existing.error() != Error::kNotFound) return existing.error();
  locks.Lock(inode);
  RETURN_IF_ERROR(CheckMayLink(*inode));
  ASSIGN_OR_RETURN(DirectoryInsert insert, directory.PrepareInsert(attempt, name));
  ASSIGN_OR_RETURN(BlockReservation blocks,
                   ReserveOrWait(fs, attempt, insert.goal, insert.blocks, true));
  ASSIGN_OR_RETURN(Handle handle, fs->journal->TryStart(attempt, OpType::kDirectory,
                                                        credits::Link(insert.credits)));
  const Nanoseconds now = fs->Now();
  ++inode->fields.links;
  inode->fields.ctime = now;
  if (inode->linkable) {
    inode->linkable = false;
    fs->orphans->Remove(handle, inode.get());
  }
  WriteBackLocked(handle, inode.get(), false);
  directory.Insert(handle, insert, blocks, name, inode->ino, EntryType(inode->fields.mode));
  DirectoryChanged(handle, parent.get(), now, 1);
  SyncIfAsked(fs, attempt, *parent, handle.tid());
  return Error::kOk;
}

Error Filesystem::Unlink(Attempt& attempt, const InodeRef& parent, std::string_view name) {
  ASSIGN_OR_RETURN(const FreezeGate::Pass pass, impl_->BeginChange(attempt));
  RETURN_IF_ERROR(CheckName(name));
  if (IsDots(name)) return Error::kIsDirectory;
  ASSIGN_OR_RETURN(const InodeRef child, RemoveName(impl_.get(), attempt, parent, name, false));
  impl_->inodes->Unreferenced(child);
  return Error::kOk;
}

Error Filesystem::Rmdir(Attempt& attempt, const InodeRef& parent, std::string_view name) {
  ASSIGN_OR_RETURN(const FreezeGate::Pass pass, impl_->BeginChange(attempt));
  RETURN_IF_ERROR(CheckName(name));
  if (name == ".") return Error::kInvalid;
  if (name == "..") return Error::kNotEmpty;
  ASSIGN_OR_RETURN(const InodeRef child, RemoveName(impl_.get(), attempt, parent, name, true));
  impl_->inodes->Unreferenced(child);
  return Error::kOk;
}

}  // namespace sluice
