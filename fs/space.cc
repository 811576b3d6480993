// SPDX-License-Identifier: Apache-2.0
#include "fs/space.h"

#include "fs/inode_cache.h"
#include "journal/journal.h"

namespace sluice {

Error RetryNoSpace(Filesystem::Impl* fs, Attempt& attempt, Error error) {
  if (error != Error::kNoSpace || !attempt.TakeSpaceRetry()) return error;
  return attempt.Block([fs] {
    fs->inodes->DrainReaper();
    return fs->journal->CommitAll(CommitReason::kNoSpace);
  });
}

Result<BlockReservation> ReserveOrWait(Filesystem::Impl* fs, Attempt& attempt, BlockNumber goal,
                                       BlockCount count, bool privileged) {
  if (count == 0) return BlockReservation();
  Result<BlockReservation> result = fs->blocks->Reserve(attempt, goal, count, privileged);
  if (result.ok()) return result;
  return RetryNoSpace(fs, attempt, result.error());
}

Result<InodeReservation> ReserveInode(Filesystem::Impl* fs, Attempt& attempt, InodeNumber parent,
                                      bool directory) {
  Result<InodeReservation> result = fs->inode_numbers->Prepare(attempt, parent, directory);
  if (result.ok()) return result;
  return RetryNoSpace(fs, attempt, result.error());
}

Result<OrphanFile::Claim> ClaimOrphan(Filesystem::Impl* fs, Attempt& attempt) {
  Result<OrphanFile::Claim> result = fs->orphans->Prepare();
  if (result.ok() || !fs->inodes->ReaperBusy()) return result;
  return attempt.Block([fs] {
    fs->inodes->WaitReaper();
    return Error::kOk;
  });
}

}  // namespace sluice
