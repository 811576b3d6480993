// SPDX-License-Identifier: Apache-2.0
//
// The tree of names of one directory (format/directory.h): lookup, insert, remove, iterate. Two
// phases as everywhere: Lookup, PrepareInsert and ReadLeaf read (and may answer kWouldBlock);
// Insert, Remove and Replace change under a handle what was prepared, and never wait or fail.
//
// Locking: the directory's mutex is held, shared to read, exclusively from Lookup or PrepareInsert
// to the change. "." and ".." are the callers' affair.
#ifndef SLUICE_FS_DIRECTORY_H_
#define SLUICE_FS_DIRECTORY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "alloc/block_allocator.h"
#include "base/error.h"
#include "base/units.h"
#include "block/attempt.h"
#include "block/buffer_cache.h"
#include "fs/extent_tree.h"
#include "fs/filesystem_impl.h"
#include "fs/inode.h"
#include "journal/journal.h"

namespace sluice {

// A name that was found.
struct DirectoryEntry {
  uint64_t key = 0;
  InodeNumber ino = 0;
  uint8_t type = 0;  // DT_*
  BufferRef leaf;
};

// What one insertion needs; made by PrepareInsert, spent by Insert.
struct DirectoryInsert {
  struct Node {
    BufferRef buffer;
    FileBlock logical = 0;
    uint32_t position = 0;  // of this node in the one above
  };
  uint64_t key = 0;                   // free in this directory
  absl::InlinedVector<Node, 4> path;  // root first, leaf last; empty: the directory has no block
  int splits = 0;                     // full nodes, from the leaf upwards
  BlockCount new_blocks = 0;          // of the directory
  BlockCount blocks = 0;              // to reserve: those and what their extents may need
  BlockNumber goal = 0;               // where the new blocks should lie
  int credits = 0;                    // all but the directory's inode
};

// Names of one leaf, copied, so that they can be told without a lock.
struct DirectoryListing {
  struct Name {
    uint64_t key;
    InodeNumber ino;
    uint32_t start;  // in `bytes`
    uint8_t length;
    uint8_t type;
  };
  std::vector<Name> names;
  std::string bytes;
  uint64_t next = 0;  // smallest key that the next leaf may hold; kEndDirKey: there is none

  std::string_view NameOf(const Name& name) const {
    return std::string_view(bytes).substr(name.start, name.length);
  }
};

// Cheap to make for one operation. Externally synchronised (see above).
class Directory {
 public:
  // Both outlive it.
  Directory(Filesystem::Impl* fs, Inode* inode);

  // kNotFound; kCorrupt (reported) if a block fails its checks.
  Result<DirectoryEntry> Lookup(Attempt& attempt, std::string_view name) const;

  // Precondition: `name` is not there. kNoSpace: 256 names of this hash, or the largest tree.
  Result<DirectoryInsert> PrepareInsert(Attempt& attempt, std::string_view name) const;
  // `reservation` holds plan.blocks. Between PrepareInsert and this, entries of the directory may
  // have been removed or replaced in the same handle, none inserted. Changes fields.size; entry
  // counts and times are the caller's, who writes the inode back.
  void Insert(Handle& handle, DirectoryInsert& plan, BlockReservation& reservation,
              std::string_view name, InodeNumber ino, uint8_t type);

  // One credit each: the leaf.
  void Remove(Handle& handle, const DirectoryEntry& entry);
  void Replace(Handle& handle, const DirectoryEntry& entry, InodeNumber ino, uint8_t type);

  // Copies the names with keys at or above `from` of the leaf that holds `from`.
  Error ReadLeaf(Attempt& attempt, uint64_t from, DirectoryListing* listing) const;

 private:
  // A node with the range of keys it may hold.
  struct Leaf {
    BufferRef buffer;
    uint64_t end = 0;
  };

  bool empty_tree() const { return inode_->fields.size == 0; }
  Result<BufferRef> ReadNode(Attempt& attempt, FileBlock logical, int level, uint64_t first,
                             uint64_t end) const;
  Result<Leaf> Descend(Attempt& attempt, uint64_t key, DirectoryInsert* plan) const;
  Result<uint64_t> FreeKey(Attempt& attempt, uint64_t first) const;
  Error PlanBlocks(Attempt& attempt, size_t name_length, DirectoryInsert* plan) const;
  DirectoryInsert::Node NewNode(Handle& handle, DirectoryInsert& plan,
                                BlockReservation& reservation);
  void PushRootDown(Handle& handle, DirectoryInsert& plan, BlockReservation& reservation);
  void SplitNode(Handle& handle, DirectoryInsert& plan, BlockReservation& reservation,
                 size_t depth);
  Error Corrupt(BlockNumber block, const char* what) const;

  Filesystem::Impl* const fs_;
  Inode* const inode_;
  ExtentTree tree_;
};

}  // namespace sluice

#endif  // SLUICE_FS_DIRECTORY_H_
