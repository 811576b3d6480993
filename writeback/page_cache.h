// SPDX-License-Identifier: Apache-2.0
//
// Dirty file data of one inode: 4 KiB pages by index. The kernel caches clean data, so a page stays
// here only while it is dirty or being written (or, for a moment, while an operation that must
// complete a partial page needs it).
//
// States of a page: dirty and unmapped (its block is not allocated yet), dirty and mapped, under
// writeback, clean (kept only while pinned by an attempt). A page under writeback is never changed
// in place: a writer gets a fresh copy (the I/O keeps the old memory), and the page is dirty again.
//
// Writeout needs neither the inode's lock nor its extents: a mapped page knows its block.
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

// A run of dirty pages that have no block yet.
struct UnmappedRun {
  FileBlock first = 0;
  uint32_t count = 0;
};

// Thread-safe. Its mutex is below the extent tree's in the lock order and is never held across I/O.
class PageCache {
 public:
  // All outlive the cache. `owner` is told when the first page becomes dirty.
  PageCache(Device* device, MemoryBudget* budget, std::function<void()> on_first_dirty);
  // Precondition: no page under writeback. Dirty pages are dropped (their inode was deleted).
  ~PageCache();

  // --- Writing into pages ---

  // Whether the page is in memory (dirty, under writeback, or pinned clean).
  bool Contains(FileBlock index) const;
  // Puts a page read from the device (4096 bytes) into the cache, clean, mapped to `block`, unless
  // the page is there already.
  void InsertClean(FileBlock index, BlockNumber block, std::span<const std::byte> content);
  // Drops clean pages (an operation that inserted some is over).
  void DropClean();

  // Copies `data` into page `index` at `offset` and makes it dirty. A page that is not there is
  // made with zeros around the data, mapped to `block`, or unmapped if `block` is kNoBlock: the
  // caller knows that the rest of the block holds nothing (hole, new, or wholly overwritten), or
  // has inserted it before.
  void Write(FileBlock index, uint32_t offset, std::span<const std::byte> data, BlockNumber block);

  // Zeroes [offset, end) of a page that is in memory, and makes it dirty. False if it is not there.
  bool Zero(FileBlock index, uint32_t offset, uint32_t end);

  // --- Mapping ---

  // The first run of dirty unmapped pages at or after `from`.
  bool FindUnmapped(FileBlock from, UnmappedRun* run) const;
  // Tells the blocks of pages [first, first + count): consecutive from `block`.
  void SetMapped(FileBlock first, uint32_t count, BlockNumber block);
  // Removes dirty unmapped pages of [first, end): their allocation failed, and the write is
  // refused.
  void DropUnmapped(FileBlock first, FileBlock end);

  // --- Reading ---

  // Copies what is in memory of page `index`, from `offset`, into `out`. False if it is not there.
  bool Read(FileBlock index, uint32_t offset, std::span<std::byte> out) const;
  // The smallest index >= from that is in memory, or `end`.
  FileBlock NextInMemory(FileBlock from, FileBlock end) const;

  // --- Writeout ---

  // Starts writing the dirty mapped pages of [first, end), merged into large requests; pages
  // already under writeback stay so (if they are dirty again, WaitWriteout + another call writes
  // them). Never waits. Returns pages started.
  size_t StartWriteout(FileBlock first, FileBlock end, IoKind kind, uint64_t flow);
  // Calls `done` when none of the pages now under writeback in [first, end) is any more; at once
  // if there are none. The error is that of these writes.
  void WhenWritten(FileBlock first, FileBlock end, std::function<void(Error)> done);
  Error WaitWritten(FileBlock first, FileBlock end);  // blocking form: no lock, no handle
  bool AnyUnderWriteback(FileBlock first, FileBlock end) const;

  // --- Truncate and punch: the caller holds the range lock exclusively and no page of the range is
  // under writeback ---
  void Drop(FileBlock first, FileBlock end);

  size_t dirty_pages() const;
  bool empty() const;

  // Counts failed writeouts; a file descriptor that remembers an older value has an error to
  // report.
  uint64_t error_sequence() const { return error_sequence_.load(std::memory_order_acquire); }
  Error last_error() const { return last_error_.load(std::memory_order_acquire); }

 private:
  class WriteRequest;
  struct Page;

  Device* const device_;
  MemoryBudget* const budget_;
  const std::function<void()> on_first_dirty_;
  mutable Mutex mutex_;
  std::atomic<uint64_t> error_sequence_{0};
  std::atomic<Error> last_error_{Error::kOk};
  struct State;
  std::unique_ptr<State> state_ ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_WRITEBACK_PAGE_CACHE_H_
