// SPDX-License-Identifier: Apache-2.0
//
// Rename, as rename(2) and ext4 do it. A rename between directories holds the rename mutex, which
// keeps the tree's shape: the way from the new parent to the root is walked under it, so that no
// directory becomes its own ancestor.
#include <memory>
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

// Holds the rename mutex for renames between directories only.
class MaybeRenameLock {
 public:
  MaybeRenameLock(Mutex* mutex, bool take) ABSL_NO_THREAD_SAFETY_ANALYSIS  // conditional
      : mutex_(take ? mutex : nullptr) {
    if (mutex_ != nullptr) mutex_->Lock();
  }
  ~MaybeRenameLock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (mutex_ != nullptr) mutex_->Unlock();
  }
  MaybeRenameLock(const MaybeRenameLock&) = delete;
  MaybeRenameLock& operator=(const MaybeRenameLock&) = delete;

 private:
  Mutex* const mutex_;
};

// One rename, from its names to its handle.
class Renaming {
 public:
  Renaming(Filesystem::Impl* fs, Attempt& attempt, const InodeRef& from_parent,
           std::string_view from, const InodeRef& to_parent, std::string_view to, RenameFlags flags)
      : fs_(fs),
        attempt_(attempt),
        from_parent_(from_parent),
        to_parent_(to_parent),
        from_(from),
        to_(to),
        exchange_(flags == RenameFlags::kExchange),
        no_replace_(flags == RenameFlags::kNoReplace),
        cross_(from_parent != to_parent),
        rename_lock_(&fs->rename_mutex, cross_),
        from_names_(fs, from_parent.get()),
        to_names_(fs, to_parent.get()) {}

  Error Run();
  // The inode that lost its last name; null if none did. To be told to the cache without locks.
  InodeRef deleted() const { return deleted_; }

 private:
  Error LockParents();
  Error FindNames();
  Error CheckTree();
  Error IsInside(const InodeRef& directory, const InodeRef& above, bool* inside);
  Error LockChildren();
  Error CheckTarget();
  Error CheckExchange();
  Error Move();
  Error Replace();
  Error Exchange();
  void SetParent(const InodeRef& inode, const InodeRef& parent);
  void Finish(Handle& handle, Nanoseconds now, int from_change, int to_change);

  Filesystem::Impl* const fs_;
  Attempt& attempt_;
  const InodeRef& from_parent_;
  const InodeRef& to_parent_;
  const std::string_view from_;
  const std::string_view to_;
  const bool exchange_;
  const bool no_replace_;
  const bool cross_;
  MaybeRenameLock rename_lock_;
  InodeLocks locks_;
  Directory from_names_;
  Directory to_names_;
  DirectoryEntry source_entry_;
  DirectoryEntry target_entry_;
  InodeRef source_;
  InodeRef target_;  // null: the new name is free
  InodeRef deleted_;
};

Error Renaming::LockParents() {
  if (!from_parent_->is_directory() || !to_parent_->is_directory()) return Error::kNotDirectory;
  locks_.Lock(from_parent_);
  RETURN_IF_ERROR(locks_.TryLock(attempt_, to_parent_));
  RETURN_IF_ERROR(CheckMayRemove(*from_parent_));
  return CheckMayAdd(*to_parent_);
}

Error Renaming::FindNames() {
  ASSIGN_OR_RETURN(source_entry_, from_names_.Lookup(attempt_, from_));
  ASSIGN_OR_RETURN(source_, ChildOf(fs_, attempt_, from_parent_, source_entry_));
  Result<DirectoryEntry> found = to_names_.Lookup(attempt_, to_);
  if (!found.ok()) {
    if (found.error() == Error::kNotFound && !exchange_) return Error::kOk;
    return found.error();
  }
  if (no_replace_) return Error::kExists;
  target_entry_ = std::move(found).value();
  ASSIGN_OR_RETURN(target_, ChildOf(fs_, attempt_, to_parent_, target_entry_));
  return Error::kOk;
}

