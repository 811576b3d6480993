// SPDX-License-Identifier: Apache-2.0
#include "writeback/flusher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

namespace sluice {
namespace {

// Has a number of dirty pages, and writes them when told.
class FakeTarget : public FlushTarget {
 public:
  explicit FakeTarget(size_t dirty) : dirty_(dirty) {}
  size_t StartWriteback(size_t max_pages, IoKind) override {
    MutexLock lock(&mutex_);
    const size_t pages = std::min(max_pages, dirty_);
    dirty_ -= pages;
    changed_.SignalAll();
    return pages;
  }
  void WaitWriteback(IoKind) override {}
  uint64_t WriteErrors() override { return 0; }
  size_t DirtyPages() override {
    MutexLock lock(&mutex_);
    return dirty_;
  }
  void WaitClean() {
    MutexLock lock(&mutex_);
    while (dirty_ > 0) changed_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  size_t dirty_ ABSL_GUARDED_BY(mutex_);
};

TEST(Flusher, FlushAllWritesEverythingAndLetsGo) {
  MemoryBudget budget(1 << 20);
  Flusher flusher({.manual = true}, &budget);
  auto small = std::make_shared<FakeTarget>(3);
  auto large = std::make_shared<FakeTarget>(5000);
  flusher.Add(small);
  flusher.Add(large);
  flusher.FlushAll();
  EXPECT_EQ(small->DirtyPages(), 0u);
  EXPECT_EQ(large->DirtyPages(), 0u);
  EXPECT_EQ(small.use_count(), 1);
  EXPECT_EQ(large.use_count(), 1);
}

// A disk that takes nothing: each write fails, and the pages are dirty again.
class FailingTarget : public FlushTarget {
 public:
  FailingTarget(MemoryBudget* budget, size_t dirty) : budget_(budget), dirty_(dirty) {}
  size_t StartWriteback(size_t max_pages, IoKind) override {
    ++errors_;
    budget_->WriteFailed(Error::kNoSpace);
    return std::min(max_pages, dirty_);
  }
  void WaitWriteback(IoKind) override {}
  size_t DirtyPages() override { return dirty_; }
  uint64_t WriteErrors() override { return errors_; }

 private:
  MemoryBudget* const budget_;
  const size_t dirty_;
  std::atomic<uint64_t> errors_{0};
};

TEST(Flusher, APassEndsThoughNothingCanBeWritten) {
  MemoryBudget budget(256 * kBlockSize);
  Flusher flusher({.manual = true}, &budget);
  auto failing = std::make_shared<FailingTarget>(&budget, 50000);
  auto good = std::make_shared<FakeTarget>(5000);
  flusher.Add(failing);
  flusher.Add(good);
  flusher.FlushAll();
  EXPECT_EQ(good->DirtyPages(), 0u);
  EXPECT_EQ(failing->DirtyPages(), 50000u);
  EXPECT_EQ(failing->WriteErrors(), 1u);
}

TEST(Flusher, AWriterOverTheLimitIsRefusedWhenNothingCanBeWritten) {
  MemoryBudget budget(256 * kBlockSize);
  Flusher flusher({.wake_interval = 1'000'000, .expire = 0}, &budget);
  flusher.Add(std::make_shared<FailingTarget>(&budget, 50000));
  std::vector<std::shared_ptr<PageBuffer>> pages;
  while (budget.bytes_in_use() < budget.limit_bytes()) pages.push_back(budget.NewPage());
  EXPECT_EQ(RunBlocking([&](Attempt& attempt) { return budget.Admit(attempt); }), Error::kNoSpace);
}

TEST(Flusher, OldFilesAreWrittenByTheThread) {
  MemoryBudget budget(1 << 20);
  Flusher flusher({.wake_interval = 1'000'000, .expire = 0}, &budget);
  auto target = std::make_shared<FakeTarget>(10);
  flusher.Add(target);
  target->WaitClean();
}

TEST(Flusher, PressureWritesYoungFilesToo) {
  MemoryBudget budget(256 * kBlockSize);
  Flusher flusher({.wake_interval = int64_t{3600} * 1'000'000'000}, &budget);
  auto target = std::make_shared<FakeTarget>(10);
  flusher.Add(target);
  std::vector<std::shared_ptr<PageBuffer>> pages;
  for (int i = 0; i < 130; ++i) pages.push_back(budget.NewPage());
  Attempt attempt;
  EXPECT_EQ(budget.Admit(attempt), Error::kOk);
  target->WaitClean();
}

TEST(Flusher, AWriterAtTheLimitLooksAgainWhenAPassHasEnded) {
  MemoryBudget budget(256 * kBlockSize);
  std::vector<std::shared_ptr<PageBuffer>> pages;
  for (int i = 0; i < 256; ++i) pages.push_back(budget.NewPage());
  Flusher flusher({.wake_interval = 1'000'000}, &budget);
  Attempt attempt;
  EXPECT_EQ(budget.Admit(attempt), Error::kWouldBlock);
  EXPECT_EQ(attempt.Wait(), Error::kOk);  // nothing was freed, but it does not hang
}

}  // namespace
}  // namespace sluice
