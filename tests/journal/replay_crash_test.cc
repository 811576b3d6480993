// SPDX-License-Identifier: Apache-2.0
//
// Replay where it is hardest: interrupted again and again, over logs of several lives, with blocks
// that change between metadata and data, and with a slot of the log's superblock lost.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "base/aligned_buffer.h"
#include "block/crash_device.h"
#include "block/crash_states.h"
#include "block/memory_device.h"
#include "tests/journal/journal_fixture.h"

namespace sluice {
namespace {

constexpr BlockNumber kA = kFirstTestBlock, kB = kA + 1;

void CommitOne(JournalUnderTest* test, BlockNumber block, uint64_t version) {
  test->SetOne(block, version);
  ASSERT_EQ(test->journal().CommitNow(CommitReason::kSync), Error::kOk);
}

LogArea StateOf(Device* device) {
  LogArea log = TestLog();
  EXPECT_EQ(log.ReadState(device), Error::kOk);
  return log;
}

void LoseSlot(MemoryDevice* device, uint64_t slot) {
  AlignedBuffer zero(kBlockSize);
  std::memset(zero.data(), 0, kBlockSize);
  uint64_t contiguous = 0;
  ASSERT_EQ(device->Write(TestLog().DeviceOffset(slot, &contiguous), zero.span()), Error::kOk);
}

// The slot that decides.
uint64_t NewerSlot(MemoryDevice* device) {
  const uint64_t generation = StateOf(device).state.generation;
  const std::unique_ptr<MemoryDevice> copy = device->Clone();
  LoseSlot(copy.get(), 0);
  LogArea log = TestLog();
  return log.ReadState(copy.get()) == Error::kOk && log.state.generation == generation ? 1 : 0;
}

// --- Interrupted replays -----------------------------------------------------------------------

// Crashes a replay, and the replay of what that left, and so on; each at a random one of its
// states. The last one runs to its end.
TEST(ReplayCrashTest, InterruptedAgainAndAgain) {
  MemoryDevice device(kTestBlocks * kBlockSize);
  FormatLog(&device);
  {
    JournalUnderTest test(&device);
    for (uint64_t version = 1; version <= 6; ++version) {
      CommitOne(&test, kA, version);
      CommitOne(&test, kA + version, version);
    }
    test.Crash();
  }
  std::mt19937_64 random(7);
  for (int round = 0; round < 60; ++round) {
    MemoryImage image = device.Image();
    for (int depth = 0; depth < 4; ++depth) {
      CrashDevice crash(image);
      crash.StartLog();
      LogArea log;
      ReplayOrFail(&crash, &log);
      const CrashLog recorded = crash.TakeLog();
      CrashOptions options;
      options.exhaustive = 3;
      options.samples = 4;
      options.seed = random();
      CrashStates states(recorded, options);
      for (uint64_t skip = random() % 40; states.Next() && skip > 0; --skip) {
        image = states.Materialize()->Image();
      }
    }
    MemoryDevice last(image);
    LogArea log;
    ReplayOrFail(&last, &log);
    EXPECT_EQ(log.state.tail_block, 0u);
    EXPECT_EQ(log.state.tail_tid, 13u);
    EXPECT_EQ(VersionOnDevice(&last, kA), 6u);
    for (uint64_t v = 1; v <= 6; ++v) EXPECT_EQ(VersionOnDevice(&last, kA + v), v);
    if (testing::Test::HasFailure()) FAIL() << "round " << round;
  }
}

// --- Several lives -----------------------------------------------------------------------------

// Each life starts at the beginning of the ring and is shorter than the one before, so that right
// behind its end lie whole transactions of older lives, with smaller tids. They are stale.
TEST(ReplayCrashTest, OlderLivesLieBehindTheEnd) {
  MemoryDevice device(kTestBlocks * kBlockSize);
  FormatLog(&device);
  uint64_t version = 0;
  for (uint64_t life = 9; life > 0; --life) {
    JournalUnderTest test(&device);
    for (uint64_t i = 0; i < life; ++i) CommitOne(&test, kA, ++version);
    test.Crash();
    LogArea log;
    EXPECT_EQ(ReplayOrFail(&device, &log).transactions, life);
    EXPECT_FALSE(ReplayOrFail(&device, &log).needed) << "a second replay in a row";
    EXPECT_EQ(VersionOnDevice(&device, kA), version);
    EXPECT_EQ(log.state.tail_tid, version + 1);
  }
}

// The filesystem is made again with the same UUID, so the same checksum seed, and its log is not
// cleared: its tids start again, and the old ones, larger and smaller, do not count.
TEST(ReplayCrashTest, RemadeFilesystemOverAnOldLog) {
  MemoryDevice device(kTestBlocks * kBlockSize);
  FormatLog(&device, 500);
  {
    JournalUnderTest old(&device);
    for (uint64_t i = 0; i < 20; ++i) CommitOne(&old, kB, 1000 + i);
    old.Crash();
  }
  FormatLog(&device, 1);
  LogArea log;
  EXPECT_FALSE(ReplayOrFail(&device, &log).needed);
  {
    JournalUnderTest test(&device);
    for (uint64_t i = 1; i <= 3; ++i) CommitOne(&test, kA, i);
    test.Crash();
  }
  const ReplayReport report = ReplayOrFail(&device, &log);
  EXPECT_EQ(report.transactions, 3u);
  EXPECT_EQ(report.last_tid, 3u);
  EXPECT_EQ(VersionOnDevice(&device, kA), 3u);
  EXPECT_EQ(VersionOnDevice(&device, kB), std::nullopt);
}

// --- Metadata, data, metadata ------------------------------------------------------------------

class ReuseTest : public testing::Test {
 protected:
  ReuseTest() : device_(kTestBlocks * kBlockSize) {
    FormatLog(&device_);
    device_.StartLog();
    test_ = std::make_unique<JournalUnderTest>(&device_);
  }
  void Commit() { ASSERT_EQ(test_->journal().CommitNow(CommitReason::kSync), Error::kOk); }
  // Judges every state that a crash could leave, after its replay.
  void JudgeAll(const std::function<void(Device*, Tid tid, uint64_t mark)>& judge) {
    EXPECT_EQ(test_->journal().Close(), Error::kOk);
    const CrashLog log = device_.TakeLog();
    CrashOptions options;
    options.exhaustive = 6;
    options.samples = 60;
    CrashStates states(log, options);
    while (states.Next()) {
      const std::unique_ptr<MemoryDevice> device = states.Materialize();
      LogArea area;
      ReplayOrFail(device.get(), &area);
      judge(device.get(), area.state.tail_tid - 1, states.Mark().value_or(0));
      if (HasFailure()) FAIL() << states.Token();
    }
    EXPECT_GT(states.count(), 60u);
  }

