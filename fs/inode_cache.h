// SPDX-License-Identifier: Apache-2.0
//
// The inodes in memory, one object per number. An inode stays while somebody refers to it: the
// kernel (lookups), descriptors (opens), operations (InodeRef), dirty pages, lazy fields. An
// unreferenced clean inode is evicted, oldest first, when there are more than `capacity`.
//
// An inode without links whose last lookup and open are gone is handed to the reaper, a thread that
// deletes it (fs/truncate.cc, DeleteInode).
#ifndef SLUICE_FS_INODE_CACHE_H_
#define SLUICE_FS_INODE_CACHE_H_

#include <functional>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "block/attempt.h"
#include "fs/inode.h"

namespace sluice {

// Thread-safe; sharded.
class InodeCache {
 public:
  InodeCache(Filesystem* fs, size_t capacity);
  ~InodeCache();

  // From memory, or from its table block (kWouldBlock while that is read). The record is checked
  // (format::CheckInode): kCorrupt and reported, or kStale if it is free or beyond the high-water
  // mark.
  Result<InodeRef> Get(Attempt& attempt, InodeNumber ino);
  // Only from memory; null if it is not there.
  InodeRef Find(InodeNumber ino);
  // An inode that was just allocated; its record in the table block is still free.
  InodeRef AddNew(InodeNumber ino, BufferRef table_block, uint32_t table_offset,
                  uint32_t generation);
  // A deleted inode: the number may get a new object.
  void Remove(InodeNumber ino);

  // Every inode in memory for which `wanted` holds; for Sync, unmount, flusher.
  std::vector<InodeRef> Collect(const std::function<bool(Inode&)>& wanted);

  // Called when a reference count went to zero: unlinked inodes go to the reaper.
  void Unreferenced(const InodeRef& inode);

  // Work for the reaper's thread: what must wait and cannot where it was found.
  void Post(std::function<void()> work);
  // Whether deletions are under way, which will give back space, numbers and orphan slots.
  bool ReaperBusy() const;
  // Waits until one of them is done (or there is none). May wait.
  void WaitReaper();

  // Waits until the reaper has deleted everything it was given. May wait.
  void DrainReaper();
  // Stops the reaper's thread (after draining it if `drain`).
  void Stop(bool drain);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_FS_INODE_CACHE_H_
