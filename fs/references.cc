// SPDX-License-Identifier: Apache-2.0
//
// Who refers to an inode: the kernel's lookups and open descriptors. The last reference to an inode
// without links hands it to the reaper.
#include <algorithm>
#include <utility>

#include "fs/filesystem.h"
#include "fs/filesystem_impl.h"
#include "fs/inode_cache.h"

namespace sluice {

void Filesystem::AddLookup(const InodeRef& inode, uint64_t count) {
  inode->lookups.fetch_add(count, std::memory_order_relaxed);
}

void Filesystem::Forget(InodeNumber ino, uint64_t count) {
  const InodeRef inode = impl_->inodes->Find(ino);
  if (inode == nullptr) return;
  // The kernel's count is input, not ours: more than it has learnt of counts as all.
  uint64_t had = inode->lookups.load(std::memory_order_relaxed);
  while (!inode->lookups.compare_exchange_weak(had, had - std::min(had, count),
                                               std::memory_order_acq_rel)) {
  }
  if (had != 0 && had <= count) impl_->inodes->Unreferenced(inode);
}

Result<std::unique_ptr<OpenFile>> Filesystem::Open(const InodeRef& inode, bool writable, bool) {
  RETURN_IF_ERROR(impl_->CheckAlive());
  if (writable) {
    if (inode->is_directory()) return Error::kIsDirectory;
    ReaderMutexLock lock(&inode->mutex);
    if ((inode->fields.flags & format::kInodeImmutable) != 0) return Error::kNotPermitted;
    if (inode->is_regular()) RETURN_IF_ERROR(impl_->CheckWritable());
  }
  auto file = std::make_unique<OpenFile>();
  file->inode = inode;
  file->error_sequence = inode->pages.error_sequence();
  file->writable = writable;
  inode->opens.fetch_add(1, std::memory_order_relaxed);
  return file;
}

void Filesystem::Release(std::unique_ptr<OpenFile> file) {
  const InodeRef inode = std::move(file->inode);
  file.reset();
  if (inode->opens.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    impl_->inodes->Unreferenced(inode);
  }
}

}  // namespace sluice
