// SPDX-License-Identifier: Apache-2.0
//
// J3 on a whole filesystem: whoever waits for data that the flusher has queued is not kept waiting
// by what else is queued.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "block/scheduler.h"
#include "fs/inode.h"
#include "tests/support/fs_fixture.h"
#include "tests/support/held_device.h"

namespace sluice {
namespace {

using testing_support::Files;
using testing_support::NewImage;

// One background write in the device at a time.
constexpr SchedulerOptions kNarrow = {.alone_requests = 1, .beside_requests = 1};
constexpr size_t kCrowd = 5;

class PromotionTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string message;
    auto mounted = Filesystem::Mount(&scheduler_, {}, &message);
    ASSERT_TRUE(mounted.ok()) << message;
    fs_ = std::move(mounted).value();
    const InodeRef root = Files(fs_.get()).Root();
    for (size_t i = 0; i < kCrowd; ++i) {
      crowd_.push_back(Files(fs_.get()).Create(root, "file" + std::to_string(i)).value());
    }
  }

  // Mapped and durable, so that what comes next are overwrites, which no transaction waits for.
  void WriteAndSync() {
    WriteAll('o');
    ASSERT_EQ(fs_->Sync(), Error::kOk);
  }

  // Every file has a page under writeback as background work: one in the device, held there, the
  // others queued behind it.
  void QueueCrowd() {
    WriteAll('n');
    held_.Hold(IoOp::kWrite);
    for (const InodeRef& file : crowd_) {
      ASSERT_EQ(file->StartWriteback(SIZE_MAX, IoKind::kBackgroundWrite), 1u);
    }
    ASSERT_EQ(held_.held(), 1u);
    ASSERT_EQ(scheduler_.stats().queued, kCrowd - 1);
  }

  Error Fsync(const InodeRef& file) {
    std::promise<Error> result;
    const Error error = RunBlocking([&](Attempt& attempt) {
      return fs_->Fsync(attempt, nullptr, file, /*data_only=*/true,
                        [&](Error end) { result.set_value(end); });
    });
    return error != Error::kOk ? error : result.get_future().get();
  }

  void WriteAll(char value) {
    for (const InodeRef& file : crowd_) {
      ASSERT_EQ(Files(fs_.get()).Write(file, 0, std::string(kBlockSize, value)), Error::kOk);
    }
  }

  void ReleaseAndUnmount() {
    held_.Release();
    EXPECT_EQ(fs_->Unmount(), Error::kOk);
    crowd_.clear();
    fs_.reset();
  }

  std::unique_ptr<MemoryDevice> disk_ = NewImage(64 << 20);
  HeldDevice held_{disk_.get()};
  Scheduler scheduler_{&held_, kNarrow};
  std::unique_ptr<Filesystem> fs_;
  std::vector<InodeRef> crowd_;
};

TEST_F(PromotionTest, FsyncOvertakesTheFlushersQueue) {
  WriteAndSync();
  QueueCrowd();
  std::thread waiter([this] { EXPECT_EQ(Fsync(crowd_.back()), Error::kOk); });
  held_.WaitForHeld(2);  // the last file's page, beside the first's that was there already
  EXPECT_EQ(scheduler_.stats().promoted, 1u);
  EXPECT_EQ(scheduler_.stats().queued, kCrowd - 2);
  held_.Release();
  waiter.join();
  ReleaseAndUnmount();
}

TEST_F(PromotionTest, ACommitPromotesTheOrderedDataItWaitsFor) {
  QueueCrowd();
  std::thread waiter(
      [this] { EXPECT_EQ(fs_->journal()->CommitAll(CommitReason::kSync), Error::kOk); });
  // New files: their pages are ordered data of the transaction that made them reachable.
  held_.WaitForHeld(kCrowd);
  EXPECT_EQ(scheduler_.stats().promoted, kCrowd - 1);
  EXPECT_EQ(scheduler_.stats().queued, 0u);
  held_.Release();
  waiter.join();
  ReleaseAndUnmount();
}

TEST_F(PromotionTest, TruncateOvertakesTheFlushersQueue) {
  WriteAndSync();
  QueueCrowd();
  std::thread waiter([this] {
    AttributeChange change;
    change.size = 0;
    EXPECT_TRUE(Files(fs_.get()).SetAttributes(crowd_.back(), change).ok());
  });
  held_.WaitForHeld(2);
  EXPECT_EQ(scheduler_.stats().promoted, 1u);
  held_.Release();
  waiter.join();
  ReleaseAndUnmount();
}

}  // namespace
}  // namespace sluice
