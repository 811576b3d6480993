// SPDX-License-Identifier: Apache-2.0
//
// fallocate(2). Each step is one handle over one extent or one new run and leaves a valid file, so
// that a long range needs no orphan entry: what a crash cuts off is simply not done yet. A repeated
// attempt finds the steps that were done before as done.
//
// Blocks are freed, or become unwritten, under the exclusive range lock, when nothing reads or
// writes them (J6), and their pages are dropped under the same handle.
#include <algorithm>
#include <utility>

#include "fs/file_data.h"
#include "fs/filesystem_impl.h"
#include "fs/namespace.h"
#include "fs/space.h"

namespace sluice {
namespace {

using Change = ExtentTree::Change;

// One Fallocate. The inode's mutex is held throughout.
class Fallocation {
 public:
  Fallocation(Filesystem::Impl* fs, Attempt& attempt, const Caller& caller, const InodeRef& inode,
              uint64_t offset, uint64_t end)
      : fs_(fs),
        attempt_(attempt),
        caller_(caller),
        inode_(inode),
        offset_(offset),
        end_(end),
        tree_(TreeOf(fs, inode)) {}

  Error Allocate(bool keep_size);
  Error PunchHole();
  Error ZeroRange(bool keep_size);

 private:
  // Fills the holes of the range, blocks touched in part included.
  Error FillHoles();
  Error FillHole(const Mapping& hole, FileBlock limit);
  // Changes the whole blocks of the range that are mapped and not that already.
  Error ChangeWhole(Change change);
  Error ChangeStep(FileBlock first, FileBlock end, Change change);
  // Zeroes the parts of blocks at both ends of the range, in memory.
  Error ZeroEdges();
  Error ZeroPart(FileBlock page, uint32_t from, uint32_t to);
  // The last step: the size, if it grows, and the times.
  Error FinishFields(bool keep_size);
  void Touch();

  FileBlock FirstWhole() const { return BlocksForBytes(offset_); }
  FileBlock EndOfWhole() const { return PageOf(end_); }