// Whether `above` is `directory` or on its way to the root. The rename mutex is held: no parent
// changes.
Error Renaming::IsInside(const InodeRef& directory, const InodeRef& above, bool* inside) {
  InodeRef at = directory;
  // A damaged image may have a loop; a sound one has no way longer than its directories.
  for (uint64_t steps = fs_->groups->totals().directories + 1; steps > 0; --steps) {
    *inside = at == above;
    if (*inside || at->ino == format::kRootInode) return Error::kOk;
    Result<InodeRef> parent = fs_->inodes->Get(attempt_, at->fields.parent);
    if (!parent.ok() && parent.error() != Error::kStale) return parent.error();
    if (!parent.ok() || !(*parent)->is_directory()) break;
    at = std::move(parent).value();
  }
  fs_->self->ReportCorruption(directory->ino, 0, "no way from a directory to the root");
  return Error::kCorrupt;
}

Error Renaming::CheckTree() {
  if (!cross_) return Error::kOk;
  bool inside = false;
  if (source_->is_directory()) {
    RETURN_IF_ERROR(IsInside(to_parent_, source_, &inside));
    if (inside) return Error::kInvalid;
  }
  if (target_ != nullptr && target_->is_directory()) {
    RETURN_IF_ERROR(IsInside(from_parent_, target_, &inside));
    if (inside) return exchange_ ? Error::kInvalid : Error::kNotEmpty;
  }
  return Error::kOk;
}

Error Renaming::LockChildren() {
  RETURN_IF_ERROR(locks_.TryLock(attempt_, source_));
  RETURN_IF_ERROR(CheckMayUnlink(*source_));
  if (target_ == nullptr) return Error::kOk;
  RETURN_IF_ERROR(locks_.TryLock(attempt_, target_));
  RETURN_IF_ERROR(CheckMayRemove(*to_parent_));
  return CheckMayUnlink(*target_);
}

Error Renaming::CheckTarget() {
  if (target_ == nullptr) return Error::kOk;
  if (source_->is_directory() && !target_->is_directory()) return Error::kNotDirectory;
  if (!source_->is_directory() && target_->is_directory()) return Error::kIsDirectory;
  if (target_->is_directory() && target_->fields.device != 0) return Error::kNotEmpty;
  return Error::kOk;
}

Error Renaming::Run() {
  RETURN_IF_ERROR(LockParents());
  RETURN_IF_ERROR(FindNames());
  if (target_ == source_) return Error::kOk;
  RETURN_IF_ERROR(CheckTree());
  if (exchange_) {
    RETURN_IF_ERROR(CheckExchange());
    RETURN_IF_ERROR(LockChildren());
    return Exchange();
  }
  RETURN_IF_ERROR(LockChildren());
  RETURN_IF_ERROR(CheckTarget());
  const bool one_more = cross_ && source_->is_directory() && target_ == nullptr;
  if (one_more && to_parent_->fields.links >= format::kMaxLinks) return Error::kTooManyLinks;
  return target_ == nullptr ? Move() : Replace();
}

// A directory that comes may need a link that the one that goes does not give back.
Error Renaming::CheckExchange() {
  if (!cross_ || source_->is_directory() == target_->is_directory()) return Error::kOk;
  const InodeRef& gains = source_->is_directory() ? to_parent_ : from_parent_;
  return gains->fields.links >= format::kMaxLinks ? Error::kTooManyLinks : Error::kOk;
}

// A directory that changes its parent. Both parents' mutexes and its own are held.
void Renaming::SetParent(const InodeRef& inode, const InodeRef& parent) {
  if (!cross_ || !inode->is_directory()) return;
  inode->fields.parent = parent->ino;
  const InodeRef& old = parent == to_parent_ ? from_parent_ : to_parent_;
  --old->fields.links;
  ++parent->fields.links;
}

// Times, counts and write-backs of the parents and the inode that moved.
void Renaming::Finish(Handle& handle, Nanoseconds now, int from_change, int to_change) {
  source_->fields.ctime = now;
  WriteBackLocked(handle, source_.get(), false);
  if (cross_) {
    DirectoryChanged(handle, from_parent_.get(), now, from_change);
    DirectoryChanged(handle, to_parent_.get(), now, to_change);
  } else {
    DirectoryChanged(handle, from_parent_.get(), now, from_change + to_change);
  }
  SyncIfAsked(fs_, attempt_, *from_parent_, handle.tid());
  if (cross_) SyncIfAsked(fs_, attempt_, *to_parent_, handle.tid());
}

