// SPDX-License-Identifier: Apache-2.0
//
// What the parts of fs/ share: the rooms below, put together. Private to fs/.
#ifndef SLUICE_FS_FILESYSTEM_IMPL_H_
#define SLUICE_FS_FILESYSTEM_IMPL_H_

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "alloc/block_allocator.h"
#include "alloc/group_table.h"
#include "alloc/inode_allocator.h"
#include "base/mutex.h"
#include "block/buffer_cache.h"
#include "block/device.h"
#include "format/geometry.h"
#include "format/superblock.h"
#include "fs/filesystem.h"
#include "fs/freeze_gate.h"
#include "fs/inode_cache.h"
#include "fs/orphan_file.h"
#include "journal/journal.h"
#include "journal/log_area.h"
#include "writeback/flusher.h"
#include "writeback/memory_budget.h"

namespace sluice {

struct Filesystem::Impl {
  // Constant after mount.
  Filesystem* self = nullptr;
  MountOptions options;
  std::unique_ptr<Device> joined;   // the image and its external journal
  std::unique_ptr<Device> overlay;  // read-only mounts that had to replay
  Device* device = nullptr;         // what everything below uses
  format::Superblock super;
  format::Geometry geometry;
  BlockCount overhead = 0;  // blocks that the format itself takes, the journal included

  // In order of construction; destroyed in reverse.
  std::unique_ptr<MemoryBudget> budget;
  std::unique_ptr<BufferCache> cache;
  std::unique_ptr<GroupTable> groups;
  std::unique_ptr<BlockAllocator> blocks;
  std::unique_ptr<InodeAllocator> inode_numbers;
  std::unique_ptr<Journal> journal;
  std::unique_ptr<OrphanFile> orphans;
  std::unique_ptr<Flusher> flusher;
  std::unique_ptr<InodeCache> inodes;

  // Serialises renames of directories to another parent, and so keeps the tree a tree.
  Mutex rename_mutex;

  std::atomic<bool> read_only{false};
  std::atomic<bool> shut_down{false};
  FreezeGate gate;

  // What goes into the state sector of the superblock, and the damage seen so far (fs/state.cc).
  Mutex state_mutex;
  format::SuperSector1 state ABSL_GUARDED_BY(state_mutex) = {};
  absl::flat_hash_set<uint64_t> reported ABSL_GUARDED_BY(state_mutex);
  bool writing_state ABSL_GUARDED_BY(state_mutex) = false;
  CondVar state_written;

  Nanoseconds Now() const { return options.clock->WallTime(); }
  // kShutdown after a shutdown.
  Error CheckAlive() const {
    return shut_down.load(std::memory_order_relaxed) ? Error::kShutdown : Error::kOk;
  }
  // kReadOnly if nothing may be changed (any more).
  Error CheckWritable() const {
    RETURN_IF_ERROR(CheckAlive());
    return read_only.load(std::memory_order_relaxed) ? Error::kReadOnly : Error::kOk;
  }
  // What every operation that changes anything does first, in each try: CheckWritable, and
  // kWouldBlock while the filesystem is frozen. The pass is kept to the end of the try; it is
  // declared before locks and handle.
  Result<FreezeGate::Pass> BeginChange(Attempt& attempt) {
    ASSIGN_OR_RETURN(FreezeGate::Pass pass, gate.Enter(attempt));
    RETURN_IF_ERROR(CheckWritable());
    return pass;
  }
};

// --- fs/state.cc ---

// Writes the state sector as it stands, and flushes; two writers take turns. May wait.
Error WriteState(Filesystem::Impl* fs);
// The same after setting and clearing bits of its `state`.
Error WriteStateBits(Filesystem::Impl* fs, uint32_t set, uint32_t clear);

// The journal's on_abort: read-only from now on, and the superblock says why (later, on the
// reaper's thread: it is the one write that follows). Never waits.
void JournalStopped(Filesystem::Impl* fs, Error error, const std::string& reason);

// --- fs/truncate.cc ---

// Sets the size of a regular file: frees what lies behind, zeroes the rest of the last block. The
// inode's mutex is NOT held; it is taken inside, for each step. Answers kWouldBlock between steps
// of a large truncate too (the inode is then in the orphan file). Clears set-id bits if asked. The
// caller has called BeginChange.
Error TruncateFile(Filesystem::Impl* fs, Attempt& attempt, const InodeRef& inode, uint64_t size,
                   bool kill_suid_sgid);

// Frees everything of an inode without links and then the inode itself; runs on a thread that may
// wait, without locks. The inode is in the orphan file. Called by the inode cache's reaper, by
// mount's orphan recovery, and by Unmount.
Error DeleteInode(Filesystem::Impl* fs, const InodeRef& inode);

// Completes a truncate that a crash interrupted: frees blocks past the inode's size and takes it
// out of the orphan file. May wait.
Error FinishTruncate(Filesystem::Impl* fs, const InodeRef& inode);

// --- fs/lazy_times.cc ---

// Journals the inode's lazily changed fields, if any. kOk at once when there are none.
// For callers that BeginChange has let in, and for those that have closed the gate.
Error WriteLazyFields(Filesystem::Impl* fs, Attempt& attempt, const InodeRef& inode);
// Those of all inodes in memory; goes on after an error and returns the last. May wait.
Error WriteAllLazyFields(Filesystem::Impl* fs);

}  // namespace sluice

#endif  // SLUICE_FS_FILESYSTEM_IMPL_H_
