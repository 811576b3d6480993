// SPDX-License-Identifier: Apache-2.0
//
// Replay against logs made by hand with the log writer: what counts as the end, what as damage,
// and that nothing is written unless all is well.
#include "journal/replay.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "block/crash_device.h"
#include "block/crash_states.h"
#include "block/memory_device.h"
#include "journal/log_writer.h"
#include "tests/journal/journal_fixture.h"

namespace sluice {
namespace {

constexpr BlockNumber kA = kFirstTestBlock, kB = kA + 1, kC = kA + 2;

// Writes transactions into a log that starts at any ring index.
class LogMaker {
 public:
  LogMaker(Device* device, uint64_t start, Tid first_tid)
      : log_(TestLog()), writer_(device, &log_), next_(start), tid_(first_tid) {
    log_.state = {0, 1234, start, first_tid, 0};
    EXPECT_EQ(log_.WriteState(device), Error::kOk);
    EXPECT_EQ(log_.WriteState(device), Error::kOk);
  }

  // Returns the log index of the transaction's first block.
  uint64_t Add(const std::vector<std::pair<BlockNumber, uint64_t>>& images,
               const std::vector<BlockNumber>& revokes = {}, bool commit = true) {
    writer_.Begin(tid_, next_);
    EXPECT_EQ(writer_.AddRevokes(revokes), Error::kOk);
    for (const auto& [block, version] : images) {
      Result<std::byte*> image = writer_.NextImage();
      EXPECT_TRUE(image.ok());
      MakeTestBlock(block, version, *image);
      writer_.AddImage(block, format::BlockKind::kDirectory);
    }
    EXPECT_EQ(writer_.FinishRecord(), Error::kOk);
    if (commit) {
      EXPECT_EQ(writer_.WriteCommit(0), Error::kOk);
    }
    const uint64_t start = next_;
    next_ = log_.Advance(next_, writer_.log_blocks());
    ++tid_;
    return start;
  }

  uint64_t next() const { return next_; }
  const LogArea& log() const { return log_; }

