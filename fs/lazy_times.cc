// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "fs/file_data.h"
#include "fs/filesystem_impl.h"
#include "fs/inode_cache.h"

namespace sluice {

Error WriteLazyFields(Filesystem::Impl* fs, Attempt& attempt, const InodeRef& inode) {
  MutexLock lock(&inode->mutex);
  // A deleted inode's record belongs to nobody any more.
  if (!inode->lazy_dirty || inode->fields.mode == 0) return Error::kOk;
  ASSIGN_OR_RETURN(Handle handle,
                   fs->journal->TryStart(attempt, OpType::kInode, kInodeRecordCredits));
  inode->WriteBack(handle, /*data_reachability=*/false);
  inode->lazy_dirty = false;
  return Error::kOk;
}

Error WriteAllLazyFields(Filesystem::Impl* fs) {
  const std::vector<InodeRef> lazy = fs->inodes->Collect([](Inode& inode) {
    ReaderMutexLock lock(&inode.mutex);
    return inode.lazy_dirty;
  });
  Error result = Error::kOk;
  for (const InodeRef& inode : lazy) {
    const Error error =
        RunBlocking([&](Attempt& attempt) { return WriteLazyFields(fs, attempt, inode); });
    if (error != Error::kOk) result = error;
  }
  return result;
}

}  // namespace sluice
