// SPDX-License-Identifier: Apache-2.0
#include "fs/file_data.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

// Reads one block of the file for EnsurePage; runs with no lock held. If the file changes meanwhile
// the page is not put in, and the next attempt asks again.
Error ReadPage(Filesystem::Impl* fs, const InodeRef& inode, FileBlock index, BlockNumber block,
               uint64_t version) {
  SLUICE_CHECK(!Journal::ThreadHasHandle());
  PageMemory memory = fs->budget->NewPage();
  RETURN_IF_ERROR(fs->device->Read(block * kBlockSize, memory->span()));
  inode->pages.InsertClean(index, block, std::move(memory), version);
  return Error::kOk;
}

// Writes the dirty pages of the range for SettleOrdered; if that fails they stay dirty, and what is
// waited for is the end of the transaction that wants them.
Error WriteRange(Filesystem::Impl* fs, const InodeRef& inode, FileBlock first, FileBlock end) {
  SLUICE_CHECK(!Journal::ThreadHasHandle());
  const Tid running = fs->journal->running_tid();
  inode->pages.StartWriteout(first, end, IoKind::kSyncWrite, /*flow=*/0, inode);
  if (inode->pages.WaitWritten(first, end) == Error::kOk) return Error::kOk;
  return fs->journal->Commit(running - 1, CommitReason::kRestart);
}

}  // namespace

ExtentTree TreeOf(Filesystem::Impl* fs, const InodeRef& inode) {
  return ExtentTree(inode.get(), fs->cache.get(), fs->blocks.get());
}

Error EnsurePage(Filesystem::Impl* fs, Attempt& attempt, const InodeRef& inode, FileBlock index,
                 Mapping* mapping) {
  ASSIGN_OR_RETURN(*mapping, TreeOf(fs, inode).Lookup(attempt, index));
  if (mapping->physical == kNoBlock || mapping->unwritten) return Error::kOk;
  if (inode->pages.Contains(index)) return Error::kOk;
  const uint64_t version = inode->pages.version();
  return attempt.Block([fs, inode, index, block = mapping->physical, version] {
    return ReadPage(fs, inode, index, block, version);
  });
}

Error ZeroTail(Filesystem::Impl* fs, Attempt& attempt, const InodeRef& inode) {
  const uint64_t size = inode->fields.size;
  if (OffsetInPage(size) == 0) return Error::kOk;
  Mapping mapping;
  RETURN_IF_ERROR(EnsurePage(fs, attempt, inode, PageOf(size), &mapping));
  inode->pages.Zero(PageOf(size), OffsetInPage(size), kBlockSize);
  return Error::kOk;
}

Result<BlockReservation> ReserveBlocks(Filesystem::Impl* fs, Attempt& attempt, BlockNumber goal,
                                       BlockCount count, BlockCount at_least, bool privileged) {
  if (count == 0) return BlockReservation();
  for (;;) {
    auto reservation = fs->blocks->Reserve(attempt, goal, count, privileged);
    if (reservation.error() != Error::kNoSpace) return reservation;
    if (fs->blocks->HasPending()) {
      return attempt.Block([fs] { return fs->journal->CommitAll(CommitReason::kNoSpace); });
    }
    if (count <= at_least) return Error::kNoSpace;
    count = std::max(at_least, count / 2);
  }
}

void JoinOrdered(Handle& handle, const InodeRef& inode) {
  handle.AddOrdered(inode);
  inode->ordered_tid.store(handle.tid(), std::memory_order_release);
}

namespace {

// kWouldBlock if a transaction older than the handle's is not durable yet and may wait for dirty
// pages of the range as its ordered data.
Error SettleOrdered(Filesystem::Impl* fs, Attempt& attempt, const Handle& handle,
                    const InodeRef& inode, FileBlock first, FileBlock end) {
  const Tid before = handle.tid() - 1;
  if (before == 0 || fs->journal->IsCommitted(before)) return Error::kOk;
  if (!inode->pages.AnyDirty(first, end)) return Error::kOk;
  return attempt.Block([fs, inode, first, end] { return WriteRange(fs, inode, first, end); });
}

Error BlockOnWriteback(Attempt& attempt, const InodeRef& inode, FileBlock first, FileBlock end) {
  return attempt.Block([inode, first, end] {
    // A page that could not be written is about to be dropped: its error is the fsync's affair.
    IgnoreError(inode->pages.WaitWritten(first, end));
    return Error::kOk;
  });
}

}  // namespace

Error Quiesce(Attempt& attempt, const InodeRef& inode, FileBlock first, FileBlock end,
              RangeLock::Token* range) {
  ASSIGN_OR_RETURN(*range,
                   inode->range_lock.TryAcquire(attempt, first * kBlockSize, end * kBlockSize,
                                                RangeLock::Mode::kExclusive));
  if (!inode->pages.AnyUnderWriteback(first, end)) return Error::kOk;
  return BlockOnWriteback(attempt, inode, first, end);
}

Error DropPages(Filesystem::Impl* fs, Attempt& attempt, const Handle& handle, const InodeRef& inode,
                FileBlock first, FileBlock end) {
  RETURN_IF_ERROR(SettleOrdered(fs, attempt, handle, inode, first, end));
  if (inode->pages.TryDrop(first, end)) return Error::kOk;
  return BlockOnWriteback(attempt, inode, first, end);
}

void DropAllPages(Filesystem::Impl* fs, const InodeRef& inode) {
  // What cannot be written, or a journal that has failed, ends with the file.
  if (!fs->journal->IsCommitted(fs->journal->running_tid() - 1) && inode->pages.dirty_pages() > 0) {
    IgnoreError(WriteRange(fs, inode, 0, kEndOfFileBlocks));
  }
  do {
    IgnoreError(inode->pages.WaitWritten(0, kEndOfFileBlocks));
  } while (!inode->pages.TryDrop(0, kEndOfFileBlocks));
}

void JoinOrderedData(Filesystem::Impl* fs, Handle& handle, const InodeRef& inode) {
  if (fs->options.data == DataMode::kOrdered) JoinOrdered(handle, inode);
}

void DropPrivileges(InodeFields* fields) {
  uint16_t drop = S_ISUID;
  if ((fields->mode & S_IXGRP) != 0) drop |= S_ISGID;
  fields->mode = static_cast<uint16_t>(fields->mode & ~drop);
}

}  // namespace sluice
