// SPDX-License-Identifier: Apache-2.0
//
// The group descriptors in memory: counts, lazy-initialisation marks and bitmap checksums of every
// group, read whole at mount (8 MiB for 16 TiB). The allocators change them under a handle.
//
// A bitmap's checksum is put into its descriptor by the change itself, not when the copies are
// sealed: so a descriptor always tells the checksum of the bitmap of its own transaction, whichever
// of commit and checkpoint writes which copy first.
#ifndef SLUICE_ALLOC_GROUP_TABLE_H_
#define SLUICE_ALLOC_GROUP_TABLE_H_

#include <functional>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "base/units.h"
#include "block/buffer_cache.h"
#include "format/geometry.h"
#include "format/group_desc.h"
#include "journal/journal.h"

namespace sluice {

// Totals over all groups; each a snapshot of its own.
struct SpaceTotals {
  BlockCount free_blocks = 0;     // allocatable now or after the running commit
  BlockCount pending_blocks = 0;  // freed, but not allocatable before a commit
  uint64_t free_inodes = 0;
  uint64_t directories = 0;
};

// Thread-safe. Implements the filesystem's BlockSealer for every kind of block.
class GroupTable : public BlockSealer {
 public:
  ~GroupTable() override;

  // Reads and verifies all group table blocks (their buffers stay pinned). kCorrupt on a bad
  // checksum or impossible counts. May wait.
  static Result<std::unique_ptr<GroupTable>> Load(BufferCache* cache,
                                                  const format::Geometry& geometry);

  // Called by commit and checkpoint on the copy to be written: inode table blocks: each inode is
  // sealed; bitmaps: nothing to do; others: SealBlock.
  void Seal(BlockNumber block, format::BlockKind kind, format::BlockSpan copy) override;

  SpaceTotals totals() const;
  const format::Geometry& geometry() const { return geometry_; }

  // The descriptor of a group (a copy), as of the last Update.
  format::GroupDesc Get(GroupNumber group) const;

  // Changes a descriptor under a handle: `edit` is called with the descriptor in the table block,
  // which has joined the transaction (one credit the first time). Never waits. Totals follow.
  void Update(Handle& handle, GroupNumber group,
              const std::function<void(format::GroupDesc&)>& edit);

  uint64_t BitmapChecksum(format::ConstBlockSpan bitmap) const;

  // Moves the count of pending blocks; the block allocator's.
  void AddPending(int64_t blocks);

 private:
  struct State;

  GroupTable(BufferCache* cache, const format::Geometry& geometry);
  Error ReadBlock(GroupNumber first);

  BufferCache* const cache_;
  const format::Geometry geometry_;
  std::vector<BufferRef> blocks_;  // constant after Load
  const std::unique_ptr<State> state_;
};

}  // namespace sluice

#endif  // SLUICE_ALLOC_GROUP_TABLE_H_
