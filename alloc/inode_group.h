// SPDX-License-Identifier: Apache-2.0
//
// One group's inode numbers in memory: the on-disk bitmap's buffer (the truth that the journal
// keeps), and the bitmap of what may be handed out (truth less claims and less frees whose
// transaction is not durable).
#ifndef SLUICE_ALLOC_INODE_GROUP_H_
#define SLUICE_ALLOC_INODE_GROUP_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "alloc/word_bitmap.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/units.h"
#include "block/buffer_cache.h"
#include "format/geometry.h"
#include "format/group_desc.h"

namespace sluice {

// A table block beyond the high-water mark in which numbers are claimed.
struct FreshTableBlock {
  BufferRef buffer;  // null until the first of them is allocated
  uint32_t claims = 0;
};

// Externally synchronised by `mutex`, but for the Make functions.
class InodeGroup {
 public:
  // From the on-disk bitmap. kCorrupt unless it has the checksum and the free inodes that `desc`
  // tells, its padding set, and nothing in use beyond the high-water mark.
  static Result<std::unique_ptr<InodeGroup>> Make(const format::Geometry& geometry,
                                                  const format::GroupDesc& desc, uint64_t seed,
                                                  BufferRef bitmap);
  // Of a group whose bitmap has never been written.
  static std::unique_ptr<InodeGroup> MakeUninit(const format::Geometry& geometry);

  // The lowest available number, now busy; nullopt if there is none.
  std::optional<uint32_t> TakeLowest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Release(uint32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  uint32_t available() const ABSL_SHARED_LOCKS_REQUIRED(mutex) { return available_; }

  mutable Mutex mutex;
  BufferRef bitmap ABSL_GUARDED_BY(mutex);  // null: not written yet
  // By index of the table block within the group's table.
  absl::flat_hash_map<uint32_t, FreshTableBlock> fresh ABSL_GUARDED_BY(mutex);

 private:
  explicit InodeGroup(uint32_t inodes) : inodes_(inodes) {}

  const uint32_t inodes_;
  WordBitmap busy_ ABSL_GUARDED_BY(mutex);
  uint32_t available_ ABSL_GUARDED_BY(mutex) = 0;
  uint32_t lowest_ ABSL_GUARDED_BY(mutex) = 0;  // no lower number is available
};

}  // namespace sluice

#endif  // SLUICE_ALLOC_INODE_GROUP_H_
