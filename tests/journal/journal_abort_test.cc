// SPDX-License-Identifier: Apache-2.0
//
// A failed log write or flush stops everything, in one place; everybody who waits is told.
#include <gtest/gtest.h>

#include <string_view>

#include "base/log.h"
#include "base/mutex.h"
#include "block/memory_device.h"
#include "tests/journal/journal_fixture.h"

namespace sluice {
namespace {

constexpr BlockNumber kA = kFirstTestBlock;

class QuietLog {
 public:
  QuietLog() {
    SetLogSink([](LogLevel, std::string_view) {});
  }
  ~QuietLog() { SetLogSink(nullptr); }
};

// Ten transactions with a checkpoint now and then; the nth request of the kind fails. Returns false
// once n lies beyond the last request.
bool FailOne(IoOp op, uint64_t nth) {
  MemoryDevice device(kTestBlocks * kBlockSize);
  FormatLog(&device);
  JournalUnderTest test(&device);
  Journal& journal = test.journal();
  int aborts = 0;
  journal.SetOnAbort([&](Error error, const std::string& reason) {
    ++aborts;
    EXPECT_EQ(error, Error::kIo);
    EXPECT_FALSE(reason.empty());
  });
  device.FailNth(op, nth);

  uint64_t durable = 0, callbacks = 0, waiters = 0, version = 0;
  Error failure = Error::kOk;
  while (version < 10 && failure == Error::kOk) {
    ++version;
    {
      Handle handle = test.Start(2);
      test.Set(handle, kA, version);
      test.Set(handle, kA + version, version);
      handle.OnCommit([&](Error) { ++callbacks; });
      journal.WhenCommitted(handle.tid(), [&](Error) { ++waiters; });
    }
    failure = journal.CommitNow(CommitReason::kFsync);
    if (failure == Error::kOk) durable = version;
    if (failure == Error::kOk && version % 3 == 0) failure = journal.CheckpointNow();
  }
  EXPECT_EQ(callbacks, version);
  EXPECT_EQ(waiters, version);
  if (failure == Error::kOk) {
    const bool closed = journal.Close() == Error::kOk;
    EXPECT_EQ(closed, !journal.aborted());
    if (closed) return false;
  }

  EXPECT_TRUE(journal.aborted());
  EXPECT_EQ(aborts, 1);
  Attempt attempt;
  EXPECT_EQ(journal.TryStart(attempt, OpType::kMisc, 1).error(), Error::kReadOnly);
  Error told = Error::kOk;
  journal.WhenCommitted(1000, [&](Error error) { told = error; });
  EXPECT_EQ(told, Error::kIo);
  const uint64_t writes = device.count(IoOp::kWrite), flushes = device.count(IoOp::kFlush);
  EXPECT_EQ(journal.Close(), Error::kIo);
  EXPECT_EQ(device.count(IoOp::kWrite), writes) << "something was written after the abort";
  EXPECT_EQ(device.count(IoOp::kFlush), flushes);

  // What was reported durable is there.
  device.ClearFaults();
  LogArea log;
  ReplayOrFail(&device, &log);
  for (uint64_t v = 1; v <= durable; ++v) EXPECT_EQ(VersionOnDevice(&device, kA + v), v);
  if (durable > 0) {
    EXPECT_GE(VersionOnDevice(&device, kA).value_or(0), durable);
  }
  return true;
}

TEST(JournalAbortTest, EveryFailedWriteStopsTheJournal) {
  QuietLog quiet;
  uint64_t nth = 1;
  while (FailOne(IoOp::kWrite, nth) && !testing::Test::HasFailure()) ++nth;
  EXPECT_FALSE(testing::Test::HasFailure()) << "write " << nth;
  EXPECT_GT(nth, 20u);
}

TEST(JournalAbortTest, EveryFailedFlushStopsTheJournal) {
  QuietLog quiet;
  uint64_t nth = 1;
  while (FailOne(IoOp::kFlush, nth) && !testing::Test::HasFailure()) ++nth;
  EXPECT_FALSE(testing::Test::HasFailure()) << "flush " << nth;
  EXPECT_GT(nth, 20u);
}

// With threads, the commit thread tells those who wait, also of the transaction that was running.
TEST(JournalAbortTest, WaitersOfTheRunningTransactionAreTold) {
  QuietLog quiet;
  MemoryDevice device(kTestBlocks * kBlockSize);
  FormatLog(&device);
  JournalUnderTest test(&device, JournalOptions{});
  Mutex mutex;
  CondVar told;
  int errors = 0;
  const auto count = [&](Error error) {
    MutexLock lock(&mutex);
    errors += error == Error::kCorrupt;
    told.Signal();
  };
  {
    Handle handle = test.Start(1);
    test.Set(handle, kA, 1);
    handle.OnCommit(count);
    test.journal().WhenCommitted(handle.tid(), count);
    test.journal().Abort(Error::kCorrupt, "a test says so");
    test.journal().Abort(Error::kIo, "a second reason does not count");
  }
  {
    MutexLock lock(&mutex);
    while (errors < 2) told.Wait(&mutex);
  }
  EXPECT_EQ(test.journal().CommitAll(CommitReason::kSync), Error::kCorrupt);
  EXPECT_EQ(test.journal().Close(), Error::kIo);
  EXPECT_EQ(VersionOnDevice(&device, kA), std::nullopt);
}

// A sparse image on a full host: a home block has no room, while the log, written once, has.
class JournalHostFullTest : public testing::Test {
 protected:
  JournalHostFullTest() : device_(kTestBlocks * kBlockSize) {
    FormatLog(&device_);
    FillHost();
  }
  void FillHost() {
    device_.FailRange(IoOp::kWrite, kA * kBlockSize, (kTestBlocks - kA) * kBlockSize,
                      Error::kNoSpace);
  }
  // Changes one block after another until a start is refused; the number of durable transactions.
  uint64_t FillLog(JournalUnderTest* test) {
    for (uint64_t version = 1;; ++version) {
      Result<Handle> handle = RunBlocking(
          [&](Attempt& attempt) { return test->journal().TryStart(attempt, OpType::kMisc, 1); });
      if (!handle.ok()) {
        EXPECT_EQ(handle.error(), Error::kNoSpace);
        return version - 1;
      }
      test->Set(*handle, kA + version, version);
      handle->Stop();
      EXPECT_EQ(test->journal().CommitAll(CommitReason::kFsync), Error::kOk);
    }
  }
  void FillAndMakeRoom(const JournalOptions& options) {
    JournalUnderTest test(&device_, options);
    const uint64_t last = FillLog(&test);
    EXPECT_GT(last, 10u);
    EXPECT_FALSE(test.journal().aborted());
    device_.ClearFaults();
    test.SetOne(kA, 7);
    EXPECT_EQ(test.journal().Close(), Error::kOk);
    for (uint64_t v = 1; v <= last; ++v) EXPECT_EQ(VersionOnDevice(&device_, kA + v), v);
    EXPECT_EQ(VersionOnDevice(&device_, kA), 7u);
  }

