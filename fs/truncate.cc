// SPDX-License-Identifier: Apache-2.0
//
// Changing a file's size, and deleting files. Blocks are freed from the end of the file in steps of
// one handle each. When one step is not enough the inode is in the orphan file from the first
// handle to the last: a crash in between is finished at the next mount, and nobody may let the file
// grow before the rest is gone (ContinueTruncate).
#include <algorithm>
#include <utility>

#include "fs/file_data.h"
#include "fs/filesystem_impl.h"
#include "fs/space.h"

namespace sluice {
namespace {

// What one step may ask of the journal: large enough that most files go in one, small enough that a
// step does not fill a transaction by itself.
int StepCredits(Filesystem::Impl* fs) {
  return std::min(fs->journal->max_handle_blocks() / 2, 256);
}

bool TruncatePending(const Inode& inode) {
  return inode.orphan_slot != 0 && inode.fields.links > 0;
}

// A truncate of one inode. The inode's mutex is held throughout.
class Truncation {
 public:
  Truncation(Filesystem::Impl* fs, Attempt& attempt, const InodeRef& inode)
      : fs_(fs), attempt_(attempt), inode_(inode), tree_(TreeOf(fs, inode)) {}

  Error SetSize(uint64_t size, bool drop_privileges);
  // Goes on with freeing what lies behind the size.
  Error Continue();

 private:
  Error Grow(uint64_t size);
  Error Shrink(uint64_t size);
  void SetFields(uint64_t size);

