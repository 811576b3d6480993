// SPDX-License-Identifier: Apache-2.0
//
// What reading, writing and truncating a regular file share. Private to fs/.
#ifndef SLUICE_FS_FILE_DATA_H_
#define SLUICE_FS_FILE_DATA_H_

#include "base/error.h"
#include "base/units.h"
#include "block/attempt.h"
#include "fs/extent_tree.h"
#include "fs/filesystem_impl.h"
#include "fs/inode.h"

namespace sluice {

inline FileBlock PageOf(uint64_t offset) { return offset >> kBlockShift; }
inline uint32_t OffsetInPage(uint64_t offset) {
  return static_cast<uint32_t>(offset & (kBlockSize - 1));
}
// An inode's record: its inode table block.
inline constexpr int kInodeRecordCredits = 1;
inline constexpr FileBlock kEndOfFileBlocks = format::kMaxFileBlocks;

ExtentTree TreeOf(Filesystem::Impl* fs, const InodeRef& inode);

// Sees to it that page `index` is in memory if the file has written data there: kWouldBlock while
// it is read. `*mapping` gets what the extent tree says; a hole or unwritten block needs no page.
// The inode's mutex is held.
Error EnsurePage(Filesystem::Impl* fs, Attempt& attempt, const InodeRef& inode, FileBlock index,
                 Mapping* mapping);

// The block that holds the end of the file may carry bytes behind it (a write that a crash cut off
// from its size). Before the size grows past it they must be zero: brings the page in and zeroes
// its tail; the size change must be ordered behind it. The inode's mutex is held.
Error ZeroTail(Filesystem::Impl* fs, Attempt& attempt, const InodeRef& inode);

// Claims between `at_least` and `count` blocks. Out of space, it first has freed blocks committed
// (kWouldBlock), then takes less. kNoSpace if not even `at_least` are to be had.
Result<BlockReservation> ReserveBlocks(Filesystem::Impl* fs, Attempt& attempt, BlockNumber goal,
                                       BlockCount count, BlockCount at_least, bool privileged);

// The inode's dirty pages reach the device before the handle's transaction commits. For what must
// not be seen in any mode of data: what a truncate zeroed.
void JoinOrdered(Handle& handle, const InodeRef& inode);
// The same for written data, which data=writeback does without.
void JoinOrderedData(Filesystem::Impl* fs, Handle& handle, const InodeRef& inode);

// Before blocks of [first, end) go or change their kind: takes the range lock exclusively, and
// waits until nothing reads or writes them (J6). The inode's mutex is held.
Error Quiesce(Attempt& attempt, const InodeRef& inode, FileBlock first, FileBlock end,
              RangeLock::Token* range);

// Forgets the pages of [first, end), dirty ones too, under `handle`, whose transaction frees their
// blocks or changes their kind. The range lock is held. kWouldBlock, and nothing done, if one is
// under writeback, or if a transaction older than the handle's is not durable yet and may wait for
// them as its ordered data: if that became durable without them and the handle's did not, the
// blocks would show what was in them before. The caller lets go of the handle and comes again.
Error DropPages(Filesystem::Impl* fs, Attempt& attempt, const Handle& handle, const InodeRef& inode,
                FileBlock first, FileBlock end);

// The same for all pages of an inode that nobody can reach any more; waits itself.
void DropAllPages(Filesystem::Impl* fs, const InodeRef& inode);

// A truncate that had to stop between two handles goes on; kOk at once if there is none. Must be
// done before the file grows again. The inode's mutex is held.
Error ContinueTruncate(Filesystem::Impl* fs, Attempt& attempt, const InodeRef& inode);

// Clears set-user-id, and set-group-id of group-executable files, as write(2) and truncate(2) do.
void DropPrivileges(InodeFields* fields);

}  // namespace sluice

#endif  // SLUICE_FS_FILE_DATA_H_
