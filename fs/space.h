// SPDX-License-Identifier: Apache-2.0
//
// "No space" asked twice: deletions go on in the background, and what they free can be handed out
// only when their transaction is durable. An operation that finds no space waits for both once
// before it says so.
#ifndef SLUICE_FS_SPACE_H_
#define SLUICE_FS_SPACE_H_

#include "alloc/block_allocator.h"
#include "alloc/inode_allocator.h"
#include "base/error.h"
#include "block/attempt.h"
#include "fs/filesystem_impl.h"
#include "fs/orphan_file.h"

namespace sluice {

// Takes kNoSpace to kWouldBlock the first time, if waiting may help; other errors pass.
Error RetryNoSpace(Filesystem::Impl* fs, Attempt& attempt, Error error);

// BlockAllocator::Reserve, InodeAllocator::Prepare and OrphanFile::Prepare with that. An empty
// reservation for `count` 0.
Result<BlockReservation> ReserveOrWait(Filesystem::Impl* fs, Attempt& attempt, BlockNumber goal,
                                       BlockCount count, bool privileged);
Result<InodeReservation> ReserveInode(Filesystem::Impl* fs, Attempt& attempt, InodeNumber parent,
                                      bool directory);
// Orphan slots that deletions hold are waited for as often as need be.
Result<OrphanFile::Claim> ClaimOrphan(Filesystem::Impl* fs, Attempt& attempt);

}  // namespace sluice

#endif  // SLUICE_FS_SPACE_H_
