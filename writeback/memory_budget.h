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
  PageBuffer(MemoryBudget* budget, AlignedBuffer memory)
      : budget_(budget), memory_(std::move(memory)) {}
  ~PageBuffer();
  std::byte* data() { return memory_.data(); }
  std::span<std::byte> span() { return memory_.span(); }

 private:
  MemoryBudget* const budget_;
  AlignedBuffer memory_;
};

// Thread-safe.
class MemoryBudget {
 public:
  // `limit_bytes` of dirty and under-writeback pages; a writer passes while less is in use.
  explicit MemoryBudget(size_t limit_bytes);

  std::shared_ptr<PageBuffer> NewPage();  // uninitialised

  // kOk below the limit; otherwise asks for writeout (the function set below) and tells `attempt`
  // to wait until memory is below the limit.
  Error Admit(Attempt& attempt);
  // Called, with no lock held, when pages in use pass half the limit, and when a writer waits.
  void SetOnPressure(std::function<void()> on_pressure);

  size_t bytes_in_use() const { return pages_.load(std::memory_order_relaxed) * kBlockSize; }
  size_t limit_bytes() const { return limit_pages_ * kBlockSize; }

 private:
  friend class PageBuffer;
  void Return(AlignedBuffer memory);

  const size_t limit_pages_;
  std::atomic<size_t> pages_{0};
  Mutex mutex_;
  CondVar below_limit_;
  std::vector<AlignedBuffer> pool_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> on_pressure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_WRITEBACK_MEMORY_BUDGET_H_
