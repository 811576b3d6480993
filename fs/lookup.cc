// SPDX-License-Identifier: Apache-2.0
//
// Finding inodes: by name, by number, and whole directories.
#include <dirent.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "format/directory.h"
#include "fs/atime.h"
#include "fs/directory.h"
#include "fs/filesystem.h"
#include "fs/filesystem_impl.h"
#include "fs/inode_cache.h"
#include "fs/namespace.h"

namespace sluice {
namespace {

// A directory's ".." : the inode that it says, which must be a directory.
Result<InodeRef> ParentOf(Filesystem::Impl* fs, Attempt& attempt, const InodeRef& directory,
                          InodeNumber parent) {
  Result<InodeRef> found = fs->inodes->Get(attempt, parent);
  if (found.ok() && (*found)->is_directory()) return found;
  if (!found.ok() && found.error() != Error::kStale) return found.error();
  fs->self->ReportCorruption(directory->ino, 0, "the parent is not a directory");
  return Error::kCorrupt;
}

// Tells "." and ".."; false if the sink wants no more.
bool TellDots(const DirSink& sink, InodeNumber self, InodeNumber parent, uint64_t cookie) {
  if (cookie < format::kCookieDot && !sink(".", self, DT_DIR, format::kCookieDot)) return false;
  return cookie >= format::kCookieDotDot || sink("..", parent, DT_DIR, format::kCookieDotDot);
}

}  // namespace

Result<InodeRef> Filesystem::Lookup(Attempt& attempt, const InodeRef& parent,
                                    std::string_view name) {
  Impl* fs = impl_.get();
  if (!parent->is_directory()) return Error::kNotDirectory;
  RETURN_IF_ERROR(CheckName(name));
  if (name == ".") return parent;
  ReaderMutexLock lock(&parent->mutex);
  if (name == "..") return ParentOf(fs, attempt, parent, parent->fields.parent);
  ASSIGN_OR_RETURN(const DirectoryEntry entry, Directory(fs, parent.get()).Lookup(attempt, name));
  return ChildOf(fs, attempt, parent, entry);
}

Result<InodeRef> Filesystem::GetInode(Attempt& attempt, InodeNumber ino,
                                      std::optional<uint32_t> generation) {
  if (ino != format::kRootInode && ino < format::kFirstUserInode) return Error::kStale;
  ASSIGN_OR_RETURN(InodeRef inode, impl_->inodes->Get(attempt, ino));
  if (generation.has_value() && inode->fields.generation != *generation) return Error::kStale;
  return inode;
}

Error Filesystem::Readdir(Attempt& attempt, const InodeRef& directory, uint64_t cookie,
                          const DirSink& sink) {
  Impl* fs = impl_.get();
  if (!directory->is_directory()) return Error::kNotDirectory;
  if (cookie < format::kCookieDotDot) {
    InodeNumber parent = 0;
    bool touch = false;
    {
      ReaderMutexLock lock(&directory->mutex);
      parent = directory->fields.parent;
      touch = AtimeIsDue(fs->options, *directory, fs->Now());
    }
    if (touch && !read_only()) TouchAtime(fs, directory);
    if (!TellDots(sink, directory->ino, parent, cookie)) return Error::kOk;
    cookie = format::kCookieDotDot;
  }
  DirectoryListing listing;
  bool told = false;
  for (uint64_t from = std::max(cookie + 1, format::kMinDirKey); from < format::kEndDirKey;
       from = listing.next) {
    {
      ReaderMutexLock lock(&directory->mutex);
      const Error error = Directory(fs, directory.get()).ReadLeaf(attempt, from, &listing);
      // Names have been told already, so that the operation cannot be run again from its start.
      // The caller comes back with the last cookie.
      if (error != Error::kOk) return told ? Error::kOk : error;
    }
    for (const DirectoryListing::Name& name : listing.names) {
      if (!sink(listing.NameOf(name), name.ino, name.type, name.key)) return Error::kOk;
      told = true;
    }
  }
  return Error::kOk;
}

}  // namespace sluice
