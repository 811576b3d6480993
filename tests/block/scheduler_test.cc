// SPDX-License-Identifier: Apache-2.0
#include "block/scheduler.h"

#include <gtest/gtest.h>

#include <deque>
#include <thread>
#include <vector>

#include "block/memory_device.h"
#include "tests/support/held_device.h"
#include "tests/support/test_request.h"

namespace sluice {
namespace {

constexpr uint64_t kPiece = 64 << 10;

class SchedulerTest : public testing::Test {
 protected:
  // A write of kPiece bytes at piece `index`; not submitted.
  TestRequest& Write(uint64_t index, IoKind kind) {
    TestRequest& request = requests_.emplace_back(IoOp::kWrite, index * kPiece, memory_);
    request.kind = kind;
    return request;
  }
  TestRequest& Background(uint64_t index) {
    TestRequest& request = Write(index, IoKind::kBackgroundWrite);
    scheduler_.Submit(request.AsSpan());
    return request;
  }
  TestRequest& Foreground(uint64_t index) {
    TestRequest& request = Write(index, IoKind::kSyncWrite);
    scheduler_.Submit(request.AsSpan());
    return request;
  }
  void ReleaseAll() {
    while (held_.held() > 0) held_.ReleaseOne();
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(kPiece, std::byte{7});
  std::deque<TestRequest> requests_;
  MemoryDevice disk_{64 << 20};
  HeldDevice held_{&disk_};
  Scheduler scheduler_{&held_,
                       {.alone_requests = 4,
                        .alone_bytes = 64 * kPiece,
                        .beside_requests = 2,
                        .beside_bytes = 64 * kPiece}};
};

TEST_F(SchedulerTest, ContentsAndErrorsPassThrough) {
  const TestRequest& write = Foreground(3);
  EXPECT_EQ(write.buffers.size(), 1u);  // given back
  std::vector<std::byte> data(kPiece);
  ASSERT_EQ(scheduler_.Read(3 * kPiece, data), Error::kOk);
  EXPECT_EQ(data, memory_);
  EXPECT_EQ(scheduler_.Flush(), Error::kOk);
  disk_.RefuseWrites();
  EXPECT_EQ(Foreground(4).Wait(), Error::kIo);
  EXPECT_EQ(Background(5).Wait(), Error::kIo);
  EXPECT_EQ(scheduler_.Write(0, memory_), Error::kIo);
  EXPECT_EQ(scheduler_.Flush(), Error::kIo);
}

TEST_F(SchedulerTest, BackgroundIsHeldBackAndGoesOnInItsOrder) {
  held_.Hold(IoOp::kWrite);
  for (uint64_t i = 0; i < 10; ++i) Background(i);
  EXPECT_EQ(held_.held(), 4u);
  EXPECT_EQ(scheduler_.stats().queued, 6u);
  EXPECT_EQ(scheduler_.stats().held_back, 6u);
  held_.ReleaseOne();
  EXPECT_TRUE(requests_[0].done());
  EXPECT_EQ(held_.held(), 4u);
  EXPECT_EQ(scheduler_.stats().queued, 5u);
  ReleaseAll();
  for (TestRequest& request : requests_) EXPECT_EQ(request.times_done(), 1);
}

TEST_F(SchedulerTest, ForegroundNeverQueues) {
  held_.Hold(IoOp::kWrite);
  for (uint64_t i = 0; i < 10; ++i) Background(i);
  for (uint64_t i = 10; i < 30; ++i) Foreground(i);
  EXPECT_EQ(scheduler_.stats().foreground, 20u);
  EXPECT_EQ(held_.held(), 4u + 20u);
  ReleaseAll();
}

TEST_F(SchedulerTest, LessBackgroundBesideForegroundButNeverNone) {
  held_.Hold(IoOp::kWrite);
  Foreground(100);
  for (uint64_t i = 0; i < 10; ++i) Background(i);
  EXPECT_EQ(scheduler_.stats().background, 2u);
  // However many foreground requests follow one another, background work goes on beside them.
  for (uint64_t i = 0; i < 10; ++i) {
    Foreground(101 + i);
    held_.ReleaseOne();
    EXPECT_GE(scheduler_.stats().background + 10 - scheduler_.stats().queued, 1u);
  }
  const uint64_t queued = scheduler_.stats().queued;
  EXPECT_LT(queued, 8u);
  ReleaseAll();
  EXPECT_EQ(scheduler_.stats().queued, 0u);
}

TEST_F(SchedulerTest, TheLastForegroundRequestOpensTheDoor) {
  held_.Hold(IoOp::kWrite);
  Foreground(100);
  for (uint64_t i = 0; i < 10; ++i) Background(i);
  EXPECT_EQ(scheduler_.stats().background, 2u);
  held_.ReleaseOne();
  EXPECT_TRUE(requests_[0].done());
  EXPECT_EQ(scheduler_.stats().background, 4u);
  ReleaseAll();
}

TEST_F(SchedulerTest, OneBackgroundRequestGoesHoweverLargeItIs) {
  Scheduler narrow(&held_, {.alone_requests = 4, .alone_bytes = 1, .beside_requests = 2});
  held_.Hold(IoOp::kWrite);
  for (uint64_t i = 0; i < 3; ++i) narrow.Submit(Write(i, IoKind::kBackgroundWrite).AsSpan());
  EXPECT_EQ(narrow.stats().background, 1u);
  ReleaseAll();
  EXPECT_EQ(narrow.stats().queued, 0u);
}

TEST_F(SchedulerTest, APromotedRequestOvertakes) {
  held_.Hold(IoOp::kWrite);
  for (uint64_t i = 0; i < 10; ++i) Background(i);
  requests_[8].urgent = true;
  EXPECT_EQ(held_.held(), 4u);
  scheduler_.Promote();
  EXPECT_EQ(held_.held(), 5u);
  EXPECT_EQ(scheduler_.stats().promoted, 1u);
  EXPECT_EQ(scheduler_.stats().foreground, 1u);
  scheduler_.Promote();  // nothing new
  EXPECT_EQ(held_.held(), 5u);
  ReleaseAll();
  for (TestRequest& request : requests_) EXPECT_EQ(request.times_done(), 1);
}

TEST_F(SchedulerTest, ARequestMarkedUrgentBeforeItIsSubmittedDoesNotQueue) {
  held_.Hold(IoOp::kWrite);
  for (uint64_t i = 0; i < 10; ++i) Background(i);
  TestRequest& late = Write(20, IoKind::kBackgroundWrite);
  late.urgent = true;
  scheduler_.Promote();
  scheduler_.Submit(late.AsSpan());
  EXPECT_EQ(held_.held(), 5u);
  ReleaseAll();
}

TEST_F(SchedulerTest, BlockingFormsCountAsForeground) {
  held_.Hold(IoOp::kFlush);
  std::thread flusher([this] { EXPECT_EQ(scheduler_.Flush(), Error::kOk); });
  held_.WaitForHeld(1);
  held_.Hold(IoOp::kWrite);
  for (uint64_t i = 0; i < 10; ++i) Background(i);
  EXPECT_EQ(scheduler_.stats().background, 2u);
  held_.ReleaseOne();
  flusher.join();
  EXPECT_EQ(scheduler_.stats().background, 4u);
  ReleaseAll();
}

TEST_F(SchedulerTest, ManyThreadsLoseNothing) {
  constexpr int kThreads = 4, kEach = 300;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      std::deque<TestRequest> mine;
      for (int i = 0; i < kEach; ++i) {
        TestRequest& request = mine.emplace_back(IoOp::kWrite, kPiece * t, memory_);
        request.kind = i % 3 == 0 ? IoKind::kSyncWrite : IoKind::kBackgroundWrite;
        scheduler_.Submit(request.AsSpan());
        if (i % 7 == 0) {
          request.urgent = true;
          scheduler_.Promote();
        }
      }
      for (TestRequest& request : mine) EXPECT_EQ(request.Wait(), Error::kOk);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(scheduler_.stats().queued, 0u);
  EXPECT_EQ(disk_.count(IoOp::kWrite), static_cast<uint64_t>(kThreads * kEach));
}

}  // namespace
}  // namespace sluice
