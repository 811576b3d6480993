// SPDX-License-Identifier: Apache-2.0
//
// Memory for file pages: recycled 4 KiB buffers, and the count of dirty ones against the limit of
// `-o cache=`. A writer over the limit is told to wait (attempt protocol) until writeout has
// caught up.
#ifndef SLUICE_WRITEBACK_MEMORY_BUDGET_H_
#define SLUICE_WRITEBACK_MEMORY_BUDGET_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/units.h"
#include "block/attempt.h"

namespace sluice {

class MemoryBudget;

// 4 KiB of page-aligned memory that returns to the budget's pool.
class PageBuffer {
 public:
  PageBuffer(MemoryBudget* budget, std::byte* memory) : budget_(budget), memory_(memory) {}
  ~PageBuffer();
  PageBuffer(const PageBuffer&) = delete;
  PageBuffer& operator=(const PageBuffer&) = delete;

  std::byte* data() { return memory_; }
  std::span<std::byte> span() { return {memory_, kBlockSize}; }

 private:
  MemoryBudget* const budget_;
  std::byte* const memory_;
};

// Thread-safe.
class MemoryBudget {
 public:
  // `limit_bytes` of dirty and under-writeback pages; a writer passes while less is in use.
  explicit MemoryBudget(size_t limit_bytes);

  std::shared_ptr<PageBuffer> NewPage();  // uninitialised

  // kOk below the limit; otherwise asks for writeout and tells `attempt` to wait until memory is
  // below the limit or a writeout pass has ended. If that pass could not write, the wait ends with
  // the error: the writer is refused, since what was accepted before keeps its memory. Past half
  // the limit it asks for writeout too, but lets the writer go on. Called before a writer takes any
  // lock.
  Error Admit(Attempt& attempt);
  // What asks for writeout; set once, before the first Admit. Never waits.
  void SetOnPressure(std::function<void()> on_pressure);
  // A writeout pass has ended: writers that wait look again (the device may be failing).
  void PassEnded();
  // A page could not be written and stays dirty.
  void WriteFailed(Error error);

  // Whether writeout should go on until memory is well below the limit.
  bool under_pressure() const { return pages_.load(std::memory_order_relaxed) > limit_pages_ / 4; }
  size_t bytes_in_use() const { return pages_.load(std::memory_order_relaxed) * kBlockSize; }
  size_t limit_bytes() const { return limit_pages_ * kBlockSize; }

 private:
  friend class PageBuffer;
  void Return(std::byte* memory);

  const size_t limit_pages_;
  std::atomic<size_t> pages_{0};
  std::function<void()> on_pressure_;
  Mutex mutex_;
  CondVar changed_;
  uint64_t passes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t failures_ ABSL_GUARDED_BY(mutex_) = 0;
  Error last_failure_ ABSL_GUARDED_BY(mutex_) = Error::kOk;
  // Pages come from slabs that are kept: fresh memory from the kernel costs more than the copy into
  // it, and what was needed once will be needed again.
  std::vector<AlignedBuffer> slabs_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::byte*> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_WRITEBACK_MEMORY_BUDGET_H_
