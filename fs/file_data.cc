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

void DropPrivileges(InodeFields* fields) {
  uint16_t drop = S_ISUID;
  if ((fields->mode & S_IXGRP) != 0) drop |= S_ISGID;
  fields->mode = static_cast<uint16_t>(fields->mode & ~drop);
}

}  // namespace sluice
