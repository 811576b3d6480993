// SPDX-License-Identifier: Apache-2.0
//
// Handles, credits, copy-out, ordering and checkpoint, one rule at a time, in manual mode.
#include "journal/journal.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "block/memory_device.h"
#include "journal/credits.h"
#include "tests/journal/journal_fixture.h"

namespace sluice {
namespace {

constexpr BlockNumber kA = kFirstTestBlock, kB = kA + 1;

class JournalTest : public testing::Test {
 protected:
  JournalTest() { FormatLog(&device_, 1); }

  void Open(const JournalOptions& options = JournalUnderTest::ManualOptions()) {
    test_ = std::make_unique<JournalUnderTest>(&device_, options);
  }
  Journal& journal() { return test_->journal(); }
  // What a crash now would leave, after replay.
  std::unique_ptr<MemoryDevice> Recovered() {
    std::unique_ptr<MemoryDevice> device = device_.Clone();
    LogArea log;
    ReplayOrFail(device.get(), &log);
    return device;
  }

  MemoryDevice device_{kTestBlocks * kBlockSize};
  std::unique_ptr<JournalUnderTest> test_;
};

TEST_F(JournalTest, CommittedBlocksSurviveACrashOthersDoNot) {
  Open();
  test_->SetOne(kA, 1);
  EXPECT_EQ(journal().CommitNow(CommitReason::kSync), Error::kOk);
  test_->SetOne(kA, 2);
  EXPECT_EQ(VersionOnDevice(&device_, kA), std::nullopt);
  EXPECT_EQ(VersionOnDevice(Recovered().get(), kA), 1u);
}

TEST_F(JournalTest, CloseWritesEverythingHomeAndEmptiesTheLog) {
  Open();
  test_->SetOne(kA, 1);
  EXPECT_EQ(journal().Close(), Error::kOk);
  EXPECT_EQ(VersionOnDevice(&device_, kA), 1u);
  LogArea log = TestLog();
  ASSERT_EQ(log.ReadState(&device_), Error::kOk);
  EXPECT_EQ(log.state.tail_block, 0u);
  EXPECT_EQ(log.state.tail_tid, 2u);
  Attempt attempt;
  EXPECT_EQ(journal().TryStart(attempt, OpType::kMisc, 1).error(), Error::kReadOnly);
  test_ = nullptr;
  Open();
  EXPECT_EQ(test_->Start(1).tid(), 2u);
}

TEST_F(JournalTest, UntouchedLogIsNotWrittenAtClose) {
  Open();
  const uint64_t writes = device_.count(IoOp::kWrite);
  EXPECT_EQ(journal().Close(), Error::kOk);
  EXPECT_EQ(device_.count(IoOp::kWrite), writes);
}

TEST_F(JournalTest, RefusesALogThatWasNotReplayed) {
  Open();
  test_->SetOne(kA, 1);
  EXPECT_EQ(journal().CommitNow(CommitReason::kSync), Error::kOk);
  test_ = nullptr;
  LogArea log = TestLog();
  ASSERT_EQ(log.ReadState(&device_), Error::kOk);
  BufferCache cache(&device_, kTestSeed, 100);
  TestSealer sealer;
  EXPECT_EQ(Journal::Open({}, &device_, &cache, &sealer, log).error(), Error::kInvalid);
}

TEST_F(JournalTest, UnusedCreditsComeBackAndHandlesThatNeverFitAreRefused) {
  Open();
  const int max = journal().max_handle_blocks();
  EXPECT_EQ(max, CreditLimits(1022).max_handle);
  Attempt attempt;
  EXPECT_EQ(journal().TryStart(attempt, OpType::kMisc, max + 1).error(), Error::kHandleTooLarge);
  EXPECT_EQ(journal().TryStart(attempt, OpType::kMisc, max, 1).error(), Error::kHandleTooLarge);
  for (int i = 0; i < 10; ++i) {
    Handle handle = test_->Start(max - 1);
    test_->Set(handle, kA, 1);
    test_->Set(handle, kA, 2);  // the same block: one credit
    EXPECT_EQ(handle.credits_left(), i == 0 ? max - 2 : max - 1);
  }
  EXPECT_EQ(test_->Start(max - 1).tid(), 1u);
  EXPECT_EQ(journal().CommitNow(CommitReason::kSync), Error::kOk);
  EXPECT_EQ(journal().stats().credit_leaks, 0u);
}

TEST_F(JournalTest, FullTransactionIsCommittedAndTheStartRepeated) {
  Open();
  const int max = journal().max_handle_blocks();
  {
    Handle handle = test_->Start(max);
    for (int i = 0; i < max; ++i) test_->Set(handle, kA + i, 7);
    EXPECT_EQ(handle.credits_left(), 0);
    EXPECT_FALSE(handle.TryExtend(1));
  }
  Attempt attempt;
  EXPECT_EQ(journal().TryStart(attempt, OpType::kMisc, 1).error(), Error::kWouldBlock);
  EXPECT_EQ(attempt.Wait(), Error::kOk);
  EXPECT_EQ(test_->Start(1).tid(), 2u);
  const JournalStats stats = journal().stats();
  EXPECT_EQ(stats.commits, 1u);
  EXPECT_EQ(stats.commits_by_reason[static_cast<int>(CommitReason::kFull)], 1u);
  EXPECT_EQ(stats.start_blocked_full, 1u);
  EXPECT_EQ(stats.blocks_logged, static_cast<uint64_t>(max));
  const std::unique_ptr<MemoryDevice> recovered = Recovered();
  for (int i = 0; i < max; ++i) EXPECT_EQ(VersionOnDevice(recovered.get(), kA + i), 7u);
}

TEST_F(JournalTest, ExtendedHandleHasTheCreditsItWasGiven) {
  Open();
  Handle handle = test_->Start(1, 1);
  test_->Set(handle, kA, 1);
  EXPECT_TRUE(handle.TryExtend(2, 600));
  EXPECT_EQ(handle.credits_left(), 2);
  test_->Set(handle, kB, 1);
  for (BlockNumber i = 0; i < 601; ++i) handle.RevokeBlock(kTestBlocks - 1 - i);
  handle.Stop();
  EXPECT_EQ(journal().CommitNow(CommitReason::kSync), Error::kOk);
  EXPECT_EQ(journal().stats().credit_leaks, 0u);
}

TEST_F(JournalTest, RevokeCreditsAreChargedInWholeBlocks) {
  Open();
  for (int i = 0; i < 40; ++i) {  // 20 records each: two blocks in the end
    Handle handle = test_->Start(1, 30);
    for (int j = 0; j < 20; ++j) handle.RevokeBlock(kA + static_cast<BlockNumber>(i * 20 + j));
  }
  EXPECT_EQ(journal().CommitNow(CommitReason::kSync), Error::kOk);
  const JournalStats stats = journal().stats();
  EXPECT_EQ(stats.credit_leaks, 0u);
  EXPECT_EQ(stats.log_blocks_written, 3u);  // two revoke blocks and the commit record
}

TEST_F(JournalTest, PlantedLeakIsReportedAndRepaired) {
  JournalOptions options = JournalUnderTest::ManualOptions();
  options.report_credit_leaks = true;
  options.leak_credits_per_handle = 1;
  Open(options);
  test_->SetOne(kA, 1);
  EXPECT_EQ(journal().CommitNow(CommitReason::kSync), Error::kOk);
  EXPECT_EQ(journal().stats().credit_leaks, 1u);
  EXPECT_EQ(VersionOnDevice(Recovered().get(), kA), 1u);
}

using JournalDeathTest = JournalTest;

#ifndef NDEBUG
TEST_F(JournalDeathTest, PlantedLeakAbortsADebugBuild) {
  JournalOptions options = JournalUnderTest::ManualOptions();
  options.leak_credits_per_handle = 1;
  Open(options);
  test_->SetOne(kA, 1);
  EXPECT_DEATH(IgnoreError(journal().CommitNow(CommitReason::kSync)), "report_credit_leaks");
}
#else
TEST_F(JournalTest, PlantedLeakIsReportedByAReleaseBuild) {
  JournalOptions options = JournalUnderTest::ManualOptions();
  options.leak_credits_per_handle = 1;
  Open(options);
  test_->SetOne(kA, 1);
  EXPECT_EQ(journal().CommitNow(CommitReason::kSync), Error::kOk);
  EXPECT_EQ(journal().stats().credit_leaks, 1u);
}
#endif

TEST_F(JournalDeathTest, NestedHandle) {
  Open();
  Handle handle = test_->Start(1);
  EXPECT_TRUE(Journal::ThreadHasHandle());
  EXPECT_DEATH(test_->Start(1), "ThreadHasHandle");
  handle.Stop();
  EXPECT_FALSE(Journal::ThreadHasHandle());
}

TEST_F(JournalDeathTest, EditWithoutCredit) {
  Open();
  Handle handle = test_->Start(1);
  test_->Set(handle, kA, 1);
  EXPECT_DEATH(test_->Set(handle, kB, 1), "credits_");
}

TEST_F(JournalDeathTest, WaitingWithAnOpenHandle) {
  Open();
  Handle handle = test_->Start(1);
  EXPECT_DEATH(IgnoreError(journal().CommitNow(CommitReason::kSync)), "ThreadHasHandle");
  EXPECT_DEATH(IgnoreError(journal().CheckpointNow()), "ThreadHasHandle");
  EXPECT_DEATH(IgnoreError(journal().Flush()), "ThreadHasHandle");
}

// The next transaction edits while the committing one has not been copied, and again after: the
// log gets the committing transaction's version.
TEST_F(JournalTest, CommittingVersionIsCopiedOut) {
  JournalOptions options = JournalUnderTest::ManualOptions();
  bool once = true;
  options.on_point = [&](JournalPoint point) {
    if (point == JournalPoint::kSwitched && once) {
      once = false;
      test_->SetOne(kA, 2);
      test_->SetOne(kA, 3);
    }
  };
  Open(options);
  {
    Handle handle = test_->Start(2);
    test_->Set(handle, kA, 1);
    test_->Set(handle, kB, 1);
  }
  EXPECT_EQ(journal().CommitNow(CommitReason::kSync), Error::kOk);
  EXPECT_EQ(VersionOnDevice(Recovered().get(), kA), 1u);
  EXPECT_EQ(VersionOnDevice(Recovered().get(), kB), 1u);
  // Its newer version is not durable: the checkpoint leaves it alone.
  EXPECT_EQ(journal().CheckpointNow(), Error::kOk);
  EXPECT_EQ(VersionOnDevice(&device_, kA), std::nullopt);
  EXPECT_EQ(VersionOnDevice(&device_, kB), 1u);
  EXPECT_EQ(VersionOnDevice(Recovered().get(), kA), 1u);
  EXPECT_EQ(journal().CommitNow(CommitReason::kSync), Error::kOk);
  EXPECT_EQ(VersionOnDevice(Recovered().get(), kA), 3u);
  EXPECT_EQ(journal().Close(), Error::kOk);
  EXPECT_EQ(VersionOnDevice(&device_, kA), 3u);
}

TEST_F(JournalTest, SealsOnceInAscendingOrderOfKind) {
  struct OrderSealer : BlockSealer {
    void Seal(BlockNumber, format::BlockKind kind, format::BlockSpan copy) override {
      kinds.push_back(kind);
      copy[4000] = static_cast<std::byte>(kinds.size());  // what the copy at home must show, too
    }
    std::vector<format::BlockKind> kinds;
  } sealer;
  LogArea log = TestLog();
  ASSERT_EQ(log.ReadState(&device_), Error::kOk);
  BufferCache cache(&device_, kTestSeed, 100);
  auto opened = Journal::Open(JournalUnderTest::ManualOptions(), &device_, &cache, &sealer, log);
  Journal& journal = **opened;
  using format::BlockKind;
  {
    Attempt attempt;
    Handle handle = journal.TryStart(attempt, OpType::kMisc, 4).value();
    handle.Edit(cache.GetNew(kA, {BlockKind::kGroupTable}));
    handle.Edit(cache.GetNew(kA + 1, {BlockKind::kInodeBitmap}));
    handle.Edit(cache.GetNew(kA + 2, {BlockKind::kExtent}));
    handle.Edit(cache.GetNew(kA + 3, {BlockKind::kBlockBitmap}));
  }
  EXPECT_EQ(journal.Close(), Error::kOk);
  EXPECT_EQ(sealer.kinds, (std::vector<BlockKind>{BlockKind::kBlockBitmap, BlockKind::kInodeBitmap,
                                                  BlockKind::kGroupTable, BlockKind::kExtent}));
  const BlockNumber order[] = {kA + 3, kA + 1, kA, kA + 2};
  for (size_t i = 0; i < 4; ++i) {
    AlignedBuffer bytes(kBlockSize);
    ASSERT_EQ(device_.Read(order[i] * kBlockSize, bytes.span()), Error::kOk);
    EXPECT_EQ(bytes.data()[4000], static_cast<std::byte>(i + 1));
  }
}

TEST_F(JournalTest, OrderedDataBeforeTheRecordIsFlushedAndOncePerTransaction) {
  std::vector<std::string> events;
  struct Data : OrderedData {
    explicit Data(std::vector<std::string>* events) : events_(events) {}
    void StartOrderedWrite() override { events_->push_back("start"); }
    void WaitOrderedWrite() override { events_->push_back("wait"); }
    std::vector<std::string>* events_;
  };
  JournalOptions options = JournalUnderTest::ManualOptions();
  options.on_point = [&](JournalPoint point) {
    if (point == JournalPoint::kRecordWritten) events.push_back("record");
    if (point == JournalPoint::kRecordFlushed) events.push_back("flushed");
    if (point == JournalPoint::kCommitFlushed) events.push_back("commit");
  };
  Open(options);
  auto data = std::make_shared<Data>(&events);
  {
    Handle handle = test_->Start(1);
    test_->Set(handle, kA, 1);
    handle.AddOrdered(data);
    handle.AddOrdered(data);
    handle.OnCommit([&](Error error) { events.push_back(error == Error::kOk ? "cb1" : "bad"); });
    handle.OnCommit([&](Error) { events.push_back("cb2"); });
    journal().WhenCommitted(handle.tid(), [&](Error) { events.push_back("waiter"); });
  }
  EXPECT_EQ(data.use_count(), 2);
  EXPECT_EQ(journal().CommitNow(CommitReason::kSync), Error::kOk);
  EXPECT_EQ(data.use_count(), 1);
  EXPECT_EQ(events, (std::vector<std::string>{"start", "record", "wait", "flushed", "commit", "cb1",
                                              "cb2", "waiter"}));
}

TEST_F(JournalTest, BarriersAreFlushes) {
  for (const bool barrier : {true, false}) {
    MemoryDevice device(kTestBlocks * kBlockSize);
    FormatLog(&device);
    JournalOptions options = JournalUnderTest::ManualOptions();
    options.barrier = barrier;
    JournalUnderTest test(&device, options);
    const uint64_t flushes = device.count(IoOp::kFlush);
    test.SetOne(kA, 1);
    EXPECT_EQ(test.journal().CommitNow(CommitReason::kSync), Error::kOk);
    EXPECT_EQ(device.count(IoOp::kFlush) - flushes, barrier ? 2u : 0u);
    EXPECT_EQ(test.journal().Close(), Error::kOk);
    EXPECT_EQ(device.count(IoOp::kFlush) - flushes, barrier ? 6u : 0u);
  }
}

TEST_F(JournalTest, CommittedStateIsKnown) {
  Open();
  EXPECT_EQ(journal().running_tid(), 1u);
  EXPECT_TRUE(journal().IsCommitted(0));
  test_->SetOne(kA, 1);
  EXPECT_FALSE(journal().IsCommitted(1));
  EXPECT_EQ(journal().Commit(1, CommitReason::kFsync), Error::kOk);
  EXPECT_TRUE(journal().IsCommitted(1));
  EXPECT_EQ(journal().running_tid(), 2u);
  Error told = Error::kIo;
  journal().WhenCommitted(1, [&](Error error) { told = error; });
  EXPECT_EQ(told, Error::kOk);
  EXPECT_EQ(journal().CommitAll(CommitReason::kSync), Error::kOk);
  EXPECT_EQ(journal().stats().commits, 1u);
}

// Goes round the log many times; nothing but the checkpoint makes room.
TEST_F(JournalTest, WrapsAround) {
  Open();
  for (uint64_t round = 1; round <= 200; ++round) {
    {
      Handle handle = test_->Start(40);
      for (uint64_t i = 0; i < 40; ++i) test_->Set(handle, kA + (round * 7 + i) % 100, round);
    }
    ASSERT_EQ(journal().CommitNow(CommitReason::kSync), Error::kOk);
  }
  const JournalStats stats = journal().stats();
  EXPECT_GT(stats.log_blocks_written, 5u * 1022);
  EXPECT_GT(stats.start_blocked_space, 0u);
  const std::unique_ptr<MemoryDevice> recovered = Recovered();
  for (uint64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(VersionOnDevice(recovered.get(), kA + (200 * 7 + i) % 100), 200u);
  }
}

// A buffer that every transaction changes holds the tail until a commit moves it on.
TEST_F(JournalTest, TailStuckOnTheRunningTransactionForcesItsCommit) {
  Open();
  test_->SetOne(kA, 1);
  ASSERT_EQ(journal().CommitNow(CommitReason::kSync), Error::kOk);
  uint64_t version = 2;
  while (journal().stats().start_blocked_space == 0) {
    test_->SetOne(kA, version++);
    {
      Handle handle = test_->Start(200);
      for (uint64_t i = 0; i < 200; ++i) test_->Set(handle, kB + i, version);
    }
    if (version % 2 == 0) {
      ASSERT_EQ(journal().CommitNow(CommitReason::kSync), Error::kOk);
    }
    ASSERT_LT(version, 100u);
  }
  EXPECT_EQ(journal().Close(), Error::kOk);
  EXPECT_EQ(VersionOnDevice(&device_, kA), version - 1);
}

TEST_F(JournalTest, RevokedBlockIsNeitherLoggedNorWrittenHomeNorReplayed) {
  Open();
  test_->SetOne(kA, 1);
  ASSERT_EQ(journal().CommitNow(CommitReason::kSync), Error::kOk);
  {
    Handle handle = test_->Start(1, 1);
    test_->Set(handle, kA, 2);
    handle.Revoke(test_->Buf(kA));
    EXPECT_EQ(handle.credits_left(), 1);  // its credit came back
  }
  // Until the revoke is durable, a crash needs version 1.
  EXPECT_EQ(VersionOnDevice(Recovered().get(), kA), 1u);
  EXPECT_EQ(journal().CheckpointNow(), Error::kOk);
  EXPECT_EQ(VersionOnDevice(Recovered().get(), kA), 1u);
  ASSERT_EQ(journal().CommitNow(CommitReason::kSync), Error::kOk);
  EXPECT_EQ(journal().stats().blocks_logged, 1u);
  // The block is somebody's data now.
  AlignedBuffer data(kBlockSize), now(kBlockSize);
  std::memset(data.data(), 0x22, kBlockSize);
  ASSERT_EQ(device_.Write(kA * kBlockSize, data.span()), Error::kOk);
  const auto is_data = [&](Device* device) {
    EXPECT_EQ(device->Read(kA * kBlockSize, now.span()), Error::kOk);
    return std::memcmp(now.data(), data.data(), kBlockSize) == 0;
  };
  EXPECT_TRUE(is_data(Recovered().get()));
  EXPECT_EQ(journal().CheckpointNow(), Error::kOk);
  EXPECT_TRUE(is_data(&device_));
  EXPECT_EQ(journal().Close(), Error::kOk);
  EXPECT_TRUE(is_data(&device_));
}

// The same without a buffer at hand: the journal finds what it knows by number.
TEST_F(JournalTest, RevokeByNumberDropsTheBufferInMemory) {
  Open();
  test_->SetOne(kA, 1);
  {
    Handle handle = test_->Start(0, 1);
    handle.RevokeBlock(kA);
  }
  ASSERT_EQ(journal().CommitNow(CommitReason::kSync), Error::kOk);
  EXPECT_EQ(journal().stats().blocks_logged, 0u);
  EXPECT_EQ(journal().stats().credit_leaks, 0u);
  EXPECT_EQ(journal().Close(), Error::kOk);
  EXPECT_EQ(VersionOnDevice(&device_, kA), std::nullopt);
}

TEST_F(JournalTest, JournalingAgainCancelsTheRevoke) {
  for (const bool new_buffer : {true, false}) {
    MemoryDevice device(kTestBlocks * kBlockSize);
    FormatLog(&device);
    JournalUnderTest test(&device);
    test.SetOne(kA, 1);
    ASSERT_EQ(test.journal().CommitNow(CommitReason::kSync), Error::kOk);
    {
      BufferRef buffer = test.Buf(kA);
      Handle handle = test.Start(2, 1);
      handle.Revoke(buffer);
      if (new_buffer) buffer = test.cache().GetNew(kA, {format::BlockKind::kDirectory, 11, 1});
      BlockEdit edit = handle.Edit(buffer);
      MakeTestBlock(kA, 2, edit.data());
    }
    ASSERT_EQ(test.journal().CommitNow(CommitReason::kSync), Error::kOk);
    const std::unique_ptr<MemoryDevice> recovered = device.Clone();
    LogArea log;
    EXPECT_EQ(ReplayOrFail(recovered.get(), &log).revoked, 0u);
    EXPECT_EQ(VersionOnDevice(recovered.get(), kA), 2u);
    EXPECT_EQ(test.journal().Close(), Error::kOk);
    EXPECT_EQ(VersionOnDevice(&device, kA), 2u);
    EXPECT_EQ(test.journal().stats().credit_leaks, 0u);
  }
}

// A block is freed by the next transaction while the committing one still logs it.
TEST_F(JournalTest, RevokeWhileTheOlderTransactionCommits) {
  JournalOptions options = JournalUnderTest::ManualOptions();
  bool once = true;
  options.on_point = [&](JournalPoint point) {
    if (point != JournalPoint::kSwitched || !once) return;
    once = false;
    Handle handle = test_->Start(2, 2);
    handle.Revoke(test_->Buf(kA));  // not edited in the new transaction
    test_->Set(handle, kB, 2);
    handle.Revoke(test_->Buf(kB));  // edited, so frozen
  };
  Open(options);
  {
    Handle handle = test_->Start(2);
    test_->Set(handle, kA, 1);
    test_->Set(handle, kB, 1);
  }
  ASSERT_EQ(journal().CommitNow(CommitReason::kSync), Error::kOk);
  EXPECT_EQ(VersionOnDevice(Recovered().get(), kA), 1u);
  EXPECT_EQ(VersionOnDevice(Recovered().get(), kB), 1u);
  ASSERT_EQ(journal().CommitNow(CommitReason::kSync), Error::kOk);
  EXPECT_EQ(VersionOnDevice(Recovered().get(), kA), std::nullopt);
  EXPECT_EQ(journal().Close(), Error::kOk);
  EXPECT_EQ(VersionOnDevice(&device_, kB), std::nullopt);
}

TEST_F(JournalTest, CallbacksOfAJournalThatGoesAwayAreTold) {
  Open();
  Error callback = Error::kOk, waiter = Error::kOk;
  {
    Handle handle = test_->Start(1);
    handle.OnCommit([&](Error error) { callback = error; });
    journal().WhenCommitted(handle.tid(), [&](Error error) { waiter = error; });
  }
  test_ = nullptr;
  EXPECT_EQ(callback, Error::kShutdown);
  EXPECT_EQ(waiter, Error::kShutdown);
}

}  // namespace
}  // namespace sluice