  CrashDevice device_;
  std::unique_ptr<JournalUnderTest> test_;
};

// The classic: a directory block is freed, its block becomes somebody's data, and the log still
// has the directory.
TEST_F(ReuseTest, FreedMetadataBecomesData) {
  AlignedBuffer data(kBlockSize);
  std::memset(data.data(), 0x66, kBlockSize);
  test_->SetOne(kA, 1);
  Commit();
  {
    Handle handle = test_->Start(1, 1);
    handle.Revoke(test_->Buf(kA));
    test_->Set(handle, kB, 1);
  }
  Commit();
  device_.Mark(1);
  ASSERT_EQ(device_.Write(kA * kBlockSize, data.span()), Error::kOk);
  ASSERT_EQ(device_.Flush(), Error::kOk);
  device_.Mark(2);
  test_->SetOne(kB, 2);
  Commit();
  ASSERT_EQ(test_->journal().CheckpointNow(), Error::kOk);
  test_->SetOne(kB, 3);
  Commit();
  JudgeAll([&](Device* device, Tid tid, uint64_t mark) {
    if (tid == 1) {
      EXPECT_EQ(VersionOnDevice(device, kA), 1u);
    }
    if (tid >= 2) {
      EXPECT_EQ(VersionOnDevice(device, kB), tid - 1);
    }
    if (mark < 2) return;
    AlignedBuffer now(kBlockSize);
    ASSERT_EQ(device->Read(kA * kBlockSize, now.span()), Error::kOk);
    EXPECT_EQ(std::memcmp(now.data(), data.data(), kBlockSize), 0) << "at tid " << tid;
  });
}

// Freed and taken again for metadata: in the same transaction, which cancels the revoke, and in a
// later one, where the revoke must not hit the newer version.
TEST_F(ReuseTest, FreedMetadataBecomesMetadataAgain) {
  CommitOne(test_.get(), kA, 1);
  {
    Handle handle = test_->Start(2, 1);
    handle.Revoke(test_->Buf(kA));
    test_->Set(handle, kA, 2);
  }
  Commit();
  {
    Handle handle = test_->Start(1, 1);
    handle.RevokeBlock(kA);
    test_->Set(handle, kB, 3);
  }
  Commit();
  CommitOne(test_.get(), kA, 4);
  ASSERT_EQ(test_->journal().CheckpointNow(), Error::kOk);
  CommitOne(test_.get(), kA, 5);
  JudgeAll([&](Device* device, Tid tid, uint64_t) {
    if (tid == 0) return;
    if (tid == 3) {
      EXPECT_EQ(VersionOnDevice(device, kB), 3u);
    } else {
      EXPECT_EQ(VersionOnDevice(device, kA), tid);
    }
  });
}

// --- A lost slot -------------------------------------------------------------------------------

class LostSlotTest : public testing::Test {
 protected:
  LostSlotTest() { FormatLog(&device_); }

