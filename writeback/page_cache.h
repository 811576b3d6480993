// SPDX-License-Identifier: Apache-2.0
//
// Dirty file data of one inode: 4 KiB pages by index. The kernel caches clean data, so a page stays
// here only while it is dirty or being written.
//
// Every page knows its block. States: dirty, under writeback, both (written again while the I/O
// runs), clean (kept for a moment while an operation completes a partial page). A page under
// writeback is never changed in place: a writer gets a fresh copy and the I/O keeps the old memory.
//
// Writeout needs neither the inode's lock nor its extents: a page knows its block.
#ifndef SLUICE_WRITEBACK_PAGE_CACHE_H_
#define SLUICE_WRITEBACK_PAGE_CACHE_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/aligned_buffer.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/units.h"
#include "block/device.h"
#include "writeback/memory_budget.h"

namespace sluice {

// One page's memory, shared between the cache and the I/O that writes it.
using PageMemory = std::shared_ptr<PageBuffer>;

// Thread-safe. Its mutex is below the extent tree's in the lock order and is never held across I/O.
class PageCache {
 public:
  // All outlive the cache. `owner` is told when the first page becomes dirty.
  PageCache(Device* device, MemoryBudget* budget, std::function<void()> on_first_dirty);
  // Precondition: no page under writeback. Dirty pages are dropped (their inode was deleted).
  ~PageCache();

  // --- Writing into pages: the caller holds the inode's mutex exclusively ---

  // Whether the page is in memory.
  bool Contains(FileBlock index) const;

  // Changes with every write and drop: a page read from the device is put in only if nothing has
  // changed since before the read.
  uint64_t version() const;
  // Puts a page read from the device (4096 bytes) into the cache, clean; false, and nothing done,
  // if the version has changed. Needs no lock.
  bool InsertClean(FileBlock index, BlockNumber block, PageMemory content, uint64_t version);

  // Copies `data` into page `index` at `offset` and makes it dirty. A page that is not in memory is
  // made with zeros around the data: the caller knows that the rest of the block holds nothing, or
  // has put it in before.
  void Write(FileBlock index, uint32_t offset, std::span<const std::byte> data, BlockNumber block);

  // Puts whole pages, filled by the caller before it opened its handle, in as dirty: consecutive
  // from page `first` and from `block`. No data is copied.
  void InsertDirty(FileBlock first, std::span<PageMemory> pages, BlockNumber block);

  // Zeroes [offset, end) of the page, if it is in memory, and makes it dirty unless it was zero
  // there already.
  void Zero(FileBlock index, uint32_t offset, uint32_t end);

  // --- Reading ---

  // Copies what is in memory of page `index`, from `offset`, into `out`. False if it is not there.
  bool Read(FileBlock index, uint32_t offset, std::span<std::byte> out) const;
  // The smallest index >= from that is in memory, or `end`.
  FileBlock NextInMemory(FileBlock from, FileBlock end) const;

  // --- Writeout ---

  // Starts writing dirty pages of [first, end), at most about `max_pages`, merged into large
  // requests; pages under writeback stay so (if they are dirty again, they are for a later call),
  // but are promoted unless `kind` is kBackgroundWrite. Never waits. Returns pages started.
  // `keep_alive` is held until the I/O is over.
  size_t StartWriteout(FileBlock first, FileBlock end, IoKind kind, uint64_t flow,
                       std::shared_ptr<void> keep_alive, size_t max_pages = SIZE_MAX);
  // Calls `done` when none of the pages now under writeback in [first, end) is any more; at once
  // if there are none. The error is that of these writes. What the device still has queued as
  // background is promoted, unless `waiter` is background work itself (J3).
  void WhenWritten(FileBlock first, FileBlock end, std::function<void(Error)> done,
                   IoKind waiter = IoKind::kSyncWrite);
  // Blocking form: no lock, no handle.
  Error WaitWritten(FileBlock first, FileBlock end, IoKind waiter = IoKind::kSyncWrite);
  bool AnyUnderWriteback(FileBlock first, FileBlock end) const;
  bool AnyDirty(FileBlock first, FileBlock end) const;

  // --- Truncate and punch: the caller holds the range lock exclusively ---

  // Forgets the pages of the range, dirty ones too. False, and nothing done, if one is under
  // writeback: writeout takes no lock of the caller's and may start at any time, so the caller
  // waits (WaitWritten) and tries again (J6).
  [[nodiscard]] bool TryDrop(FileBlock first, FileBlock end);

  size_t dirty_pages() const;
  // Whether nothing is dirty or under writeback.
  bool idle() const;

  // Counts failed writeouts; a file descriptor that remembers an older value has an error to
  // report.
  uint64_t error_sequence() const { return error_sequence_.load(std::memory_order_acquire); }
  Error last_error() const { return last_error_.load(std::memory_order_acquire); }

 private:
  class WriteRequest;
  struct Waiter;
  struct Page {
    PageMemory memory;
    BlockNumber block = kNoBlock;
    bool dirty = false;
    bool writeback = false;
  };
  using Pages = absl::btree_map<FileBlock, Page>;

  // The page's memory, private to the caller's change: a copy if I/O still reads it.
  std::byte* WritableMemory(Page& page, bool keep_content) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True if it is the first dirty page.
  bool MakeDirty(Page& page) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<WriteRequest*> CollectDirty(FileBlock first, FileBlock end, size_t max_pages)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Marks what of the range is on its way as background; true if the device must be told.
  bool MarkUrgent(FileBlock first, FileBlock end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Finish(WriteRequest* request, Error error);

  Device* const device_;
  MemoryBudget* const budget_;
  const std::function<void()> on_first_dirty_;
  mutable Mutex mutex_;
  Pages pages_ ABSL_GUARDED_BY(mutex_);
  std::vector<WriteRequest*> active_ ABSL_GUARDED_BY(mutex_);
  size_t dirty_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<uint64_t> error_sequence_{0};
  std::atomic<Error> last_error_{Error::kOk};
};

}  // namespace sluice

#endif  // SLUICE_WRITEBACK_PAGE_CACHE_H_
