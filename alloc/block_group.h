// SPDX-License-Identifier: Apache-2.0
//
// One group's blocks in memory: the on-disk bitmap's buffer (the truth that the journal keeps) and
// the bitmap of what may be handed out (truth less frees whose transaction is not durable).
#ifndef SLUICE_ALLOC_BLOCK_GROUP_H_
#define SLUICE_ALLOC_BLOCK_GROUP_H_

#include <cstdint>
#include <memory>

#include "alloc/word_bitmap.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/units.h"
#include "block/buffer_cache.h"
#include "format/geometry.h"
#include "format/group_desc.h"

namespace sluice {

// Bits of one group.
struct BitRun {
  uint32_t start = 0;
  uint32_t length = 0;
};

// Externally synchronised by `mutex`, but for the Make functions.
class BlockGroup {
 public:
  // From the on-disk bitmap. kCorrupt unless it has the checksum and the free blocks that `desc`
  // tells, and fixed metadata in use.
  static Result<std::unique_ptr<BlockGroup>> Make(const format::Geometry& geometry,
                                                  GroupNumber group, const format::GroupDesc& desc,
                                                  uint64_t seed, BufferRef bitmap);
  // Of a group whose bitmap has never been written.
  static std::unique_ptr<BlockGroup> MakeUninit(const format::Geometry& geometry,
                                                GroupNumber group);

  // A free run of at most `wanted` blocks: the one that begins at bit `goal`, however short; else
  // the first behind it (then from the start of the group) with `wanted` blocks; else the longest.
  // Length 0: nothing is free.
  BitRun Find(uint32_t goal, uint32_t wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Take(BitRun run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Release(BitRun run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  uint32_t free() const ABSL_SHARED_LOCKS_REQUIRED(mutex) { return free_; }
  // No free run is longer.
  uint32_t longest_bound() const ABSL_SHARED_LOCKS_REQUIRED(mutex) { return longest_bound_; }
  bool IsBusy(uint32_t bit) const ABSL_SHARED_LOCKS_REQUIRED(mutex) { return busy_.Test(bit); }

  mutable Mutex mutex;
  BufferRef bitmap ABSL_GUARDED_BY(mutex);  // null: not written yet

 private:
  explicit BlockGroup(uint32_t blocks) : blocks_(blocks) {}
  void Count() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  bool Scan(uint32_t from, uint32_t end, uint32_t wanted, BitRun* best) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  const uint32_t blocks_;
  WordBitmap busy_ ABSL_GUARDED_BY(mutex);
  uint32_t free_ ABSL_GUARDED_BY(mutex) = 0;
  uint32_t longest_bound_ ABSL_GUARDED_BY(mutex) = 0;
};

}  // namespace sluice

#endif  // SLUICE_ALLOC_BLOCK_GROUP_H_
