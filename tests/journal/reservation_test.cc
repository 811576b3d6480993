// SPDX-License-Identifier: Apache-2.0
//
// Reserved handles and restart: who may join what, where the credits are at each step, and that a
// single one that goes astray is seen.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "block/memory_device.h"
#include "journal/credits.h"
#include "tests/journal/journal_fixture.h"

namespace sluice {
namespace {

constexpr BlockNumber kA = kFirstTestBlock;
const CreditLimits kLimits(1022);

class ReservationTest : public testing::Test {
 protected:
  ReservationTest() { FormatLog(&device_); }

  void Open(const JournalOptions& options = JournalUnderTest::ManualOptions()) {
    test_ = std::make_unique<JournalUnderTest>(&device_, options);
  }
  Journal& journal() { return test_->journal(); }

  // One handle that changes a block and reserves.
  ReservedHandle Reserve(int blocks, int revokes = 0) {
    ReservedHandle reserved;
    const Error error = TryReserve(blocks, revokes, &reserved);
    EXPECT_EQ(error, Error::kOk);
    return reserved;
  }
  Error TryReserve(int blocks, int revokes, ReservedHandle* reserved) {
    return RunBlocking([&](Attempt& attempt) -> Error {
      ASSIGN_OR_RETURN(Handle handle, journal().TryStart(attempt, OpType::kMapBlocks, {1, 0},
                                                         {blocks, revokes}, reserved));
      test_->Set(handle, kA, ++version_);
      return Error::kOk;
    });
  }
  Handle StartReserved(ReservedHandle reserved) {
    Result<Handle> handle = journal().StartReserved(std::move(reserved));
    EXPECT_TRUE(handle.ok());
    return std::move(handle).value();
  }
  // Blocks that a handle may still ask for in the running transaction.
  int Room() {
    for (int blocks = journal().max_handle_blocks(); blocks >= 0; --blocks) {
      Attempt attempt;
      if (journal().TryStart(attempt, OpType::kMisc, blocks).ok()) return blocks;
    }
    return -1;
  }
  void Commit() { ASSERT_EQ(journal().CommitNow(CommitReason::kSync), Error::kOk); }
  uint64_t leaks() { return journal().stats().credit_leaks; }

