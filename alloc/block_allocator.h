// SPDX-License-Identifier: Apache-2.0
//
// Who owns which block. The bitmap in a group's buffer is the journaled truth; the allocator's own
// bitmap of a loaded group is what may be handed out: truth minus blocks whose freeing transaction
// is not durable yet (J4). Loaded groups stay in memory (8 KiB each).
//
// Two phases, as everywhere: Reserve (no handle; may answer kWouldBlock while a bitmap is read)
// claims blocks in loaded groups; Allocate (under the handle) turns a claim into blocks and can
// neither wait nor fail, so an operation never runs out of space half-way.
#ifndef SLUICE_ALLOC_BLOCK_ALLOCATOR_H_
#define SLUICE_ALLOC_BLOCK_ALLOCATOR_H_

#include <functional>
#include <memory>

#include "alloc/group_table.h"
#include "base/error.h"
#include "base/units.h"
#include "block/attempt.h"
#include "journal/journal.h"

namespace sluice {

// A run of physical blocks.
struct BlockRun {
  BlockNumber start = 0;
  BlockCount length = 0;
};

// A claim on `left()` blocks that are free in loaded groups. Gives back on destruction what was
// not allocated. Move-only; used by one thread at a time.
class BlockReservation {
 public:
  BlockReservation() = default;
  BlockReservation(BlockReservation&& other) noexcept;
  BlockReservation& operator=(BlockReservation&& other) noexcept;
  ~BlockReservation();

  BlockCount left() const { return left_; }

 private:
  friend class BlockAllocator;
  class BlockAllocator* allocator_ = nullptr;
  BlockCount left_ = 0;
};

// Thread-safe.
class BlockAllocator {
 public:
  // Credits that one Allocate or one Free of a run within one group may use: bitmap + table block.
  static constexpr int kCreditsPerRun = 2;

  // `table`, `cache` outlive it. `reserved_blocks` is what only privileged callers may use.
  BlockAllocator(GroupTable* table, BufferCache* cache, BlockCount reserved_blocks);
  ~BlockAllocator();

  // Claims `count` blocks, loading bitmaps near `goal` (a block number, 0: anywhere) until loaded
  // groups hold that many unclaimed free ones. kWouldBlock: a bitmap is being read. kNoSpace: fewer
  // than `count` are free and unclaimed in all (pending ones not counted; only `privileged` callers
  // may use the reserve). A bitmap that fails its checks or cannot be read takes its group out of
  // use and is reported through `on_corrupt`.
  Result<BlockReservation> Reserve(Attempt& attempt, BlockNumber goal, BlockCount count,
                                   bool privileged);

  // Takes one run of 1..min(max_length, reservation.left()) blocks, as near to `goal` and as long
  // as can be, within one group. Precondition: reservation.left() > 0. Never waits, never fails.
  // Uses at most kCreditsPerRun credits.
  BlockRun Allocate(Handle& handle, BlockReservation& reservation, BlockNumber goal,
                    BlockCount max_length);

  // Runs once per corrupt group, on the thread that found it, with a lock held: must not call back.
  void SetOnCorrupt(std::function<void(GroupNumber)> on_corrupt);

  // Gives blocks back: at once in the bitmap (under the handle), allocatable again when the
  // handle's transaction is durable. The run may span groups; each costs kCreditsPerRun. The
  // groups' bitmaps must be loaded: PrepareFree first. kCorrupt (nothing changed) if a block of it
  // is free already or fixed metadata. PrepareFree checks the same; its kCorrupt or kIo may also
  // say that the bitmap is out of use.
  Error PrepareFree(Attempt& attempt, BlockRun run);
  Error Free(Handle& handle, BlockRun run);

  // Blocks a new allocation could get now / after a commit.
  BlockCount available(bool privileged) const;
  bool HasPending() const;

  // A start for the search for data of an inode in `group`: behind the last small allocation for
  // that group, so that small files lie one behind the other.
  BlockNumber GoalForGroup(GroupNumber group) const;

  const format::Geometry& geometry() const;

  // Runs of free blocks, for FITRIM and reports later; and for tests: recounts a loaded group and
  // compares with its descriptor.
  Error VerifyGroup(Attempt& attempt, GroupNumber group);

 private:
  friend class BlockReservation;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_ALLOC_BLOCK_ALLOCATOR_H_