Error Renaming::Move() {
  ASSIGN_OR_RETURN(DirectoryInsert insert, to_names_.PrepareInsert(attempt_, to_));
  ASSIGN_OR_RETURN(BlockReservation blocks,
                   ReserveOrWait(fs_, attempt_, insert.goal, insert.blocks, true));
  ASSIGN_OR_RETURN(Handle handle, fs_->journal->TryStart(attempt_, OpType::kDirectory,
                                                         credits::Rename(insert.credits)));
  // First the old name: a split for the new one could move it to another leaf.
  from_names_.Remove(handle, source_entry_);
  to_names_.Insert(handle, insert, blocks, to_, source_->ino, source_entry_.type);
  SetParent(source_, to_parent_);
  Finish(handle, fs_->Now(), -1, 1);
  return Error::kOk;
}

Error Renaming::Replace() {
  const bool last = target_->is_directory() || target_->fields.links <= 1;
  OrphanFile::Claim claim;
  if (last && target_->orphan_slot == 0) {
    ASSIGN_OR_RETURN(claim, ClaimOrphan(fs_, attempt_));
  }
  ASSIGN_OR_RETURN(Handle handle,
                   fs_->journal->TryStart(attempt_, OpType::kDirectory, credits::kRenameReplace));
  const Nanoseconds now = fs_->Now();
  to_names_.Replace(handle, target_entry_, source_->ino, source_entry_.type);
  from_names_.Remove(handle, source_entry_);
  target_->fields.links = last ? 0 : target_->fields.links - 1;
  target_->fields.ctime = now;
  if (last && target_->orphan_slot == 0) {
    fs_->orphans->Add(handle, target_.get(), std::move(claim));
  }
  WriteBackLocked(handle, target_.get(), false);
  if (target_->is_directory()) --to_parent_->fields.links;
  SetParent(source_, to_parent_);
  // The new content must be there when the old is gone (auto_da_alloc).
  if (source_->is_regular() && !source_->pages.idle()) handle.AddOrdered(source_);
  Finish(handle, now, -1, 0);
  if (last) deleted_ = target_;
  return Error::kOk;
}

Error Renaming::Exchange() {
  ASSIGN_OR_RETURN(Handle handle,
                   fs_->journal->TryStart(attempt_, OpType::kDirectory, credits::kRenameExchange));
  const Nanoseconds now = fs_->Now();
  to_names_.Replace(handle, target_entry_, source_->ino, source_entry_.type);
  from_names_.Replace(handle, source_entry_, target_->ino, target_entry_.type);
  SetParent(source_, to_parent_);
  SetParent(target_, from_parent_);
  target_->fields.ctime = now;
  WriteBackLocked(handle, target_.get(), false);
  Finish(handle, now, 0, 0);
  return Error::kOk;
}

}  // namespace

Error Filesystem::Rename(Attempt& attempt, const InodeRef& from_parent, std::string_view from,
                         const InodeRef& to_parent, std::string_view to, RenameFlags flags) {
  ASSIGN_OR_RETURN(const FreezeGate::Pass pass, impl_->BeginChange(attempt));
  RETURN_IF_ERROR(CheckName(from));
  RETURN_IF_ERROR(CheckName(to));
  if (IsDots(from)) return Error::kBusy;
  if (IsDots(to)) return flags == RenameFlags::kNoReplace ? Error::kExists : Error::kBusy;
  InodeRef deleted;
  {
    Renaming renaming(impl_.get(), attempt, from_parent, from, to_parent, to, flags);
    RETURN_IF_ERROR(renaming.Run());
    deleted = renaming.deleted();
  }
  if (deleted != nullptr) impl_->inodes->Unreferenced(deleted);
  return Error::kOk;
}

}  // namespace sluice
