// SPDX-License-Identifier: Apache-2.0
//
// The extent tree of an inode (format/extent.h): lookup, insert, remove. Two phases as everywhere:
// Lookup and the Prepare functions read and pin (no handle; may answer kWouldBlock); Insert and
// Remove work under a handle on what was prepared and never wait.
//
// Locking: callers hold the inode's mutex (exclusively to change) so that what was prepared stays
// true; the functions take extent_mutex themselves.
#ifndef SLUICE_FS_EXTENT_TREE_H_
#define SLUICE_FS_EXTENT_TREE_H_

#include "alloc/block_allocator.h"
#include "base/error.h"
#include "base/units.h"
#include "block/attempt.h"
#include "fs/inode.h"
#include "journal/journal.h"

namespace sluice {

// What a file has at some logical block.
struct Mapping {
  FileBlock logical = 0;
  BlockCount length = 0;     // how far it goes: of the extent, or of the hole (to the maximum
                             // file block if nothing follows)
  BlockNumber physical = 0;  // of `logical`; kNoBlock: a hole
  bool unwritten = false;
};

class ExtentTree {
 public:
  // `inode` outlives this. `cache` reads index and leaf blocks (identity: kExtent, ino,
  // generation).
  ExtentTree(Inode* inode, BufferCache* cache, BlockAllocator* allocator);

  // What lies at `block`, from there on. kCorrupt if a node fails its checks.
  Result<Mapping> Lookup(Attempt& attempt, FileBlock block) const;

  // Credits and new metadata blocks that inserting one extent may need in the worst case
  // (splits at each level and a new root), from the tree's present depth.
  int InsertCredits() const;
  BlockCount InsertBlocks() const;

  // Reads and pins the path to `block`.
  Error PrepareInsert(Attempt& attempt, FileBlock block) const;
  // Adds [logical, logical + run.length) -> run; merges with neighbours of the same kind that are
  // contiguous. The range must be a hole and PrepareInsert(logical) have succeeded since the
  // inode's mutex was taken. Takes metadata blocks from `reservation` (it must hold
  // InsertBlocks()). Updates fields.blocks (data and metadata); the caller calls Inode::WriteBack.
  void Insert(Handle& handle, BlockReservation& reservation, FileBlock logical, BlockRun run,
              bool unwritten);

  // Removes from the end of the tree down to `from`, as much as `max_credits` allow: prepares
  // (reads nodes, bitmaps: PrepareFree) the last part that fits into one handle, and says what it
  // will free. `plan` is empty when nothing at or after `from` is left.
  struct RemovePlan {
    FileBlock from = 0;  // the step removes everything at or after this
    int credits = 0;
    int revokes = 0;
    bool last = false;  // nothing at or after the caller's `from` will be left
    bool empty = false;
  };
  Result<RemovePlan> PrepareRemove(Attempt& attempt, FileBlock from, int max_credits) const;
  // Frees what the plan says, under a handle with plan.credits and plan.revokes. Index and leaf
  // blocks that become empty are freed and revoked; depth shrinks to 0 when nothing is left. Keeps
  // fields.blocks. `revoke_data`: the data blocks are metadata of ours (directories): revoke them.
  Error Remove(Handle& handle, const RemovePlan& plan, bool revoke_data);

 private:
  Inode* const inode_;
  BufferCache* const cache_;
  BlockAllocator* const allocator_;
};

}  // namespace sluice

#endif  // SLUICE_FS_EXTENT_TREE_H_
