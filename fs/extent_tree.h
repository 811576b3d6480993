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

#include <array>
#include <cstddef>

#include "absl/container/inlined_vector.h"
#include "alloc/block_allocator.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/units.h"
#include "block/attempt.h"
#include "block/buffer_cache.h"
#include "format/extent.h"
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

// The parts of an inode that its extent tree works on.
struct ExtentOwner {
  InodeNumber ino = 0;
  uint32_t generation = 0;
  bool metadata = false;       // its data blocks are metadata of ours: directories, long symlinks
  std::byte* root = nullptr;   // kExtentRootSize bytes, an initialised node
  uint64_t* blocks = nullptr;  // allocated blocks, data and nodes
  Mutex* mutex = nullptr;      // guards `root` and `blocks` and the nodes
};

// Copyable; all copies work on the same tree.
class ExtentTree {
 public:
  // `inode` outlives this. `cache` reads index and leaf blocks (identity: kExtent, ino,
  // generation).
  ExtentTree(Inode* inode, BufferCache* cache, BlockAllocator* allocator)
      : ExtentTree({.ino = inode->ino,
                    .generation = inode->fields.generation,
                    .metadata = !inode->is_regular(),
                    .root = inode->root.data(),
                    .blocks = &inode->fields.blocks,
                    .mutex = &inode->extent_mutex},
                   cache, allocator) {}
  ExtentTree(const ExtentOwner& owner, BufferCache* cache, BlockAllocator* allocator);

  // What lies at `block`, from there on: `logical` is `block`. A long hole may be told in pieces.
  // kCorrupt if a node fails its checks. kFileTooLarge: beyond the maximum file block.
  Result<Mapping> Lookup(Attempt& attempt, FileBlock block) const;

  // Credits and new metadata blocks that inserting one extent may need in the worst case
  // (splits at each level and a new root), from the tree's present depth.
  int InsertCredits() const;
  BlockCount InsertBlocks() const;

  // Reads and pins the path to `block`. kCorrupt if a node fails its checks.
  Error PrepareInsert(Attempt& attempt, FileBlock block) const;
  // Adds [logical, logical + run.length) -> run, at most kMaxExtentLength; merges with neighbours
  // of the same kind that are contiguous. The range must be a hole (within one Mapping of Lookup)
  // and PrepareInsert(logical) have succeeded since the inode's mutex was taken. Takes metadata
  // blocks from `reservation` (it must hold InsertBlocks()). Updates fields.blocks (data and
  // metadata); the caller calls Inode::WriteBack.
  void Insert(Handle& handle, BlockReservation& reservation, FileBlock logical, BlockRun run,
              bool unwritten);

  // A change in the middle of the tree: a part of one extent becomes written, unwritten, or a hole.
  enum class Change : uint8_t { kWritten, kUnwritten, kHole };
  struct ChangePlan {
    FileBlock first = 0;
    FileBlock end = 0;  // within the extent that `first` lies in
    Change change = Change::kHole;
    BlockNumber physical = 0;  // of `first`
    int credits = 0;
    int revokes = 0;
    BlockCount tree_blocks = 0;  // that a reservation for ApplyChange must hold
    BlockCount length() const { return end - first; }
  };
  // Reads and pins what changing [first, end) needs, as far as the extent at `first` reaches (the
  // plan says how far that is). Precondition: `first` is no hole. kCorrupt if a node fails its
  // checks or a block to free is free already.
  Result<ChangePlan> PrepareChange(Attempt& attempt, FileBlock first, FileBlock end,
                                   Change change) const;
  // Makes the change, under a handle with the plan's credits and revokes, the inode's mutex held
  // since the plan was made. The blocks of a new hole are freed, and nodes that become empty too.
  // Neighbours that fit together are joined. Keeps fields.blocks; the caller calls
  // Inode::WriteBack. An error (kCorrupt: a block was free already) is told when all is done.
  Error ApplyChange(Handle& handle, BlockReservation& reservation, const ChangePlan& plan);

