// SPDX-License-Identifier: Apache-2.0
#include "writeback/page_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "journal/journal.h"

namespace sluice {
namespace {

// Pages of one request: 1 MiB, large enough that a device streams, small enough that a read that
// comes behind it does not wait long.
constexpr size_t kMaxRequestPages = 256;

}  // namespace

// Called when all requests that were in flight in its range have ended.
struct PageCache::Waiter {
  size_t requests = 0;
  Error error = Error::kOk;
  std::function<void(Error)> done;
};

// One run of pages on its way to the device. Deletes itself.
class PageCache::WriteRequest : public IoRequest {
 public:
  explicit WriteRequest(PageCache* cache, FileBlock first) : cache_(cache), first_(first) {
    op = IoOp::kWrite;
  }
  void Done(Error error) override { cache_->Finish(this, error); }

  void Append(const PageMemory& memory) {
    buffers.push_back(memory->span());
    memory_.push_back(memory);
    length += kBlockSize;
  }
  size_t pages() const { return memory_.size(); }
  bool Overlaps(FileBlock first, FileBlock end) const {
    return first_ < end && first < first_ + pages();
  }

  PageCache* const cache_;
  const FileBlock first_;
  std::vector<PageMemory> memory_;
  std::vector<std::shared_ptr<Waiter>> waiters_;
  std::shared_ptr<void> keep_alive_;
};

PageCache::PageCache(Device* device, MemoryBudget* budget, std::function<void()> on_first_dirty)
    : device_(device), budget_(budget), on_first_dirty_(std::move(on_first_dirty)) {}

PageCache::~PageCache() {
  MutexLock lock(&mutex_);
  SLUICE_CHECK(active_.empty());
}

bool PageCache::Contains(FileBlock index) const {
  MutexLock lock(&mutex_);
  return pages_.contains(index);
}

uint64_t PageCache::version() const {
  MutexLock lock(&mutex_);
  return version_;
}

bool PageCache::InsertClean(FileBlock index, BlockNumber block, PageMemory content,
                            uint64_t version) {
  MutexLock lock(&mutex_);
  if (version != version_) return false;
  pages_.try_emplace(index, Page{.memory = std::move(content), .block = block});
  return true;
}

std::byte* PageCache::WritableMemory(Page& page, bool keep_content) {
  if (page.memory == nullptr) {
    page.memory = budget_->NewPage();
  } else if (page.writeback) {
    PageMemory fresh = budget_->NewPage();
    if (keep_content) std::memcpy(fresh->data(), page.memory->data(), kBlockSize);
    page.memory = std::move(fresh);
  }
  return page.memory->data();
}

bool PageCache::MakeDirty(Page& page) {
  ++version_;
  if (page.dirty) return false;
  page.dirty = true;
  return ++dirty_ == 1;
}

void PageCache::Write(FileBlock index, uint32_t offset, std::span<const std::byte> data,
                      BlockNumber block) {
  SLUICE_CHECK(offset + data.size() <= kBlockSize && block != kNoBlock);
  bool first_dirty = false;
  {
    MutexLock lock(&mutex_);
    auto [entry, created] = pages_.try_emplace(index);
    Page& page = entry->second;
    const bool whole = data.size() == kBlockSize;
    // A second change while the I/O for the first copy runs finds the page dirty already, and its
    // memory private.
    std::byte* memory = page.dirty ? page.memory->data() : WritableMemory(page, !whole);
    if (created) {
      page.block = block;
      if (!whole) std::memset(memory, 0, kBlockSize);
    }
    std::memcpy(memory + offset, data.data(), data.size());
    first_dirty = MakeDirty(page);
  }
  if (first_dirty) on_first_dirty_();
}

void PageCache::InsertDirty(FileBlock first, std::span<PageMemory> pages, BlockNumber block) {
  bool first_dirty = false;
  {
    MutexLock lock(&mutex_);
    for (size_t i = 0; i < pages.size(); ++i) {
      auto [entry, created] = pages_.try_emplace(first + i);
      SLUICE_CHECK(created);  // a hole has no page in memory
      entry->second.memory = std::move(pages[i]);
      entry->second.block = block + i;
      first_dirty |= MakeDirty(entry->second);
    }
  }
  if (first_dirty) on_first_dirty_();
}

void PageCache::Zero(FileBlock index, uint32_t offset, uint32_t end) {
  bool first_dirty = false;
  {
    MutexLock lock(&mutex_);
    auto entry = pages_.find(index);
    if (entry == pages_.end()) return;
    Page& page = entry->second;
    const std::byte* old = page.memory->data();
    const bool zero =
        std::all_of(old + offset, old + end, [](std::byte value) { return value == std::byte{0}; });
    if (zero) return;
    std::byte* memory = page.dirty ? page.memory->data() : WritableMemory(page, true);
    std::memset(memory + offset, 0, end - offset);
    first_dirty = MakeDirty(page);
  }
  if (first_dirty) on_first_dirty_();
}

bool PageCache::Read(FileBlock index, uint32_t offset, std::span<std::byte> out) const {
  MutexLock lock(&mutex_);
  auto entry = pages_.find(index);
  if (entry == pages_.end()) return false;
  std::memcpy(out.data(), entry->second.memory->data() + offset, out.size());
  return true;
}

FileBlock PageCache::NextInMemory(FileBlock from, FileBlock end) const {
  MutexLock lock(&mutex_);
  auto entry = pages_.lower_bound(from);
  return entry == pages_.end() ? end : std::min(entry->first, end);
}

std::vector<PageCache::WriteRequest*> PageCache::CollectDirty(FileBlock first, FileBlock end,
                                                              size_t max_pages) {
  std::vector<WriteRequest*> requests;
  if (dirty_ == 0) return requests;
  size_t started = 0;
  WriteRequest* current = nullptr;
  BlockNumber next_block = kNoBlock;
  for (auto entry = pages_.lower_bound(first); entry != pages_.end() && entry->first < end;
       ++entry) {
    Page& page = entry->second;
    if (!page.dirty || page.writeback) continue;
    const bool joins = current != nullptr && current->first_ + current->pages() == entry->first &&
                       page.block == next_block && current->pages() < kMaxRequestPages;
    if (!joins) {
      if (started >= max_pages) break;
      current = new WriteRequest(this, entry->first);
      current->offset = page.block * kBlockSize;
      requests.push_back(current);
    }
    current->Append(page.memory);
    next_block = page.block + 1;
    page.dirty = false;
    page.writeback = true;
    --dirty_;
    ++started;
  }
  active_.insert(active_.end(), requests.begin(), requests.end());
  return requests;
}

size_t PageCache::StartWriteout(FileBlock first, FileBlock end, IoKind kind, uint64_t flow,
                                std::shared_ptr<void> keep_alive, size_t max_pages) {
  size_t pages = 0;
  std::vector<IoRequest*> submit;
  bool promote = false;
  {
    MutexLock lock(&mutex_);
    if (kind != IoKind::kBackgroundWrite) promote = MarkUrgent(first, end);
    for (WriteRequest* request : CollectDirty(first, end, max_pages)) {
      request->kind = kind;
      request->flow = flow;
      request->keep_alive_ = keep_alive;
      pages += request->pages();
      submit.push_back(request);
    }
  }
  if (promote) device_->Promote();
  if (!submit.empty()) device_->Submit(submit);
  return pages;
}

bool PageCache::MarkUrgent(FileBlock first, FileBlock end) {
  bool marked = false;
  for (WriteRequest* request : active_) {
    if (request->kind != IoKind::kBackgroundWrite || !request->Overlaps(first, end)) continue;
    marked |= !request->urgent.exchange(true, std::memory_order_release);
  }
  return marked;
}

void PageCache::Finish(WriteRequest* request, Error error) {
  std::unique_ptr<WriteRequest> owned(request);
  std::vector<std::shared_ptr<Waiter>> ready;
  bool first_dirty = false;
  {
    MutexLock lock(&mutex_);
    for (size_t i = 0; i < request->pages(); ++i) {
      auto entry = pages_.find(request->first_ + i);
      SLUICE_CHECK(entry != pages_.end() && entry->second.writeback);
      Page& page = entry->second;
      page.writeback = false;
      // What could not be written stays dirty and is tried again: nothing accepted is dropped.
      if (error != Error::kOk) first_dirty |= MakeDirty(page);
      if (!page.dirty) pages_.erase(entry);
    }
    if (error != Error::kOk) {
      last_error_.store(error, std::memory_order_release);
      error_sequence_.fetch_add(1, std::memory_order_acq_rel);
    }
    active_.erase(std::find(active_.begin(), active_.end(), request));
    for (std::shared_ptr<Waiter>& waiter : request->waiters_) {
      if (error != Error::kOk) waiter->error = error;
      if (--waiter->requests == 0) ready.push_back(std::move(waiter));
    }
  }
  if (error != Error::kOk) budget_->WriteFailed(error);
  if (first_dirty) on_first_dirty_();
  for (const std::shared_ptr<Waiter>& waiter : ready) waiter->done(waiter->error);
  // `owned` goes last: its keep_alive_ may hold the last reference to this cache's inode.
}

void PageCache::WhenWritten(FileBlock first, FileBlock end, std::function<void(Error)> done,
                            IoKind who) {
  auto waiter = std::make_shared<Waiter>();
  bool promote = false;
  {
    MutexLock lock(&mutex_);
    for (WriteRequest* request : active_) {
      if (!request->Overlaps(first, end)) continue;
      request->waiters_.push_back(waiter);
      ++waiter->requests;
    }
    if (who != IoKind::kBackgroundWrite) promote = MarkUrgent(first, end);
    if (waiter->requests > 0) waiter->done = std::exchange(done, nullptr);
  }
  if (promote) device_->Promote();
  if (done != nullptr) done(Error::kOk);
}

Error PageCache::WaitWritten(FileBlock first, FileBlock end, IoKind waiter) {
  SLUICE_CHECK(!Journal::ThreadHasHandle());
  struct Signal {
    Mutex mutex;
    CondVar ready;
    bool done ABSL_GUARDED_BY(mutex) = false;
    Error error ABSL_GUARDED_BY(mutex) = Error::kOk;
  };
  auto signal = std::make_shared<Signal>();
  auto done = [signal](Error error) {
    MutexLock lock(&signal->mutex);
    signal->done = true;
    signal->error = error;
    signal->ready.SignalAll();
  };
  WhenWritten(first, end, done, waiter);
  MutexLock lock(&signal->mutex);
  while (!signal->done) signal->ready.Wait(&signal->mutex);
  return signal->error;
}

bool PageCache::AnyUnderWriteback(FileBlock first, FileBlock end) const {
  MutexLock lock(&mutex_);
  return std::any_of(active_.begin(), active_.end(), [first, end](const WriteRequest* request) {
    return request->Overlaps(first, end);
  });
}

bool PageCache::AnyDirty(FileBlock first, FileBlock end) const {
  MutexLock lock(&mutex_);
  if (dirty_ == 0) return false;
  for (auto entry = pages_.lower_bound(first); entry != pages_.end() && entry->first < end;
       ++entry) {
    if (entry->second.dirty) return true;
  }
  return false;
}

bool PageCache::TryDrop(FileBlock first, FileBlock end) {
  MutexLock lock(&mutex_);
  const auto begin = pages_.lower_bound(first);
  auto entry = begin;
  for (; entry != pages_.end() && entry->first < end; ++entry) {
    if (entry->second.writeback) return false;
  }
  ++version_;
  for (auto page = begin; page != entry; ++page) {
    if (page->second.dirty) --dirty_;
  }
  pages_.erase(begin, entry);
  return true;
}

size_t PageCache::dirty_pages() const {
  MutexLock lock(&mutex_);
  return dirty_;
}

bool PageCache::idle() const {
  MutexLock lock(&mutex_);
  return dirty_ == 0 && active_.empty();
}

}  // namespace sluice