  Filesystem::Impl* const fs_;
  Attempt& attempt_;
  const InodeRef& inode_;
  ExtentTree tree_;
  bool drop_privileges_ = false;
  RangeLock::Token range_;
};

void Truncation::SetFields(uint64_t size) {
  InodeFields& fields = inode_->fields;
  fields.size = size;
  fields.mtime = fields.ctime = fs_->Now();
  if (drop_privileges_) DropPrivileges(&fields);
}

Error Truncation::SetSize(uint64_t size, bool drop_privileges) {
  drop_privileges_ = drop_privileges;
  if (TruncatePending(*inode_)) RETURN_IF_ERROR(Continue());
  // The same size may still free blocks behind the end.
  return size > inode_->fields.size ? Grow(size) : Shrink(size);
}

Error Truncation::Grow(uint64_t size) {
  inode_->mutex.AssertHeld();
  RETURN_IF_ERROR(ZeroTail(fs_, attempt_, inode_));
  ASSIGN_OR_RETURN(Handle handle,
                   fs_->journal->TryStart(attempt_, OpType::kTruncate, kInodeRecordCredits));
  SetFields(size);
  inode_->WriteBack(handle, /*data_reachability=*/true);
  JoinOrdered(handle, inode_);  // the zeroed tail reaches the device before the size does
  return Error::kOk;
}

Error Truncation::Shrink(uint64_t size) {
  inode_->mutex.AssertHeld();
  const FileBlock first = BlocksForBytes(size);
  RETURN_IF_ERROR(Quiesce(attempt_, inode_, first, kEndOfFileBlocks, &range_));
  if (OffsetInPage(size) != 0) {
    Mapping mapping;
    RETURN_IF_ERROR(EnsurePage(fs_, attempt_, inode_, PageOf(size), &mapping));
  }
  ASSIGN_OR_RETURN(const ExtentTree::RemovePlan plan,
                   tree_.PrepareRemove(attempt_, first, StepCredits(fs_)));
  const bool more = !plan.empty && !plan.last;
  OrphanFile::Claim claim;
  if (more && inode_->orphan_slot == 0) {
    ASSIGN_OR_RETURN(claim, ClaimOrphan(fs_, attempt_));
  }
  {
    ASSIGN_OR_RETURN(Handle handle,
                     fs_->journal->TryStart(
                         attempt_, OpType::kTruncate,
                         plan.credits + kInodeRecordCredits + OrphanFile::kCredits, plan.revokes));
    RETURN_IF_ERROR(DropPages(fs_, attempt_, handle, inode_, first, kEndOfFileBlocks));
    SetFields(size);
    if (OffsetInPage(size) != 0) inode_->pages.Zero(PageOf(size), OffsetInPage(size), kBlockSize);
    if (more && inode_->orphan_slot == 0) {
      fs_->orphans->Add(handle, inode_.get(), std::move(claim));
    }
    if (!plan.empty) RETURN_IF_ERROR(tree_.Remove(handle, plan, /*revoke_data=*/false));
    inode_->WriteBack(handle, /*data_reachability=*/true);
    JoinOrdered(handle, inode_);
  }
  return more ? Continue() : Error::kOk;
}

Error Truncation::Continue() {
  inode_->mutex.AssertHeld();
  const FileBlock first = BlocksForBytes(inode_->fields.size);
  if (!range_.held()) RETURN_IF_ERROR(Quiesce(attempt_, inode_, first, kEndOfFileBlocks, &range_));
  while (TruncatePending(*inode_)) {
    ASSIGN_OR_RETURN(const ExtentTree::RemovePlan plan,
                     tree_.PrepareRemove(attempt_, first, StepCredits(fs_)));
    ASSIGN_OR_RETURN(Handle handle,
                     fs_->journal->TryStart(
                         attempt_, OpType::kTruncate,
                         plan.credits + kInodeRecordCredits + OrphanFile::kCredits, plan.revokes));
    if (!plan.empty) RETURN_IF_ERROR(tree_.Remove(handle, plan, /*revoke_data=*/false));
    if (plan.empty || plan.last) fs_->orphans->Remove(handle, inode_.get());
    inode_->WriteBack(handle, /*data_reachability=*/true);
  }
  return Error::kOk;
}

// One attempt at freeing all of an inode without links, then the inode.
Error DeleteStep(Filesystem::Impl* fs, Attempt& attempt, const InodeRef& inode) {
  constexpr int kLastCredits = kInodeRecordCredits + InodeAllocator::kCreditsPerInode +
                               OrphanFile::kCredits + BlockAllocator::kCreditsPerRun;
  MutexLock lock(&inode->mutex);
  if (inode->fields.mode == 0) return Error::kOk;
  const bool directory = inode->is_directory();
  const bool has_tree =
      directory || inode->is_regular() ||
      (inode->is_symlink() && (inode->fields.flags & format::kInodeInlineSymlink) == 0);
  ExtentTree tree = TreeOf(fs, inode);
  RETURN_IF_ERROR(fs->inode_numbers->PrepareFree(attempt, inode->ino));
  const BlockRun xattrs = {inode->fields.xattr_block, inode->fields.xattr_block != 0 ? 1u : 0u};
  if (xattrs.length > 0) RETURN_IF_ERROR(fs->blocks->PrepareFree(attempt, xattrs));
  for (;;) {
    ExtentTree::RemovePlan plan;
    plan.empty = true;
    if (has_tree) {
      ASSIGN_OR_RETURN(plan, tree.PrepareRemove(attempt, 0, StepCredits(fs)));
    }
    ASSIGN_OR_RETURN(Handle handle,
                     fs->journal->TryStart(attempt, OpType::kTruncate, plan.credits + kLastCredits,
                                           plan.revokes + static_cast<int>(xattrs.length)));
    // Blocks of a directory or a long symlink are metadata: they were logged.
    if (!plan.empty) RETURN_IF_ERROR(tree.Remove(handle, plan, !inode->is_regular()));
    if (plan.empty || plan.last) {
      if (inode->orphan_slot != 0) fs->orphans->Remove(handle, inode.get());
      if (xattrs.length > 0) {
        handle.RevokeBlock(xattrs.start);
        RETURN_IF_ERROR(fs->blocks->Free(handle, xattrs));
      }
      inode->fields.mode = 0;
      inode->fields.size = 0;
      inode->fields.xattr_block = 0;
      inode->WriteBack(handle, /*data_reachability=*/true);
      return fs->inode_numbers->Free(handle, inode->ino, directory);
    }
    inode->WriteBack(handle, /*data_reachability=*/true);
  }
}

}  // namespace

Error ContinueTruncate(Filesystem::Impl* fs, Attempt& attempt, const InodeRef& inode) {
  if (!TruncatePending(*inode)) return Error::kOk;
  return Truncation(fs, attempt, inode).Continue();
}

Error TruncateFile(Filesystem::Impl* fs, Attempt& attempt, const InodeRef& inode, uint64_t size,
                   bool kill_suid_sgid) {
  if (inode->is_directory()) return Error::kIsDirectory;
  if (!inode->is_regular()) return Error::kInvalid;
  if (size > format::kMaxFileSize) return Error::kFileTooLarge;
  MutexLock lock(&inode->mutex);
  const uint32_t flags = inode->fields.flags;
  if ((flags & (format::kInodeImmutable | format::kInodeAppend)) != 0) {
    return Error::kNotPermitted;
  }
  return Truncation(fs, attempt, inode).SetSize(size, kill_suid_sgid);
}

Error DeleteInode(Filesystem::Impl* fs, const InodeRef& inode) {
  // Nobody can reach the inode any more: no new reads, no new pages.
  // What could not be written goes with the file.
  if (!inode->is_directory()) DropAllPages(fs, inode);
  RETURN_IF_ERROR(RunBlocking([&](Attempt& attempt) -> Error {
    ASSIGN_OR_RETURN(const FreezeGate::Pass pass, fs->gate.Enter(attempt));
    return DeleteStep(fs, attempt, inode);
  }));
  fs->inodes->Remove(inode->ino);
  return Error::kOk;
}

Error FinishTruncate(Filesystem::Impl* fs, const InodeRef& inode) {
  return RunBlocking([&](Attempt& attempt) {
    MutexLock lock(&inode->mutex);
    return ContinueTruncate(fs, attempt, inode);
  });
}

}  // namespace sluice
