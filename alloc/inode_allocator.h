// SPDX-License-Identifier: Apache-2.0
//
// Inode numbers: the inode bitmaps and the lazily initialised inode tables. Directories are spread
// by Orlov's rules (ext4 ialloc.c), files lie in or near their parent's group.
#ifndef SLUICE_ALLOC_INODE_ALLOCATOR_H_
#define SLUICE_ALLOC_INODE_ALLOCATOR_H_

#include <functional>
#include <memory>

#include "alloc/group_table.h"
#include "base/error.h"
#include "base/units.h"
#include "block/attempt.h"
#include "journal/journal.h"

namespace sluice {

// A number that Prepare found free; holds it for this operation until it is taken or the object
// is destroyed. Move-only.
class InodeReservation;

struct AllocatedInode {
  InodeNumber ino = 0;
  uint32_t generation = 0;  // differs from every earlier life of the number
  BufferRef table_block;    // holds the (zeroed but for generation) record
};

// Thread-safe.
class InodeAllocator {
 public:
  // Inode bitmap, group table block, inode table block.
  static constexpr int kCreditsPerInode = 3;

  InodeAllocator(GroupTable* table, BufferCache* cache);
  ~InodeAllocator();

  // Chooses a group for a child of `parent` (a directory's own spreading if `directory`), loads its
  // inode bitmap and the inode table block of a free number, and claims that number in memory for
  // the caller. kWouldBlock while something is read, or while others hold all numbers of the
  // table block that comes next; kNoSpace: no free inode (HasPending: a commit would give some).
  // Groups that cannot be read or fail their checks are taken out of use.
  Result<InodeReservation> Prepare(Attempt& attempt, InodeNumber parent, bool directory);

  // Marks the reserved number used, moves the high-water mark (a table block beyond it is created,
  // zero, through the log), bumps the generation. Never waits, never fails. Uses at most
  // kCreditsPerInode credits; the caller's own edit of the record is the same block.
  AllocatedInode Allocate(Handle& handle, InodeReservation reservation, bool directory);

  // The number is free at once in the bitmap, and can be handed out again when the handle's
  // transaction is durable. The record must have been zeroed (mode 0) by the caller in the same
  // handle. PrepareFree loads the bitmap.
  Error PrepareFree(Attempt& attempt, InodeNumber ino);
  Error Free(Handle& handle, InodeNumber ino, bool directory);

  // Whether numbers were freed that a commit makes available.
  bool HasPending() const;

  // Runs once per corrupt group, on the thread that found it, with a lock held: must not call back.
  void SetOnCorrupt(std::function<void(GroupNumber)> on_corrupt);

  // Whether the number is marked used in the bitmap (after an attempt loaded it): a lookup of a
  // stale handle must not read records beyond the high-water mark. Numbers that do not exist are
  // not used.
  Result<bool> IsUsed(Attempt& attempt, InodeNumber ino);

 private:
  friend class InodeReservation;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

class InodeReservation {
 public:
  InodeReservation() = default;
  InodeReservation(InodeReservation&& other) noexcept;
  InodeReservation& operator=(InodeReservation&& other) noexcept;
  ~InodeReservation();  // gives an unused number back

  InodeNumber ino() const { return ino_; }

 private:
  friend class InodeAllocator;
  InodeAllocator::Impl* allocator_ = nullptr;
  InodeNumber ino_ = 0;
  BufferRef table_block_;  // null: was beyond the high-water mark
};

}  // namespace sluice

#endif  // SLUICE_ALLOC_INODE_ALLOCATOR_H_
