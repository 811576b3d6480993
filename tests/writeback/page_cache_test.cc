// SPDX-License-Identifier: Apache-2.0
#include "writeback/page_cache.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "block/scheduler.h"
#include "tests/writeback/held_device.h"

namespace sluice {
namespace {

constexpr FileBlock kEnd = 1000;

class PageCacheTest : public testing::Test {
 protected:
  static std::vector<std::byte> Bytes(size_t size, char value) {
    return std::vector<std::byte>(size, static_cast<std::byte>(value));
  }
  void WritePage(FileBlock index, char value, BlockNumber block) {
    cache_.Write(index, 0, Bytes(kBlockSize, value), block);
  }
  size_t Start() { return cache_.StartWriteout(0, kEnd, IoKind::kBackgroundWrite, 0, nullptr); }
  char OnDisk(BlockNumber block, size_t offset = 0) {
    std::vector<std::byte> data(kBlockSize);
    EXPECT_EQ(device_.disk().Read(block * kBlockSize, data), Error::kOk);
    return static_cast<char>(data[offset]);
  }
  char InMemory(FileBlock index, uint32_t offset = 0) {
    std::byte value{};
    EXPECT_TRUE(cache_.Read(index, offset, {&value, 1}));
    return static_cast<char>(value);
  }

  HeldDevice device_{kBlockSize * 256};
  MemoryBudget budget_{1 << 20};
  int first_dirty_ = 0;
  PageCache cache_{&device_, &budget_, [this] { ++first_dirty_; }};
};

TEST_F(PageCacheTest, APartialWriteIntoANewPageIsSurroundedByZeros) {
  cache_.Write(3, 100, Bytes(10, 'a'), 50);
  EXPECT_EQ(InMemory(3, 99), 0);
  EXPECT_EQ(InMemory(3, 100), 'a');
  EXPECT_EQ(InMemory(3, 110), 0);
  Start();
  device_.Release();
  EXPECT_EQ(OnDisk(50, 109), 'a');
  EXPECT_EQ(OnDisk(50, 110), 0);
  EXPECT_FALSE(cache_.Contains(3));
}

TEST_F(PageCacheTest, ContiguousPagesGoInOneRequest) {
  for (int i = 0; i < 5; ++i) WritePage(10 + i, 'a', 100 + i);
  WritePage(15, 'b', 120);  // next page, another place
  WritePage(17, 'c', 121);  // next block, another page
  EXPECT_EQ(Start(), 7u);
  ASSERT_EQ(device_.held(), 3u);
  EXPECT_EQ(device_.length(0), 5u * kBlockSize);
  device_.Release();
  EXPECT_TRUE(cache_.idle());
}

TEST_F(PageCacheTest, AWriteDuringWritebackKeepsTheOldCopyOnItsWay) {
  WritePage(1, 'a', 10);
  Start();
  cache_.Write(1, 1, Bytes(1, 'b'), 10);
  EXPECT_EQ(InMemory(1, 0), 'a');  // the new copy began with the old contents
  EXPECT_EQ(InMemory(1, 1), 'b');
  EXPECT_EQ(Start(), 0u);  // not while the first is on its way: the two would not be ordered
  device_.Release();
  EXPECT_EQ(OnDisk(10, 1), 'a');
  EXPECT_EQ(cache_.dirty_pages(), 1u);
  EXPECT_EQ(Start(), 1u);
  device_.Release();
  EXPECT_EQ(OnDisk(10, 1), 'b');
  EXPECT_TRUE(cache_.idle());
}

TEST_F(PageCacheTest, AFailedWriteKeepsThePageAndCountsTheError) {
  WritePage(1, 'a', 10);
  Start();
  std::optional<Error> seen;
  cache_.WhenWritten(0, kEnd, [&](Error error) { seen = error; });
  EXPECT_FALSE(seen.has_value());
  device_.Release(Error::kNoSpace);
  EXPECT_EQ(seen, Error::kNoSpace);
  EXPECT_EQ(cache_.error_sequence(), 1u);
  EXPECT_EQ(cache_.last_error(), Error::kNoSpace);
  EXPECT_EQ(cache_.dirty_pages(), 1u);
  EXPECT_EQ(Start(), 1u);
  device_.Release();
  EXPECT_EQ(OnDisk(10), 'a');
}

TEST_F(PageCacheTest, WhenWrittenWaitsForItsRangeOnly) {
  WritePage(1, 'a', 10);
  WritePage(5, 'b', 20);
  cache_.StartWriteout(5, 6, IoKind::kSyncWrite, 0, nullptr);
  bool low = false;
  bool high = false;
  cache_.WhenWritten(0, 5, [&](Error) { low = true; });
  cache_.WhenWritten(5, kEnd, [&](Error) { high = true; });
  EXPECT_TRUE(low);
  EXPECT_FALSE(high);
  EXPECT_TRUE(cache_.AnyUnderWriteback(0, kEnd));
  EXPECT_FALSE(cache_.AnyUnderWriteback(0, 5));
  device_.Release();
  EXPECT_TRUE(high);
  ASSERT_TRUE(cache_.TryDrop(0, kEnd));
}

TEST_F(PageCacheTest, NothingIsDroppedWhileAPageOfTheRangeIsUnderWriteback) {
  WritePage(1, 'a', 10);
  Start();
  WritePage(0, 'b', 9);
  EXPECT_FALSE(cache_.TryDrop(0, kEnd));
  EXPECT_EQ(InMemory(0), 'b');
  EXPECT_EQ(cache_.dirty_pages(), 1u);
  EXPECT_TRUE(cache_.TryDrop(0, 1));
  EXPECT_EQ(cache_.dirty_pages(), 0u);
  device_.Release();
  EXPECT_TRUE(cache_.TryDrop(0, kEnd));
}

TEST_F(PageCacheTest, WhoWaitsPromotesWhatTheFlusherQueued) {
  Scheduler scheduler(&device_, {.alone_requests = 1, .beside_requests = 1});
  PageCache cache(&scheduler, &budget_, [] {});
  for (FileBlock page : {0, 2, 4, 6}) cache.Write(page, 0, Bytes(kBlockSize, 'x'), 10 + page);
  ASSERT_EQ(cache.StartWriteout(0, kEnd, IoKind::kBackgroundWrite, 0, nullptr), 4u);
  ASSERT_EQ(device_.held(), 1u);
  int done = 0;
  cache.WhenWritten(
      0, kEnd, [&](Error) { ++done; }, IoKind::kBackgroundWrite);
  EXPECT_EQ(device_.held(), 1u);
  cache.WhenWritten(4, 5, [&](Error) { ++done; });
  EXPECT_EQ(device_.held(), 2u);
  EXPECT_EQ(device_.offset(1), 14 * kBlockSize);
  // A sync writeout of everything has nothing new to start, but makes the rest urgent.
  EXPECT_EQ(cache.StartWriteout(0, kEnd, IoKind::kSyncWrite, 0, nullptr), 0u);
  EXPECT_EQ(device_.held(), 4u);
  device_.Release();
  EXPECT_EQ(done, 2);
}

TEST_F(PageCacheTest, APageReadBeforeAChangeIsNotPutIn) {
  const uint64_t version = cache_.version();
  WritePage(7, 'n', 30);
  EXPECT_FALSE(cache_.InsertClean(8, 31, budget_.NewPage(), version));
  EXPECT_FALSE(cache_.Contains(8));
  EXPECT_TRUE(cache_.InsertClean(8, 31, budget_.NewPage(), cache_.version()));
  EXPECT_TRUE(cache_.Contains(8));
  ASSERT_TRUE(cache_.TryDrop(0, kEnd));
  EXPECT_FALSE(cache_.Contains(7));
  EXPECT_EQ(cache_.dirty_pages(), 0u);
}

TEST_F(PageCacheTest, ZeroingWhatIsZeroMakesNothingDirty) {
  PageMemory page = budget_.NewPage();
  std::fill_n(page->data(), kBlockSize, std::byte{0});
  page->data()[5] = std::byte{1};
  ASSERT_TRUE(cache_.InsertClean(2, 40, std::move(page), cache_.version()));
  cache_.Zero(2, 6, kBlockSize);
  EXPECT_EQ(cache_.dirty_pages(), 0u);
  cache_.Zero(2, 5, kBlockSize);
  EXPECT_EQ(cache_.dirty_pages(), 1u);
  EXPECT_EQ(InMemory(2, 5), 0);
  ASSERT_TRUE(cache_.TryDrop(0, kEnd));
}

TEST_F(PageCacheTest, TellsOfTheFirstDirtyPageOnly) {
  WritePage(1, 'a', 10);
  WritePage(2, 'a', 11);
  EXPECT_EQ(first_dirty_, 1);
  Start();
  WritePage(1, 'b', 10);
  EXPECT_EQ(first_dirty_, 2);
  device_.Release();
  Start();
  device_.Release();
}

TEST_F(PageCacheTest, AtMostMaxPagesAreStartedByWholeRuns) {
  for (int i = 0; i < 4; ++i) WritePage(2 * i, 'a', 10 + 2 * i);
  EXPECT_EQ(cache_.StartWriteout(0, kEnd, IoKind::kBackgroundWrite, 0, nullptr, 2), 2u);
  EXPECT_EQ(cache_.dirty_pages(), 2u);
  device_.Release();
  ASSERT_TRUE(cache_.TryDrop(0, kEnd));
}

TEST(MemoryBudget, AWriterWaitsOnlyAtTheLimit) {
  MemoryBudget budget(256 * kBlockSize);
  int pressure = 0;
  budget.SetOnPressure([&] { ++pressure; });
  std::vector<PageMemory> pages;
  Attempt attempt;
  for (int i = 0; i < 256; ++i) {
    EXPECT_EQ(budget.Admit(attempt), Error::kOk);
    pages.push_back(budget.NewPage());
  }
  EXPECT_GT(pressure, 0);
  EXPECT_EQ(budget.Admit(attempt), Error::kWouldBlock);
  pages.pop_back();
  EXPECT_EQ(attempt.Wait(), Error::kOk);
  EXPECT_EQ(budget.Admit(attempt), Error::kOk);
}

}  // namespace
}  // namespace sluice
