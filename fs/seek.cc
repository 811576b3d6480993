// SPDX-License-Identifier: Apache-2.0
//
// lseek(2) SEEK_DATA and SEEK_HOLE, from the extents: every dirty page is mapped.
#include <algorithm>

#include "fs/file_data.h"
#include "fs/filesystem_impl.h"

namespace sluice {
namespace {

// The first byte at or after `offset` that is data (or, if not `data`, in a hole); the end of the
// file counts as a hole.
Result<uint64_t> Seek(Filesystem::Impl* fs, Attempt& attempt, const InodeRef& inode,
                      uint64_t offset, bool data) {
  if (!inode->is_regular()) return Error::kInvalid;
  ReaderMutexLock lock(&inode->mutex);
  const uint64_t size = inode->fields.size;
  if (offset >= size) return Error::kNoEntryAtOffset;
  const ExtentTree tree = TreeOf(fs, inode);
  for (uint64_t at = offset; at < size;) {
    ASSIGN_OR_RETURN(const Mapping mapping, tree.Lookup(attempt, PageOf(at)));
    const bool is_data = mapping.physical != kNoBlock && !mapping.unwritten;
    if (is_data == data) return at;
    at = (mapping.logical + mapping.length) * kBlockSize;
  }
  if (data) return Error::kNoEntryAtOffset;
  return size;
}

}  // namespace

Result<uint64_t> Filesystem::SeekData(Attempt& attempt, const InodeRef& inode, uint64_t offset) {
  return Seek(impl_.get(), attempt, inode, offset, /*data=*/true);
}

Result<uint64_t> Filesystem::SeekHole(Attempt& attempt, const InodeRef& inode, uint64_t offset) {
  return Seek(impl_.get(), attempt, inode, offset, /*data=*/false);
}

}  // namespace sluice
