// SPDX-License-Identifier: Apache-2.0
//
// Random histories on the crash device, judged by content: after any crash and a replay, the blocks
// are exactly those of one committed transaction, at least the last that was reported durable; and
// freed blocks that carry flushed data still carry it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "base/aligned_buffer.h"
#include "block/crash_device.h"
#include "block/crash_states.h"
#include "tests/journal/journal_fixture.h"

namespace sluice {
namespace {

constexpr BlockNumber kFirst = kFirstTestBlock;
constexpr uint64_t kBlocks = 24;

// What the namespace of blocks looks like: metadata with a version, or data, or nothing known.
struct Content {
  bool metadata = false;
  uint64_t value = 0;  // version, or the data's pattern; 0: free
  bool operator==(const Content&) const = default;
};
using Contents = std::map<BlockNumber, Content>;

struct Promise {
  Tid tid = 0;                           // durable
  std::map<BlockNumber, uint64_t> data;  // flushed data
};

class History {
 public:
  explicit History(uint64_t seed) : random_(seed), device_(kTestBlocks * kBlockSize) {
    FormatLog(&device_);
    device_.StartLog();
    test_ = std::make_unique<JournalUnderTest>(&device_);
    committed_[0] = {};
    Promised();
  }

  void Run(int steps) {
    for (int i = 0; i < steps; ++i) Step();
    if (Chance(2)) {
      EXPECT_EQ(test_->journal().Close(), Error::kOk);
    }
    EXPECT_EQ(test_->journal().stats().credit_leaks, 0u);
  }

  CrashLog log() const { return device_.TakeLog(); }

  // Judges a device after a crash whose last mark was `mark`.
  void Judge(MemoryDevice* device, uint64_t mark) {
    LogArea log;
    ReplayOrFail(device, &log);
    const Tid tid = log.state.tail_tid - 1;
    const Promise& promise = promises_[mark];
    EXPECT_GE(tid, promise.tid) << "a durable transaction is lost";
    ASSERT_TRUE(committed_.contains(tid));
    for (const auto& [block, content] : committed_[tid]) {
      if (content.metadata) {
        EXPECT_EQ(VersionOnDevice(device, block), content.value) << block << " at tid " << tid;
        continue;
      }
      const auto data = promise.data.find(block);
      if (data != promise.data.end()) {
        EXPECT_EQ(DataOnDevice(device, block), data->second) << "data of block " << block;
      }
    }
  }

 private:
  bool Chance(uint64_t n) { return random_() % n == 0; }

  void Step() {
    switch (random_() % 10) {
      case 0:
        return Commit();
      case 1:
        EXPECT_EQ(test_->journal().CheckpointNow(), Error::kOk);
        return;
      case 2:
        return WriteData();
      default:
        return Operation();
    }
  }

  // One handle: sets some blocks, frees some others. A block that has been freed is taken again
  // only once the freeing transaction is durable (J4), or, to meet the cancelled revoke, at times
  // as metadata in the same transaction.
  void Operation() {
    Handle handle = test_->Start(8, 4);
    const Tid tid = handle.tid();
    for (uint64_t n = random_() % 4; n > 0; --n) {
      const BlockNumber block = kFirst + random_() % kBlocks;
      if (freed_in_.contains(block) && freed_in_[block] == tid && !Chance(4)) continue;
      if (data_now_.contains(block)) continue;
      test_->Set(handle, block, ++version_);
      now_[block] = {true, version_};
    }
    for (uint64_t n = random_() % 3; n > 0; --n) {
      const BlockNumber block = kFirst + random_() % kBlocks;
      if (!now_[block].metadata) continue;
      if (Chance(2)) {
        handle.Revoke(test_->Buf(block));
      } else {
        handle.RevokeBlock(block);
      }
      now_[block] = {};
      freed_in_[block] = tid;
    }
    // If the transaction ends here, this is what it commits. Not promised before it has.
    committed_[tid] = now_;
  }

  void Commit() {
    const Tid tid = test_->journal().running_tid();
    EXPECT_EQ(test_->journal().CommitNow(CommitReason::kSync), Error::kOk);
    if (!test_->journal().IsCommitted(tid)) return;
    promise_.tid = tid;
    Promised();
  }

  // Takes a free block for data, in place, or gives one back to metadata's use.
  void WriteData() {
    if (!data_now_.empty() && Chance(2)) {
      promise_.data.erase(data_now_.begin()->first);
      data_now_.erase(data_now_.begin());
      Promised();
      return;
    }
    const BlockNumber block = kFirst + random_() % kBlocks;
    if (now_[block].metadata || data_now_.contains(block)) return;
    if (freed_in_.contains(block) && !test_->journal().IsCommitted(freed_in_[block])) return;
    AlignedBuffer bytes(kBlockSize);
    std::memset(bytes.data(), 0, kBlockSize);
    std::memcpy(bytes.data(), &++version_, sizeof(version_));
    EXPECT_EQ(device_.Write(block * kBlockSize, bytes.span()), Error::kOk);
    EXPECT_EQ(device_.Flush(), Error::kOk);
    data_now_[block] = version_;
    promise_.data[block] = version_;
    Promised();
  }

  static uint64_t DataOnDevice(Device* device, BlockNumber block) {
    AlignedBuffer bytes(kBlockSize);
    EXPECT_EQ(device->Read(block * kBlockSize, bytes.span()), Error::kOk);
    uint64_t value;
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }

  void Promised() {
    device_.Mark(promises_.size());
    promises_.push_back(promise_);
  }

  std::mt19937_64 random_;
  CrashDevice device_;
  std::unique_ptr<JournalUnderTest> test_;
  uint64_t version_ = 0;
  Contents now_;
  std::map<BlockNumber, Tid> freed_in_;
  std::map<BlockNumber, uint64_t> data_now_;
  std::map<Tid, Contents> committed_;
  Promise promise_;
  std::vector<Promise> promises_;
};

TEST(JournalCrashTest, EveryStateIsThatOfACommittedTransaction) {
  uint64_t states_seen = 0;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    History history(seed);
    history.Run(60);
    const CrashLog log = history.log();
    CrashOptions options;
    options.exhaustive = 4;
    options.samples = 12;
    options.seed = seed;
    CrashStates states(log, options);
    while (states.Next()) {
      history.Judge(states.Materialize().get(), states.Mark().value_or(0));
      if (testing::Test::HasFailure()) {
        FAIL() << "seed " << seed << ", state " << states.Token();
      }
    }
    states_seen += states.count();
  }
  EXPECT_GT(states_seen, 2000u);
}

}  // namespace
}  // namespace sluice