  MemoryDevice device_{kTestBlocks * kBlockSize};
};

// The other says that the log is empty, which was true before what is committed now.
TEST_F(LostSlotTest, EmptyIsNotBelievedOverCommittedTransactions) {
  {
    JournalUnderTest test(&device_);
    CommitOne(&test, kA, 1);
    test.Crash();
  }
  LoseSlot(&device_, NewerSlot(&device_));
  LogArea log = TestLog();
  EXPECT_EQ(log.ReadState(&device_), Error::kCorrupt);
}

// Torn rather than lost, at every write of a first commit: the crash came before it was durable.
TEST_F(LostSlotTest, EmptyIsBelievedWhenNothingWasCommitted) {
  CrashDevice crash(device_.Image());
  crash.StartLog();
  {
    JournalUnderTest test(&crash);
    CommitOne(&test, kA, 1);
    crash.Mark(1);
    test.Crash();
  }
  const CrashLog recorded = crash.TakeLog();
  CrashStates states(recorded);
  uint64_t torn = 0;
  while (states.Next()) {
    const std::unique_ptr<MemoryDevice> device = states.Materialize();
    LogArea log;
    torn += ReplayOrFail(device.get(), &log).needed ? 0 : 1;
    if (states.Mark() == 1) {
      EXPECT_EQ(VersionOnDevice(device.get(), kA), 1u);
    }
    if (HasFailure()) FAIL() << states.Token();
  }
  EXPECT_GT(torn, 0u);
}

// An older tail of the same life: as long as nothing lies over the released part, replaying it
// ends in the newest state; once something does, the log is refused. Never a mixture.
TEST_F(LostSlotTest, OlderTailIsReplayedWhollyOrNotAtAll) {
  uint64_t replayed = 0, refused = 0;
  JournalUnderTest test(&device_);
  uint64_t round = 0;
  while (round < 60) {
    ++round;
    {
      Handle handle = test.Start(30, 1);
      for (uint64_t i = 0; i < 30; ++i) test.Set(handle, kA + (round * 11 + i) % 64, round);
      if (round > 1) handle.RevokeBlock(kA + 100 + round - 1);
    }
    ASSERT_EQ(test.journal().CommitNow(CommitReason::kSync), Error::kOk);
    CommitOne(&test, kA + 100 + round, round);
    if (round % 3 == 0) {
      ASSERT_EQ(test.journal().CheckpointNow(), Error::kOk);
    }
    const std::unique_ptr<MemoryDevice> good = device_.Clone(), bad = device_.Clone();
    LoseSlot(bad.get(), NewerSlot(bad.get()));
    LogArea log = TestLog();
    if (log.ReadState(bad.get()) != Error::kOk) {
      ++refused;
      continue;
    }
    if (!Replay(bad.get(), TestGeometry(), &log).ok()) {
      ++refused;
      continue;
    }
    ++replayed;
    ReplayOrFail(good.get(), &log);
    for (uint64_t i = 0; i < 64; ++i) {
      EXPECT_EQ(VersionOnDevice(bad.get(), kA + i), VersionOnDevice(good.get(), kA + i));
    }
    EXPECT_EQ(VersionOnDevice(bad.get(), kA + 100 + round), round);
    if (HasFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(replayed, 5u);
  EXPECT_GT(refused, 0u);
}

// After a clean end both slots say so, and the loss of one brings nothing back.
TEST_F(LostSlotTest, EmptyLogStaysEmpty) {
  for (const bool replay : {false, true}) {
    FormatLog(&device_);
    {
      JournalUnderTest test(&device_);
      CommitOne(&test, kA, 1);
      CommitOne(&test, kA, 2);
      if (!replay) {
        EXPECT_EQ(test.journal().Close(), Error::kOk);
      }
    }
    LogArea log;
    ReplayOrFail(&device_, &log);
    for (const uint64_t slot : {0, 1}) {
      const std::unique_ptr<MemoryDevice> device = device_.Clone();
      LoseSlot(device.get(), slot);
      EXPECT_FALSE(ReplayOrFail(device.get(), &log).needed);
      EXPECT_EQ(log.state.tail_tid, 3u);
    }
  }
}

}  // namespace
}  // namespace sluice