  MemoryDevice device_{kTestBlocks * kBlockSize};
  std::unique_ptr<JournalUnderTest> test_;
  uint64_t version_ = 0;
};

TEST_F(ReservationTest, CreditsAreTakenHandedOverUsedAndGivenBack) {
  Open();
  ReservedHandle used = Reserve(10), unused = Reserve(20, 1);
  EXPECT_EQ(journal().stats().reserved_credits, 31u);
  EXPECT_EQ(Room(), kLimits.max_handle - 1 - 31);
  Commit();
  EXPECT_EQ(leaks(), 0u);
  // They wait for the next transaction, and the next one, too.
  EXPECT_EQ(Room(), kLimits.max_handle - 31);
  test_->SetOne(kA + 1, 1);
  EXPECT_EQ(Room(), kLimits.max_handle - 31 - 1);
  {
    Handle handle = StartReserved(std::move(used));
    EXPECT_FALSE(used.reserved());
    EXPECT_EQ(handle.credits_left(), 10);
    for (BlockNumber i = 0; i < 10; ++i) test_->Set(handle, kA + 10 + i, 1);
  }
  EXPECT_EQ(Room(), kLimits.max_handle - 21 - 11);
  unused.Free();
  unused.Free();
  EXPECT_EQ(Room(), kLimits.max_handle - 11);
  Commit();
  EXPECT_EQ(Room(), kLimits.max_handle);
  Commit();
  const JournalStats stats = journal().stats();
  EXPECT_EQ(stats.credit_leaks, 0u);
  EXPECT_EQ(stats.reserved_credits, 0u);
  EXPECT_EQ(stats.reserved_handles, 1u);
  EXPECT_EQ(stats.reservations_unused, 1u);
}

TEST_F(ReservationTest, GivenBackWithNoTransactionRunning) {
  Open();
  {
    const ReservedHandle reserved = Reserve(10);
    Commit();
  }
  test_->SetOne(kA, 1);
  EXPECT_EQ(Room(), kLimits.max_handle - 1);
  Commit();
  EXPECT_EQ(leaks(), 0u);
}

TEST_F(ReservationTest, JoinsALockedTransactionOnlyReserved) {
  JournalOptions options = JournalUnderTest::ManualOptions();
  ReservedHandle reserved, given_back;
  Tid tid = 0;
  options.on_point = [&](JournalPoint point) {
    if (point != JournalPoint::kLocked || !reserved.reserved()) return;
    Attempt attempt;
    EXPECT_EQ(journal().TryStart(attempt, OpType::kMisc, 1).error(), Error::kWouldBlock);
    given_back.Free();
    Handle handle = StartReserved(std::move(reserved));
    tid = handle.tid();
    test_->Set(handle, kA + 1, 7);
    EXPECT_FALSE(handle.TryExtend(1));
  };
  Open(options);
  reserved = Reserve(3);
  given_back = Reserve(4);
  Commit();
  EXPECT_EQ(tid, 1u);
  EXPECT_EQ(leaks(), 0u);
  LogArea log;
  const std::unique_ptr<MemoryDevice> crashed = device_.Clone();
  ReplayOrFail(crashed.get(), &log);
  EXPECT_EQ(VersionOnDevice(crashed.get(), kA + 1), 7u);
}

// Reservations of half a transaction, each used in a transaction of its own while the log is as
// full as it may be: they start, and the log has room.
TEST_F(ReservationTest, NeedsNoLogSpaceWhenItStarts) {
  Open();
  uint64_t round = 0;
  std::vector<ReservedHandle> reserved;
  for (int i = 0; i < kLimits.max_reserved; ++i) reserved.push_back(Reserve(1));
  // Blocks that are never home twice: only checkpoints could make room.
  for (;;) {
    Attempt attempt;
    Result<Handle> handle = journal().TryStart(attempt, OpType::kMisc, 50);
    if (!handle.ok()) {
      ASSERT_EQ(handle.error(), Error::kWouldBlock);
      break;
    }
    for (uint64_t i = 0; i < 50; ++i) test_->Set(*handle, kA + 100 + i, round + 1);
    handle->Stop();
    ASSERT_LT(++round, 100u);
    Commit();
  }
  ASSERT_EQ(journal().stats().start_blocked_space, 1u);
  for (ReservedHandle& one : reserved) {
    {
      Handle handle = StartReserved(std::move(one));
      test_->Set(handle, kA + 1, ++version_);
      EXPECT_FALSE(handle.TryExtend(1)) << "space that is the others'";
    }
    Commit();
  }
  EXPECT_EQ(journal().stats().start_blocked_space, 1u);
  EXPECT_EQ(leaks(), 0u);
  EXPECT_EQ(journal().Close(), Error::kOk);
  EXPECT_EQ(VersionOnDevice(&device_, kA + 1), version_);
}

// Half of the largest transaction, and no handle may ask for what a new transaction could not
// give: that would be an endless loop of commits.
TEST_F(ReservationTest, LimitsAreAgainstWhatAHandleMayAsk) {
  Open();
  ReservedHandle reserved, more;
  EXPECT_EQ(TryReserve(kLimits.max_reserved + 1, 0, &reserved), Error::kHandleTooLarge);
  EXPECT_EQ(TryReserve(kLimits.max_reserved, 1, &reserved), Error::kHandleTooLarge);
  EXPECT_FALSE(reserved.reserved());
  reserved = Reserve(kLimits.max_reserved - 2);
  EXPECT_EQ(TryReserve(3, 0, &more), Error::kBusy);
  more = Reserve(2);
  const uint64_t commits = journal().stats().commits;
  const int room = kLimits.max_handle - kLimits.max_reserved;
  Attempt attempt;
  for (const int blocks : {room + 1, kLimits.max_handle}) {
    EXPECT_EQ(journal().TryStart(attempt, OpType::kMisc, blocks).error(), Error::kWouldBlock);
    EXPECT_EQ(attempt.Wait(), Error::kBusy);
  }
  EXPECT_EQ(journal().stats().commits, commits) << "a commit does not help";
  EXPECT_EQ(journal().stats().start_blocked_reserved, 3u);
  // What fits into a new transaction gets in by one commit.
  EXPECT_EQ(journal().TryStart(attempt, OpType::kMisc, room).error(), Error::kWouldBlock);
  EXPECT_EQ(attempt.Wait(), Error::kOk);
  EXPECT_TRUE(journal().TryStart(attempt, OpType::kMisc, room).ok());
  EXPECT_EQ(journal().stats().commits, commits + 1);
  more.Free();
  EXPECT_EQ(journal().TryStart(attempt, OpType::kMisc, room + 3).error(), Error::kWouldBlock);
  EXPECT_EQ(attempt.Wait(), Error::kBusy);
}

// max_handle blocks fit into a new transaction, whatever the size of the log; one more is refused
// at once. Compared against the whole transaction, it would be let in to wait for ever.
TEST_F(ReservationTest, EveryHandleThatIsAllowedFitsANewTransaction) {
  for (uint64_t ring = 64; ring < 40000; ring = ring * 5 / 4 + 1) {
    const CreditLimits limits(ring);
    EXPECT_EQ(limits.overhead + limits.max_handle, limits.max_transaction);
    EXPECT_GT(limits.max_handle + 1 + limits.overhead, limits.max_transaction);
    // An empty log has room for it, even with all credits reserved one by one.
    const int reservations = limits.max_reserved * TransactionOverhead(1);
    EXPECT_LT(limits.max_transaction + reservations + TransactionOverhead(limits.max_reserved),
              static_cast<int>(ring));
  }
}

TEST_F(ReservationTest, FailsOnlyWhenTheJournalHas) {
  SetLogSink([](LogLevel, std::string_view) {});
  Open();
  ReservedHandle reserved = Reserve(2);
  journal().Abort(Error::kIo, "a test says so");
  EXPECT_EQ(journal().StartReserved(std::move(reserved)).error(), Error::kReadOnly);
  EXPECT_EQ(journal().stats().reserved_credits, 0u);
  SetLogSink(nullptr);
}

// --- The leak ----------------------------------------------------------------------------------

class ReservedLeakTest : public ReservationTest {
 protected:
  static JournalOptions Leaking() {
    JournalOptions options = JournalUnderTest::ManualOptions();
    options.leak_reserved_credits = true;
    return options;
  }
  ReservedLeakTest() {
    SetLogSink([](LogLevel, std::string_view) {});
  }
  ~ReservedLeakTest() override { SetLogSink(nullptr); }
};

TEST_F(ReservedLeakTest, OneCreditIsSeenAndPutRight) {
  JournalOptions options = Leaking();
  options.report_credit_leaks = true;
  Open(options);
  Reserve(1).Free();
  Commit();
  EXPECT_EQ(leaks(), 1u);
  // Only unused ones leak, and the leak ends with the transaction.
  {
    Handle handle = StartReserved(Reserve(1));
    test_->Set(handle, kA + 1, 1);
  }
  Commit();
  EXPECT_EQ(leaks(), 1u);
  test_->SetOne(kA, 100);
  Commit();
  EXPECT_EQ(leaks(), 1u);
  EXPECT_EQ(journal().Close(), Error::kOk);
  EXPECT_EQ(VersionOnDevice(&device_, kA), 100u);
}

// The report: nothing fails, but transactions look full, and are committed far too early.
TEST_F(ReservedLeakTest, CommitsEarly) {
  uint64_t commits[2];
  for (const bool leak : {false, true}) {
    FormatLog(&device_);
    JournalOptions options = Leaking();
    options.leak_reserved_credits = leak;
    options.report_credit_leaks = true;
    Open(options);
    for (int i = 0; i < 500; ++i) Reserve(39).Free();
    commits[leak] = journal().stats().commits;
    Commit();
    EXPECT_EQ(leaks() > 0, leak);
    EXPECT_EQ(journal().Close(), Error::kOk);
    test_ = nullptr;
  }
  EXPECT_EQ(commits[0], 0u);
  EXPECT_GT(commits[1], 50u);
}

#ifndef NDEBUG
using ReservedLeakDeathTest = ReservedLeakTest;
TEST_F(ReservedLeakDeathTest, StopsADebugBuild) {
  Open(Leaking());
  Reserve(1).Free();
  EXPECT_DEATH(IgnoreError(journal().CommitNow(CommitReason::kSync)), "report_credit_leaks");
}
#else
TEST_F(ReservedLeakTest, IsReportedByAReleaseBuild) {
  Open(Leaking());
  Reserve(1).Free();
  Commit();
  EXPECT_EQ(leaks(), 1u);
}
#endif

// --- Restart -----------------------------------------------------------------------------------

TEST_F(ReservationTest, RestartGoesOnInTheSameTransactionIfItHasRoom) {
  JournalOptions options;  // with threads: the commit it asks for is another's work
  options.commit_interval = Nanoseconds{3600} * 1'000'000'000;
  options.on_point = [](JournalPoint) {};
  Open(options);
  Attempt attempt;
  ReservedHandle reserved;
  Handle handle = journal()
                      .TryStart(attempt, OpType::kTruncate, Credits{2, 0}, Credits{5, 0}, &reserved)
                      .value();
  const Tid first = handle.tid();
  test_->Set(handle, kA, 1);
  const Error error = handle.TryRestart(attempt, 3, 1);
  if (error == Error::kOk) {
    EXPECT_TRUE(handle.open());
    EXPECT_EQ(handle.credits_left(), 3);
    handle.Stop();
  } else {
    // The commit thread was faster.
    EXPECT_EQ(error, Error::kWouldBlock);
    EXPECT_FALSE(handle.open());
    EXPECT_FALSE(Journal::ThreadHasHandle());
    EXPECT_EQ(attempt.Wait(), Error::kOk);
  }
  EXPECT_EQ(journal().Commit(first, CommitReason::kSync), Error::kOk);
  const JournalStats stats = journal().stats();
  EXPECT_EQ(stats.commits_by_reason[static_cast<int>(CommitReason::kRestart)], 1u);
  EXPECT_TRUE(reserved.reserved());
  EXPECT_EQ(stats.reserved_credits, 5u);
}

TEST_F(ReservationTest, RestartOfAFullTransactionNeverWaits) {
  Open();
  const int max = journal().max_handle_blocks();
  Attempt attempt;
  Handle handle = journal().TryStart(attempt, OpType::kTruncate, max).value();
  for (int i = 0; i < max; ++i) test_->Set(handle, kA + static_cast<BlockNumber>(i), 1);
  EXPECT_FALSE(handle.TryExtend(1));
  EXPECT_EQ(handle.TryRestart(attempt, 1), Error::kWouldBlock);
  EXPECT_FALSE(handle.open());
  EXPECT_EQ(journal().stats().commits, 0u);
  EXPECT_EQ(attempt.Wait(), Error::kOk);
  EXPECT_EQ(test_->Start(1).tid(), 2u);
  const JournalStats stats = journal().stats();
  EXPECT_EQ(stats.commits_by_reason[static_cast<int>(CommitReason::kRestart)], 1u);
  EXPECT_EQ(stats.requests_by_reason[static_cast<int>(CommitReason::kFull)], 1u);
  EXPECT_EQ(stats.handles_max, 1u);
}

TEST_F(ReservationTest, RestartTellsOfAFailedJournal) {
  SetLogSink([](LogLevel, std::string_view) {});
  Open();
  Handle handle = test_->Start(1);
  journal().Abort(Error::kIo, "a test says so");
  Attempt attempt;
  EXPECT_EQ(handle.TryRestart(attempt, 1), Error::kReadOnly);
  EXPECT_FALSE(handle.open());
  SetLogSink(nullptr);
}

// --- J2 and J5 ---------------------------------------------------------------------------------

using ReservationDeathTest = ReservationTest;

TEST_F(ReservationDeathTest, StartReservedInsideAHandle) {
  Open();
  ReservedHandle reserved = Reserve(1);
  Handle handle = test_->Start(1);
  EXPECT_DEATH(IgnoreError(journal().StartReserved(std::move(reserved)).error()),
               "ThreadHasHandle");
}

TEST_F(ReservationDeathTest, WaitingForReservationsWithAnOpenHandle) {
  Open();
  const ReservedHandle reserved = Reserve(kLimits.max_reserved);
  Attempt attempt;
  EXPECT_EQ(journal().TryStart(attempt, OpType::kMisc, kLimits.max_handle).error(),
            Error::kWouldBlock);
  const Handle handle = test_->Start(1);
  EXPECT_DEATH(IgnoreError(attempt.Wait()), "ThreadHasHandle");
}

// J5 with its fault planted: handles join a log without room, and the commit says so rather than
// write over what is still needed.
TEST_F(ReservationDeathTest, HandlesThatJoinWithoutLogSpace) {
  JournalOptions options = JournalUnderTest::ManualOptions();
  options.ignore_log_space = true;
  Open(options);
  const auto fill = [&] {
    for (uint64_t round = 1; round < 20; ++round) {
      {
        Handle handle = test_->Start(200);
        for (uint64_t i = 0; i < 200; ++i) test_->Set(handle, kA + i, round);
      }
      IgnoreError(journal().CommitNow(CommitReason::kSync));
    }
  };
  EXPECT_DEATH(fill(), "FreeLocked");
}

}  // namespace
}  // namespace sluice
