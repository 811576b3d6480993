// SPDX-License-Identifier: Apache-2.0
//
// The orphan file (inode 3): inodes that must be finished at the next mount if a crash comes now:
// unlinked but open ones are deleted, interrupted truncates are completed. A slot is one number in
// a metadata block of the file; adding and removing cost one credit each.
#ifndef SLUICE_FS_ORPHAN_FILE_H_
#define SLUICE_FS_ORPHAN_FILE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "base/units.h"
#include "block/attempt.h"
#include "block/buffer_cache.h"
#include "fs/inode.h"
#include "journal/journal.h"

namespace sluice {

// Thread-safe.
class OrphanFile {
 public:
  static constexpr int kCredits = 1;

  // A free slot claimed by an operation; given back if not used. Move-only.
  class Claim {
   public:
    Claim() = default;
    Claim(Claim&& other) noexcept;
    Claim& operator=(Claim&& other) noexcept;
    ~Claim();

   private:
    friend class OrphanFile;
    OrphanFile* file_ = nullptr;
    uint64_t slot_ = 0;  // slot + 1
  };

  // Reads the file's blocks (`file_inode` is inode 3, its extents mapped by the caller into
  // `blocks`) and pins them. kCorrupt if one fails its checks. May wait.
  static Result<std::unique_ptr<OrphanFile>> Load(BufferCache* cache, uint32_t generation,
                                                  const std::vector<BlockNumber>& blocks,
                                                  uint64_t inode_count);

  // Inodes found at load, for recovery at mount, and their slots (slot + 1).
  struct Entry {
    InodeNumber ino;
    uint64_t slot;
  };
  std::vector<Entry> entries() const;

  // kNoSpace if every slot is taken.
  Result<Claim> Prepare();
  // Puts the inode into the claimed slot and sets inode->orphan_slot. `inode->mutex` is held.
  void Add(Handle& handle, Inode* inode, Claim claim);
  // Takes it out. Precondition: inode->orphan_slot != 0.
  void Remove(Handle& handle, Inode* inode);

 private:
  OrphanFile() = default;
  void GiveBack(uint64_t slot);

  std::vector<BufferRef> blocks_;  // constant after Load
  mutable Mutex mutex_;
  // Slots that are neither on disk nor claimed. Taken from the back, where those given back last
  // are: few blocks of the file are in use, and few are logged.
  std::vector<uint64_t> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_FS_ORPHAN_FILE_H_