  QuietLog quiet_;
  MemoryDevice device_;
};

TEST_F(JournalHostFullTest, StartsAreRefusedUntilThereIsRoom) {
  FillAndMakeRoom(JournalUnderTest::ManualOptions());
}

TEST_F(JournalHostFullTest, TheThreadsNeitherStopNorHang) { FillAndMakeRoom(JournalOptions{}); }

// Only home blocks may lack room: a log write that fails for it stops the journal as any other.
TEST_F(JournalHostFullTest, LogWritesMustHaveRoom) {
  device_.ClearFaults();
  uint64_t contiguous = 0;
  device_.FailRange(IoOp::kWrite, TestLog().DeviceOffset(2, &contiguous), kBlockSize,
                    Error::kNoSpace);
  JournalUnderTest test(&device_);
  test.SetOne(kA, 5);
  EXPECT_EQ(test.journal().CommitAll(CommitReason::kSync), Error::kNoSpace);
  EXPECT_TRUE(test.journal().aborted());
  EXPECT_EQ(test.journal().Close(), Error::kIo);
}

// What is home is released though something newer has no room.
TEST_F(JournalHostFullTest, OlderTransactionsAreReleased) {
  device_.ClearFaults();
  device_.FailRange(IoOp::kWrite, (kA + 1) * kBlockSize, kBlockSize, Error::kNoSpace);
  JournalUnderTest test(&device_);
  for (uint64_t i = 0; i < 3; ++i) {
    test.SetOne(kA + i, i + 1);
    ASSERT_EQ(test.journal().CommitAll(CommitReason::kSync), Error::kOk);
  }
  EXPECT_EQ(test.journal().CheckpointNow(), Error::kNoSpace);
  LogArea log = TestLog();
  ASSERT_EQ(log.ReadState(&device_), Error::kOk);
  EXPECT_EQ(log.state.tail_tid, 2u);
  EXPECT_EQ(VersionOnDevice(&device_, kA), 1u);
  // A crash now, and room at the next mount.
  const std::unique_ptr<MemoryDevice> crashed = device_.Clone();
  EXPECT_EQ(ReplayOrFail(crashed.get(), &log).transactions, 2u);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(VersionOnDevice(crashed.get(), kA + i), i + 1);
  // Freeing the block that has no room lets the rest go on.
  {
    Handle handle = test.Start(0, 1);
    handle.RevokeBlock(kA + 1);
  }
  EXPECT_EQ(test.journal().Close(), Error::kOk);
  EXPECT_EQ(VersionOnDevice(&device_, kA + 2), 3u);
}

TEST_F(JournalHostFullTest, ClosingKeepsTheLog) {
  {
    JournalUnderTest test(&device_);
    test.SetOne(kA, 5);
    EXPECT_EQ(test.journal().Close(), Error::kNoSpace);
    EXPECT_EQ(test.journal().Close(), Error::kNoSpace) << "asked again";
    EXPECT_FALSE(test.journal().aborted());
  }
  device_.ClearFaults();
  LogArea log;
  ReplayOrFail(&device_, &log);
  EXPECT_EQ(VersionOnDevice(&device_, kA), 5u);
}

}  // namespace
}  // namespace sluice
