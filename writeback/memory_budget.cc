// SPDX-License-Identifier: Apache-2.0
#include "writeback/memory_budget.h"

#include <algorithm>

#include "journal/journal.h"

namespace sluice {
namespace {

constexpr size_t kSlabPages = 256;

}  // namespace

PageBuffer::~PageBuffer() { budget_->Return(memory_); }

MemoryBudget::MemoryBudget(size_t limit_bytes)
    : limit_pages_(std::max<size_t>(limit_bytes / kBlockSize, kSlabPages)) {}

std::shared_ptr<PageBuffer> MemoryBudget::NewPage() {
  pages_.fetch_add(1, std::memory_order_relaxed);
  std::byte* memory;
  {
    MutexLock lock(&mutex_);
    if (free_.empty()) {
      slabs_.emplace_back(kSlabPages * kBlockSize);
      for (size_t i = kSlabPages; i-- > 0;) free_.push_back(slabs_.back().data() + i * kBlockSize);
    }
    memory = free_.back();
    free_.pop_back();
  }
  return std::make_shared<PageBuffer>(this, memory);
}

void MemoryBudget::Return(std::byte* memory) {
  const size_t before = pages_.fetch_sub(1, std::memory_order_relaxed);
  MutexLock lock(&mutex_);
  free_.push_back(memory);
  if (before == limit_pages_) changed_.SignalAll();
}

Error MemoryBudget::Admit(Attempt& attempt) {
  const size_t pages = pages_.load(std::memory_order_relaxed);
  if (pages > limit_pages_ / 2 && on_pressure_) on_pressure_();
  if (pages < limit_pages_) return Error::kOk;
  return attempt.Block([this] {
    SLUICE_CHECK(!Journal::ThreadHasHandle());
    MutexLock lock(&mutex_);
    const uint64_t passes = passes_, failures = failures_;
    while (pages_.load(std::memory_order_relaxed) >= limit_pages_) {
      if (passes_ != passes) return failures_ == failures ? Error::kOk : last_failure_;
      changed_.Wait(&mutex_);
    }
    return Error::kOk;
  });
}

void MemoryBudget::SetOnPressure(std::function<void()> on_pressure) {
  on_pressure_ = std::move(on_pressure);
}

void MemoryBudget::WriteFailed(Error error) {
  MutexLock lock(&mutex_);
  ++failures_;
  last_failure_ = error;
}

void MemoryBudget::PassEnded() {
  MutexLock lock(&mutex_);
  ++passes_;
  changed_.SignalAll();
}

}  // namespace sluice
