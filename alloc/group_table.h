// SPDX-License-Identifier: Apache-2.0
//
// The group descriptors in memory: counts, lazy-initialisation marks and bitmap checksums of every
// group, read whole at mount (8 MiB for 16 TiB). The allocators change them under a handle; the
// bitmap checksums follow at commit, when the sealer sees the copies that are written.
#ifndef SLUICE_ALLOC_GROUP_TABLE_H_
#define SLUICE_ALLOC_GROUP_TABLE_H_

#include <atomic>
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
  // Reads and verifies all group table blocks (their buffers stay pinned). kCorrupt on a bad
  // checksum or impossible counts. May wait.
  static Result<std::unique_ptr<GroupTable>> Load(BufferCache* cache,
                                                  const format::Geometry& geometry);

  // Called by commit (in ascending BlockKind) and checkpoint on the copy to be written: bitmaps:
  // their checksum is noted for the group; group table blocks: those checksums are filled in, then
  // the block is sealed; inode table blocks: each inode is sealed; others: SealBlock.
  void Seal(BlockNumber block, format::BlockKind kind, format::BlockSpan copy) override;

  SpaceTotals totals() const;
  const format::Geometry& geometry() const { return geometry_; }

  // The descriptor of a group (a copy) with the checksums of the last committed bitmaps.
  format::GroupDesc Get(GroupNumber group) const;

  // Changes a descriptor under a handle: `edit` is called with the descriptor in the table block,
  // which has joined the transaction (one credit the first time). Never waits. Totals follow.
  void Update(Handle& handle, GroupNumber group,
              const std::function<void(format::GroupDesc&)>& edit);

 private:
  GroupTable(BufferCache* cache, const format::Geometry& geometry);
  struct Sums;

  BufferCache* const cache_;
  const format::Geometry geometry_;
  std::vector<BufferRef> blocks_;
  std::unique_ptr<Sums> sums_;
};

}  // namespace sluice

#endif  // SLUICE_ALLOC_GROUP_TABLE_H_
