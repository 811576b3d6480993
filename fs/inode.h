// SPDX-License-Identifier: Apache-2.0
//
// An inode in memory. One object per inode number and life; the InodeCache owns them. It pins its
// inode table block, so writing it back under a handle can never miss.
//
// Locks: `mutex` (namespace and inode level) guards attributes and, for directories, the entries;
// `extent_mutex` (extent tree level, below the handle) guards the extent root and tree; `pages` has
// its own. An attribute change holds `mutex` exclusively and an open handle, except times and size
// growth over mapped blocks, which are journaled lazily (`lazy_dirty`).
#ifndef SLUICE_FS_INODE_H_
#define SLUICE_FS_INODE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

#include "base/error.h"
#include "base/mutex.h"
#include "base/units.h"
#include "block/buffer_cache.h"
#include "format/inode.h"
#include "fs/range_lock.h"
#include "journal/journal.h"
#include "writeback/flush_target.h"
#include "writeback/page_cache.h"

namespace sluice {

class Filesystem;

// The parts of format::Inode that operations work with, in native form.
struct InodeFields {
  uint16_t mode = 0;
  uint32_t flags = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t links = 0;
  uint32_t generation = 0;
  uint64_t size = 0;    // what stat shows; with delayed mapping ahead of what is on disk
  uint64_t blocks = 0;  // 4 KiB blocks
  Nanoseconds atime = 0;
  Nanoseconds mtime = 0;
  Nanoseconds ctime = 0;
  Nanoseconds btime = 0;
  InodeNumber parent = 0;
  uint64_t device = 0;  // device files: major << 32 | minor; directories: number of entries
  BlockNumber xattr_block = 0;
  uint32_t project = 0;
};

class Inode : public OrderedData, public FlushTarget, public std::enable_shared_from_this<Inode> {
 public:
  Inode(Filesystem* fs, InodeNumber ino, BufferRef table_block, uint32_t table_offset,
        const format::Inode& record);
  ~Inode() override;

  const InodeNumber ino;
  Mutex mutex;
  Mutex extent_mutex ABSL_ACQUIRED_AFTER(mutex);

  // Guarded by `mutex`; `blocks` and `root` by `extent_mutex` (a handle and `mutex` are held by who
  // changes them).
  InodeFields fields;
  std::array<std::byte, format::kExtentRootSize> root;

  // The type never changes in an inode's life, so that it may be asked without the mutex.
  uint16_t type() const { return type_.load(std::memory_order_relaxed); }  // S_IF*
  bool is_directory() const { return type() == 0040000; }
  bool is_regular() const { return type() == 0100000; }
  bool is_symlink() const { return type() == 0120000; }
  // Of an inode that was just allocated, before anybody can find it by name.
  void set_type(uint16_t mode) {
    type_.store(static_cast<uint16_t>(mode & 0170000), std::memory_order_relaxed);
  }

  // Copies the fields and the root into the inode table block under the handle: one credit, for a
  // block that every operation counts once per inode. Notes the transaction for fsync: always in
  // sync_tid, in datasync_tid if `data_reachability` (size or mapping changed). `mutex` is held.
  void WriteBack(Handle& handle, bool data_reachability) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Transactions an fsync / fdatasync must see committed; 0: none. Never go back.
  std::atomic<Tid> sync_tid{0};
  std::atomic<Tid> datasync_tid{0};
  // The last transaction that has the inode among its ordered data; 0: none.
  std::atomic<Tid> ordered_tid{0};

  // Fields changed in memory only (times, size over mapped blocks): the next handle, fsync,
  // eviction or sync writes them. Guarded by `mutex`.
  bool lazy_dirty = false;

  // Made by O_TMPFILE and not linked yet: the one kind of inode without links that may get one.
  // Guarded by `mutex`.
  bool linkable = false;

  // In the orphan file: slot + 1; 0 if not. Guarded by `mutex`.
  uint64_t orphan_slot = 0;

  PageCache pages;
  RangeLock range_lock;

  // References by the kernel (lookups) and open descriptors; by the InodeCache's rules the object
  // stays while any is held. An inode without links is deleted when the last one goes.
  std::atomic<uint64_t> lookups{0};
  std::atomic<uint64_t> opens{0};

  Filesystem* fs() const { return fs_; }
  const BufferRef& table_block() const { return table_block_; }
  uint32_t table_offset() const { return table_offset_; }

  // OrderedData
  void StartOrderedWrite() override;
  void WaitOrderedWrite() override;

  // FlushTarget
  size_t StartWriteback(size_t max_pages, IoKind kind) override;
  void WaitWriteback(IoKind kind) override;
  uint64_t WriteErrors() override;
  size_t DirtyPages() override;

 private:
  Filesystem* const fs_;
  const BufferRef table_block_;
  const uint32_t table_offset_;
  std::atomic<uint16_t> type_{0};
};

using InodeRef = std::shared_ptr<Inode>;

}  // namespace sluice

#endif  // SLUICE_FS_INODE_H_