  Filesystem::Impl* const fs_;
  Attempt& attempt_;
  const Caller& caller_;
  const InodeRef& inode_;
  const uint64_t offset_;
  uint64_t end_;
  ExtentTree tree_;
  RangeLock::Token range_;
};

void Fallocation::Touch() {
  inode_->fields.mtime = inode_->fields.ctime = fs_->Now();
  if (!caller_.privileged()) DropPrivileges(&inode_->fields);
}

Error Fallocation::FillHole(const Mapping& hole, FileBlock limit) {
  inode_->mutex.AssertHeld();
  const FileBlock first = hole.logical;
  const BlockCount want =
      std::min<BlockCount>({hole.length, limit - first, format::kMaxExtentLength});
  BlockNumber goal = fs_->blocks->GoalForGroup(fs_->geometry.GroupOfInode(inode_->ino));
  if (first > 0) {
    ASSIGN_OR_RETURN(const Mapping before, tree_.Lookup(attempt_, first - 1));
    if (before.physical != kNoBlock) goal = before.physical + 1;
  }
  RETURN_IF_ERROR(tree_.PrepareInsert(attempt_, first));
  const BlockCount metadata = tree_.InsertBlocks();
  const bool privileged = caller_.privileged();
  ASSIGN_OR_RETURN(BlockReservation tree_blocks,
                   ReserveBlocks(fs_, attempt_, goal, metadata, metadata, privileged));
  ASSIGN_OR_RETURN(BlockReservation blocks,
                   ReserveBlocks(fs_, attempt_, goal, want, /*at_least=*/1, privileged));
  ASSIGN_OR_RETURN(Handle handle,
                   fs_->journal->TryStart(attempt_, OpType::kMapBlocks,
                                          kInodeRecordCredits + BlockAllocator::kCreditsPerRun +
                                              tree_.InsertCredits()));
  const BlockRun run = fs_->blocks->Allocate(handle, blocks, goal, blocks.left());
  tree_.Insert(handle, tree_blocks, first, run, /*unwritten=*/true);
  Touch();
  inode_->WriteBack(handle, /*data_reachability=*/true);
  return Error::kOk;
}

Error Fallocation::FillHoles() {
  const FileBlock limit = BlocksForBytes(end_);
  for (FileBlock at = PageOf(offset_); at < limit;) {
    ASSIGN_OR_RETURN(const Mapping mapping, tree_.Lookup(attempt_, at));
    if (mapping.physical != kNoBlock) {
      at += mapping.length;
      continue;
    }
    RETURN_IF_ERROR(FillHole(mapping, limit));
  }
  return Error::kOk;
}

Error Fallocation::ChangeStep(FileBlock first, FileBlock end, Change change) {
  inode_->mutex.AssertHeld();
  ASSIGN_OR_RETURN(const ExtentTree::ChangePlan plan,
                   tree_.PrepareChange(attempt_, first, end, change));
  ASSIGN_OR_RETURN(BlockReservation tree_blocks,
                   ReserveBlocks(fs_, attempt_, plan.physical, plan.tree_blocks, plan.tree_blocks,
                                 /*privileged=*/true));
  ASSIGN_OR_RETURN(
      Handle handle,
      fs_->journal->TryStart(attempt_,
                             change == Change::kHole ? OpType::kTruncate : OpType::kExtentConvert,
                             kInodeRecordCredits + plan.credits, plan.revokes));
  RETURN_IF_ERROR(DropPages(fs_, attempt_, handle, inode_, plan.first, plan.end));
  const Error error = tree_.ApplyChange(handle, tree_blocks, plan);
  Touch();
  inode_->WriteBack(handle, /*data_reachability=*/true);
  return error;
}

Error Fallocation::ChangeWhole(Change change) {
  const FileBlock end = EndOfWhole();
  if (FirstWhole() >= end) return Error::kOk;
  RETURN_IF_ERROR(Quiesce(attempt_, inode_, FirstWhole(), end, &range_));
  for (FileBlock at = FirstWhole(); at < end;) {
    ASSIGN_OR_RETURN(const Mapping mapping, tree_.Lookup(attempt_, at));
    const FileBlock next = std::min(end, at + mapping.length);
    const bool done =
        mapping.physical == kNoBlock || (change == Change::kUnwritten && mapping.unwritten);
    if (!done) RETURN_IF_ERROR(ChangeStep(at, next, change));
    at = next;
  }
  return Error::kOk;
}

Error Fallocation::ZeroPart(FileBlock page, uint32_t from, uint32_t to) {
  Mapping mapping;
  RETURN_IF_ERROR(EnsurePage(fs_, attempt_, inode_, page, &mapping));
  inode_->pages.Zero(page, from, to);
  return Error::kOk;
}

Error Fallocation::ZeroEdges() {
  const FileBlock first = PageOf(offset_);
  const FileBlock last = PageOf(end_);
  if (first == last) return ZeroPart(first, OffsetInPage(offset_), OffsetInPage(end_));
  if (OffsetInPage(offset_) != 0) {
    RETURN_IF_ERROR(ZeroPart(first, OffsetInPage(offset_), kBlockSize));
  }
  return OffsetInPage(end_) != 0 ? ZeroPart(last, 0, OffsetInPage(end_)) : Error::kOk;
}

Error Fallocation::FinishFields(bool keep_size) {
  inode_->mutex.AssertHeld();
  const bool grows = !keep_size && end_ > inode_->fields.size;
  if (grows) RETURN_IF_ERROR(ZeroTail(fs_, attempt_, inode_));
  ASSIGN_OR_RETURN(Handle handle,
                   fs_->journal->TryStart(attempt_, OpType::kInode, kInodeRecordCredits));
  if (grows) inode_->fields.size = end_;
  Touch();
  inode_->WriteBack(handle, grows);
  // The zeroed tail reaches the device before the size does.
  if (grows) JoinOrdered(handle, inode_);
  const bool sync = fs_->options.sync || (inode_->fields.flags & format::kInodeSync) != 0;
  if (sync) {
    attempt_.BeforeReply([fs = fs_, inode = inode_, tid = handle.tid()] {
      inode->pages.StartWriteout(0, kEndOfFileBlocks, IoKind::kSyncWrite, /*flow=*/0, inode);
      RETURN_IF_ERROR(inode->pages.WaitWritten(0, kEndOfFileBlocks));
      return fs->journal->Commit(tid, CommitReason::kSync);
    });
  }
  return Error::kOk;
}

Error Fallocation::Allocate(bool keep_size) {
  RETURN_IF_ERROR(FillHoles());
  return FinishFields(keep_size);
}

Error Fallocation::PunchHole() {
  const uint64_t size = inode_->fields.size;
  if (offset_ >= size) return Error::kOk;
  // Blocks behind the one with the end of the file stay: they were asked for beyond it.
  end_ = std::min(end_, BlocksForBytes(size) * kBlockSize);
  RETURN_IF_ERROR(ZeroEdges());
  RETURN_IF_ERROR(ChangeWhole(Change::kHole));
  return FinishFields(/*keep_size=*/true);
}

Error Fallocation::ZeroRange(bool keep_size) {
  RETURN_IF_ERROR(ZeroEdges());
  RETURN_IF_ERROR(ChangeWhole(Change::kUnwritten));
  RETURN_IF_ERROR(FillHoles());
  return FinishFields(keep_size);
}

Error CheckMode(uint32_t mode) {
  switch (mode) {
    case 0:
    case kFallocateKeepSize:
    case kFallocatePunchHole | kFallocateKeepSize:
    case kFallocateZeroRange:
    case kFallocateZeroRange | kFallocateKeepSize:
      return Error::kOk;
    default:
      return Error::kNotSupported;
  }
}

}  // namespace

Error Filesystem::Fallocate(Attempt& attempt, const Caller& caller, const InodeRef& inode,
                            uint32_t mode, uint64_t offset, uint64_t length) {
  Impl* fs = impl_.get();
  ASSIGN_OR_RETURN(const FreezeGate::Pass pass, fs->BeginChange(attempt));
  if (inode->is_directory()) return Error::kIsDirectory;
  if (!inode->is_regular()) return Error::kNoDevice;
  RETURN_IF_ERROR(CheckMode(mode));
  if (length == 0) return Error::kInvalid;
  if (offset > format::kMaxFileSize || length > format::kMaxFileSize - offset) {
    return Error::kFileTooLarge;
  }
  RETURN_IF_ERROR(fs->budget->Admit(attempt));
  MutexLock lock(&inode->mutex);
  const bool plain = (mode & ~kFallocateKeepSize) == 0;
  const uint32_t forbidden = format::kInodeImmutable | (plain ? uint32_t{0} : format::kInodeAppend);
  if ((inode->fields.flags & forbidden) != 0) return Error::kNotPermitted;
  RETURN_IF_ERROR(ContinueTruncate(fs, attempt, inode));
  Fallocation fallocation(fs, attempt, caller, inode, offset, offset + length);
  const bool keep_size = (mode & kFallocateKeepSize) != 0;
  Error error;
  if ((mode & kFallocatePunchHole) != 0) {
    error = fallocation.PunchHole();
  } else if ((mode & kFallocateZeroRange) != 0) {
    error = fallocation.ZeroRange(keep_size);
  } else {
    error = fallocation.Allocate(keep_size);
  }
  return RetryNoSpace(fs, attempt, error);
}

}  // namespace sluice