  // Removes from the end of the tree down to `from`, as much as `max_credits` allow: prepares
  // (reads nodes, bitmaps: PrepareFree) the last part that fits into one handle, and says what it
  // will free. `plan` is empty when nothing at or after `from` is left. max_credits should be at
  // least kMinRemoveCredits: the last extent with its nodes is planned in any case.
  static constexpr int kMinRemoveCredits = 3 * format::kMaxExtentDepth + 4;
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
  // fields.blocks. `revoke_data`: the data blocks are metadata of ours (directories): revoke them;
  // only for an inode that is not a regular file, since the plan counts the revokes of those. An
  // error (kCorrupt: a block was free already) is told when all has been removed that could be.
  Error Remove(Handle& handle, const RemovePlan& plan, bool revoke_data);

 private:
  // A node of the tree: the root or a block.
  struct Node {
    BufferRef buffer;                  // null: the root
    const std::byte* bytes = nullptr;  // from the ExtentHeader on
    FileBlock first = 0;               // its range
    FileBlock end = 0;

    uint32_t entries() const { return format::ExtentHeaderOf(bytes)->entries; }
    uint32_t capacity() const { return format::ExtentHeaderOf(bytes)->capacity; }
    uint32_t depth() const { return format::ExtentHeaderOf(bytes)->depth; }
    const format::Extent& extent(uint32_t i) const { return format::ExtentsOf(bytes)[i]; }
    const format::ExtentIndex& index(uint32_t i) const { return format::ExtentIndexesOf(bytes)[i]; }
    FileBlock ChildEnd(uint32_t i) const {
      return i + 1 < entries() ? FileBlock{index(i + 1).logical} : end;
    }
  };
  // A node on the way to a block, and the child that was taken (not in a leaf).
  struct Step {
    Node node;
    uint32_t index = 0;
  };
  using Path = absl::InlinedVector<Step, 3>;
  using Entry = std::array<std::byte, sizeof(format::Extent)>;  // an Extent or an ExtentIndex
  struct Budget;

  format::BlockIdentity NodeIdentity() const {
    return {
        .kind = format::BlockKind::kExtent, .owner = owner_.ino, .generation = owner_.generation};
  }
  uint32_t depth() const { return format::ExtentHeaderOf(owner_.root)->depth; }
  Result<Node> Root() const;
  Result<Node> Child(Attempt& attempt, const Node& parent, uint32_t i) const;
  Error Descend(Attempt& attempt, FileBlock block, Path* path) const;

  // Calls `change` with the node's bytes, from the ExtentHeader on.
  template <typename Change>
  void EditNode(Handle& handle, const Node& node, Change change) {
    if (!node.buffer) {
      change(owner_.root);
      return;
    }
    BlockEdit edit = handle.Edit(node.buffer);
    change(edit.data() + format::kExtentNodeOffset);
  }
  Node NewNode(Handle& handle, BlockReservation& reservation, uint32_t depth, BlockNumber goal);
  void LowerKeys(Handle& handle, const Path& path, FileBlock block);
  bool Merge(Handle& handle, const Node& leaf, uint32_t position, const format::Extent& extent);
  void InsertEntry(Handle& handle, BlockReservation& reservation, Path* path, size_t level,
                   uint32_t position, const Entry& entry);
  void GrowRoot(Handle& handle, BlockReservation& reservation, Path* path);
  void Split(Handle& handle, BlockReservation& reservation, Path* path, size_t level,
             uint32_t position, const Entry& entry);

  // True: all at and after `from` in the node is planned; false: the budget is used up.
  Result<bool> PlanNode(Attempt& attempt, const Node& node, FileBlock from, Budget* budget) const;
  Result<bool> PlanLeaf(Attempt& attempt, const Node& leaf, FileBlock from, Budget* budget) const;
  // True: nothing is left in the node.
  bool RemoveIn(Handle& handle, const Node& node, FileBlock from, Error* error);
  bool RemoveInLeaf(Handle& handle, const Node& leaf, FileBlock from, Error* error);
  void Release(Handle& handle, BlockRun run, Error* error);

  // Puts the extent in, where a hole is; merged with its neighbours if it can be.
  void InsertExtent(Handle& handle, BlockReservation& reservation, const format::Extent& extent);
  // Frees the empty leaf at the end of the path, and what becomes empty above it.
  void RemoveLeaf(Handle& handle, const Path& path, Error* error);

  ExtentOwner owner_;
  BufferCache* cache_;
  BlockAllocator* allocator_;
};

}  // namespace sluice

#endif  // SLUICE_FS_EXTENT_TREE_H_