 private:
  LogArea log_;
  LogWriter writer_;
  uint64_t next_;
  Tid tid_;
};

void FlipBit(Device* device, uint64_t log_index, size_t bit) {
  AlignedBuffer block(kBlockSize);
  const LogArea log = TestLog();
  ASSERT_EQ(log.ReadBlocks(device, log_index, block.span()), Error::kOk);
  block.data()[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  ASSERT_EQ(log.WriteBlocks(device, log_index, block.span()), Error::kOk);
}

// Expects kCorrupt, with a reason, and that nothing was written.
void ExpectCorrupt(MemoryDevice* device) {
  LogArea log = TestLog();
  ASSERT_EQ(log.ReadState(device), Error::kOk);
  const uint64_t writes = device->count(IoOp::kWrite);
  std::string problem;
  EXPECT_EQ(Replay(device, TestGeometry(), &log, &problem).error(), Error::kCorrupt);
  EXPECT_FALSE(problem.empty());
  EXPECT_EQ(device->count(IoOp::kWrite), writes);
}

class ReplayTest : public testing::Test {
 protected:
  MemoryDevice device_{kTestBlocks * kBlockSize};
  LogArea log_;
};

TEST_F(ReplayTest, EmptyLogNeedsNothing) {
  FormatLog(&device_, 9);
  const uint64_t writes = device_.count(IoOp::kWrite);
  const ReplayReport report = ReplayOrFail(&device_, &log_);
  EXPECT_FALSE(report.needed);
  EXPECT_EQ(device_.count(IoOp::kWrite), writes);
  EXPECT_EQ(log_.state.tail_tid, 9u);
}

TEST_F(ReplayTest, WritesTheNewestImagesAndEmptiesTheLog) {
  LogMaker maker(&device_, 2, 10);
  maker.Add({{kA, 1}, {kB, 1}});
  maker.Add({{kA, 2}});
  maker.Add({});
  const ReplayReport report = ReplayOrFail(&device_, &log_);
  EXPECT_TRUE(report.needed);
  EXPECT_EQ(report.transactions, 3u);
  EXPECT_EQ(report.blocks, 2u);
  EXPECT_EQ(report.last_tid, 12u);
  EXPECT_EQ(VersionOnDevice(&device_, kA), 2u);
  EXPECT_EQ(VersionOnDevice(&device_, kB), 1u);
  EXPECT_EQ(log_.state.tail_block, 0u);
  EXPECT_EQ(log_.state.tail_tid, 13u);
  EXPECT_NE(log_.state.incarnation, maker.log().state.incarnation);
  EXPECT_FALSE(ReplayOrFail(&device_, &log_).needed);
}

TEST_F(ReplayTest, WrapsAroundAndCrossesRuns) {
  for (const uint64_t start : {590u, 1000u, 1023u}) {
    MemoryDevice device(kTestBlocks * kBlockSize);
    LogMaker maker(&device, start, 3);
    std::vector<std::pair<BlockNumber, uint64_t>> images;
    for (uint64_t i = 0; i < 400; ++i) images.push_back({kA + i, i + 1});
    maker.Add(images);
    maker.Add({{kA, 1000}});
    EXPECT_EQ(ReplayOrFail(&device, &log_).transactions, 2u);
    EXPECT_EQ(VersionOnDevice(&device, kA), 1000u);
    for (uint64_t i = 1; i < 400; ++i) EXPECT_EQ(VersionOnDevice(&device, kA + i), i + 1);
  }
}

TEST_F(ReplayTest, EndsBeforeATransactionWithoutCommitRecord) {
  LogMaker maker(&device_, 2, 1);
  maker.Add({{kA, 1}});
  maker.Add({{kA, 2}}, {}, /*commit=*/false);
  EXPECT_EQ(ReplayOrFail(&device_, &log_).last_tid, 1u);
  EXPECT_EQ(VersionOnDevice(&device_, kA), 1u);
  EXPECT_EQ(log_.state.tail_tid, 2u);
}

TEST_F(ReplayTest, IgnoresAnOlderIncarnation) {
  {
    LogMaker old(&device_, 2, 1);
    for (int i = 0; i < 5; ++i) old.Add({{kB, 99}});
  }
  // The same image made again with another incarnation: the old records lie right behind.
  LogMaker maker(&device_, 2, 1);
  LogArea fresh = maker.log();
  fresh.state.incarnation = 4321;
  ASSERT_EQ(fresh.WriteState(&device_), Error::kOk);
  const ReplayReport report = ReplayOrFail(&device_, &log_);
  EXPECT_TRUE(report.needed);
  EXPECT_EQ(report.transactions, 0u);
  EXPECT_EQ(VersionOnDevice(&device_, kB), std::nullopt);
}

TEST_F(ReplayTest, AnOlderTidOfThisIncarnationIsTheEnd) {
  LogMaker maker(&device_, 2, 1);
  maker.Add({{kA, 1}});
  const uint64_t second = maker.Add({{kA, 2}});
  maker.Add({{kA, 3}});
  LogArea log = maker.log();
  log.state.tail_block = second;
  log.state.tail_tid = 2;
  ASSERT_EQ(log.WriteState(&device_), Error::kOk);
  EXPECT_EQ(ReplayOrFail(&device_, &log_).transactions, 2u);
  EXPECT_EQ(VersionOnDevice(&device_, kA), 3u);
}

TEST_F(ReplayTest, RevokedImagesStayInTheLog) {
  LogMaker maker(&device_, 2, 1);
  maker.Add({{kA, 1}, {kB, 1}, {kC, 1}});
  maker.Add({{kB, 2}}, {kA, kB});  // B was journaled again: its revoke is of tid 2, too
  maker.Add({{kB, 3}});
  AlignedBuffer data(kBlockSize);
  std::memset(data.data(), 0x11, kBlockSize);
  ASSERT_EQ(device_.Write(kA * kBlockSize, data.span()), Error::kOk);
  const ReplayReport report = ReplayOrFail(&device_, &log_);
  EXPECT_EQ(report.revoked, 3u);
  AlignedBuffer now(kBlockSize);
  ASSERT_EQ(device_.Read(kA * kBlockSize, now.span()), Error::kOk);
  EXPECT_EQ(std::memcmp(now.data(), data.data(), kBlockSize), 0) << "data was overwritten";
  EXPECT_EQ(VersionOnDevice(&device_, kB), 3u);
  EXPECT_EQ(VersionOnDevice(&device_, kC), 1u);
}

TEST_F(ReplayTest, RefusesBlocksThatAreNotToBeReplayed) {
  for (const BlockNumber bad : {BlockNumber{0}, BlockNumber{2000}, BlockNumber{1400},
                                BlockNumber{kTestBlocks}, ~BlockNumber{0}}) {
    MemoryDevice device(kTestBlocks * kBlockSize);
    LogMaker maker(&device, 2, 1);
    maker.Add({{kA, 1}});
    maker.Add({{bad, 1}});
    ExpectCorrupt(&device);
  }
  MemoryDevice device(kTestBlocks * kBlockSize);
  LogMaker maker(&device, 2, 1);
  maker.Add({{kA, 1}}, {kTestBlocks});
  ExpectCorrupt(&device);
}

// Every block of a log of three transactions, a sample of bits each: damage in the last transaction
// ends the log before it; damage before that is corruption. Never a crash, never a bad image.
TEST_F(ReplayTest, BitFlipsAreFoundWhereverTheyAre) {
  MemoryDevice pristine(kTestBlocks * kBlockSize);
  LogMaker maker(&pristine, 1019, 1);
  const uint64_t first = maker.Add({{kA, 1}, {kB, 1}});
  maker.Add({{kA, 2}}, {kC});
  const uint64_t last = maker.Add({{kB, 3}}, {kC});
  const LogArea& area = maker.log();
  bool in_last = false;
  for (uint64_t index = first; index != maker.next(); index = area.Advance(index, 1)) {
    in_last |= index == last;
    for (size_t bit = 0; bit < kBlockSize * 8; bit = bit < 800 ? bit + 7 : bit + 3001) {
      const std::unique_ptr<MemoryDevice> device = pristine.Clone();
      FlipBit(device.get(), index, bit);
      if (!in_last) {
        ExpectCorrupt(device.get());
        continue;
      }
      EXPECT_EQ(ReplayOrFail(device.get(), &log_).last_tid, 2u);
      EXPECT_EQ(VersionOnDevice(device.get(), kA), 2u);
      EXPECT_EQ(VersionOnDevice(device.get(), kB), 1u);
    }
  }
}

TEST_F(ReplayTest, ReadErrorsAreReportedAndNothingIsWritten) {
  LogMaker maker(&device_, 2, 1);
  maker.Add({{kA, 1}});
  for (uint64_t nth = 1; nth <= 2; ++nth) {
    LogArea log = TestLog();
    ASSERT_EQ(log.ReadState(&device_), Error::kOk);
    device_.FailNth(IoOp::kRead, nth);
    EXPECT_EQ(Replay(&device_, TestGeometry(), &log).error(), Error::kIo);
    device_.ClearFaults();
    EXPECT_EQ(VersionOnDevice(&device_, kA), std::nullopt);
  }
}

// A sparse image on a full host: said so, and nothing is lost.
TEST_F(ReplayTest, FullHostIsToldAndTheNextReplayFinishes) {
  LogMaker maker(&device_, 2, 1);
  maker.Add({{kA, 1}, {kB + 5, 1}});
  device_.FailRange(IoOp::kWrite, kB * kBlockSize, 10 * kBlockSize, Error::kNoSpace);
  LogArea log = TestLog();
  ASSERT_EQ(log.ReadState(&device_), Error::kOk);
  std::string problem;
  EXPECT_EQ(Replay(&device_, TestGeometry(), &log, &problem).error(), Error::kNoSpace);
  EXPECT_FALSE(problem.empty());
  EXPECT_NE(log.state.tail_block, 0u);
  device_.ClearFaults();
  EXPECT_EQ(ReplayOrFail(&device_, &log_).transactions, 1u);
  EXPECT_EQ(VersionOnDevice(&device_, kA), 1u);
  EXPECT_EQ(VersionOnDevice(&device_, kB + 5), 1u);
}

// A crash at any write of the replay, torn or reordered, and then another replay: the same end.
TEST_F(ReplayTest, IsIdempotent) {
  LogMaker maker(&device_, 1015, 1);
  maker.Add({{kA, 1}, {kB, 1}});
  maker.Add({{kA, 2}, {kB + 5, 2}}, {kC});
  maker.Add({{kA + 9, 3}});
  CrashDevice crash(device_.Image());
  LogArea log;
  ReplayOrFail(&crash, &log);
  const CrashLog recorded = crash.TakeLog();
  CrashOptions options;
  options.samples = 200;
  options.exhaustive = 8;
  CrashStates states(recorded, options);
  while (states.Next()) {
    const std::unique_ptr<MemoryDevice> device = states.Materialize();
    ReplayOrFail(device.get(), &log_);
    EXPECT_EQ(log_.state.tail_block, 0u);
    EXPECT_EQ(log_.state.tail_tid, 4u);
    EXPECT_EQ(VersionOnDevice(device.get(), kA), 2u);
    EXPECT_EQ(VersionOnDevice(device.get(), kB), 1u);
    EXPECT_EQ(VersionOnDevice(device.get(), kB + 5), 2u);
    EXPECT_EQ(VersionOnDevice(device.get(), kA + 9), 3u);
    if (HasFailure()) FAIL() << states.Token();
  }
  EXPECT_GT(states.count(), 50u);
}

}  // namespace
}  // namespace sluice
