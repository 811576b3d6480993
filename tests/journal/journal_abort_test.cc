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

}  // namespace
}  // namespace sluice
