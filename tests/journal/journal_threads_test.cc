// SPDX-License-Identifier: Apache-2.0
//
// The journal with its threads: the smallest log under many editors, group commit, the interval.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "block/crash_device.h"
#include "block/crash_states.h"
#include "block/memory_device.h"
#include "block/scheduler.h"
#include "tests/journal/journal_fixture.h"

namespace sluice {
namespace {

constexpr BlockNumber kFirst = kFirstTestBlock;
constexpr int kThreads = 16;
constexpr uint64_t kBlocksPerThread = 30;
constexpr BlockNumber kShared = kFirst + kThreads * kBlocksPerThread;

BlockNumber BlockOf(int thread, uint64_t i) {
  return kFirst + static_cast<uint64_t>(thread) * kBlocksPerThread + i;
}

// What a thread's blocks held when one of its transactions ended.
using Versions = std::map<BlockNumber, uint64_t>;

struct Worker {
  // The thread's state after its last handle in each transaction.
  std::map<Tid, Versions> by_tid;
  Tid durable = 0;
};

// `device`, if not null, is told of each transaction that is known to be durable.
void Work(JournalUnderTest* test, int thread, int rounds, Worker* worker,
          CrashDevice* device = nullptr) {
  std::mt19937_64 random(static_cast<uint64_t>(thread) + 1);
  Versions now;
  uint64_t version = 0;
  for (int round = 0; round < rounds; ++round) {
    Tid tid;
    {
      Handle handle = test->Start(6, 1);
      tid = handle.tid();
      ++version;
      for (uint64_t n = 1 + random() % 4; n > 0; --n) {
        const BlockNumber block = BlockOf(thread, random() % kBlocksPerThread);
        test->Set(handle, block, version);
        now[block] = version;
      }
      // A block that everybody edits, so that transactions meet on it.
      handle.Edit(test->Buf(kShared)).data()[100 + thread] = static_cast<std::byte>(version);
      worker->by_tid[tid] = now;
    }
    if (random() % 16 == 0) {
      ASSERT_EQ(test->journal().Commit(tid, CommitReason::kFsync), Error::kOk);
      worker->durable = tid;
      if (device != nullptr) device->Mark(tid);
    }
  }
}

void RunWorkers(JournalUnderTest* test, int rounds, std::vector<Worker>* workers,
                CrashDevice* device = nullptr) {
  {
    Handle handle = test->Start(1);
    test->Set(handle, kShared, 0);
  }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < workers->size(); ++i) {
    threads.emplace_back([=] { Work(test, static_cast<int>(i), rounds, &(*workers)[i], device); });
  }
  for (std::thread& thread : threads) thread.join();
}

// After a replay: each thread's blocks are those of its last handle up to the last transaction.
void Judge(Device* device, const std::vector<Worker>& workers, Tid durable) {
  LogArea log;
  ReplayOrFail(device, &log);
  const Tid tid = log.state.tail_tid - 1;
  EXPECT_GE(tid, durable);
  for (const Worker& worker : workers) {
    auto last = worker.by_tid.upper_bound(tid);
    if (last == worker.by_tid.begin()) continue;
    for (const auto& [block, version] : (--last)->second) {
      EXPECT_EQ(VersionOnDevice(device, block), version);
    }
  }
}

TEST(JournalThreadsTest, SmallestLogUnderManyEditorsThenACrash) {
  MemoryDevice device(kTestBlocks * kBlockSize);
  FormatLog(&device);
  std::vector<Worker> workers(kThreads);
  {
    JournalUnderTest test(&device, JournalOptions{});
    RunWorkers(&test, 300, &workers);
    const JournalStats stats = test.journal().stats();
    EXPECT_EQ(stats.credit_leaks, 0u);
    EXPECT_GT(stats.log_blocks_written, 1022u) << "the log never wrapped";
    test.Crash();
  }
  Tid durable = 0;
  for (const Worker& worker : workers) durable = std::max(durable, worker.durable);
  Judge(&device, workers, durable);
}

// The same, with a crash at every flush boundary and in between.
TEST(JournalThreadsTest, CrashStatesOfAThreadedRun) {
  CrashDevice device(kTestBlocks * kBlockSize);
  FormatLog(&device);
  device.StartLog();
  std::vector<Worker> workers(4);
  {
    JournalUnderTest test(&device, JournalOptions{});
    RunWorkers(&test, 150, &workers, &device);
    EXPECT_EQ(test.journal().Close(), Error::kOk);
  }
  const CrashLog log = device.TakeLog();
  CrashOptions options;
  options.exhaustive = 3;
  options.samples = 6;
  CrashStates states(log, options);
  while (states.Next()) {
    Judge(states.Materialize().get(), workers, states.Mark().value_or(0));
    if (testing::Test::HasFailure()) FAIL() << states.Token();
  }
  EXPECT_GT(states.count(), 100u);
}

// Whoever wants a commit while another is under way shares the next one.
TEST(JournalThreadsTest, CommitsAreShared) {
  MemoryDevice device(kTestBlocks * kBlockSize);
  FormatLog(&device);
  JournalOptions options;
  std::atomic<int> waiting{0};
  Mutex mutex;
  CondVar changed;
  bool stalled = false, go_on = false;
  options.on_point = [&](JournalPoint point) {
    if (point != JournalPoint::kRecordWritten) return;
    MutexLock lock(&mutex);
    stalled = true;
    changed.SignalAll();
    while (!go_on) changed.Wait(&mutex);
  };
  JournalUnderTest test(&device, options);
  test.SetOne(kFirst, 1);
  test.journal().RequestCommit(1, CommitReason::kSync);
  {
    MutexLock lock(&mutex);
    while (!stalled) changed.Wait(&mutex);
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      Tid tid;
      {
        Handle handle = test.Start(1);
        tid = handle.tid();
        test.Set(handle, kFirst + 1 + static_cast<uint64_t>(i), 1);
      }
      {
        MutexLock lock(&mutex);
        ++waiting;
        changed.SignalAll();
      }
      EXPECT_EQ(test.journal().Commit(tid, CommitReason::kFsync), Error::kOk);
    });
  }
  {
    MutexLock lock(&mutex);
    while (waiting < 8) changed.Wait(&mutex);
    go_on = true;
    changed.SignalAll();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(test.journal().stats().commits, 2u);
  EXPECT_EQ(test.journal().Close(), Error::kOk);
}

TEST(JournalThreadsTest, IntervalCommits) {
  MemoryDevice device(kTestBlocks * kBlockSize);
  FormatLog(&device);
  JournalOptions options;
  options.commit_interval = 5'000'000;
  JournalUnderTest test(&device, options);
  Mutex mutex;
  CondVar committed;
  bool done = false;
  {
    Handle handle = test.Start(1);
    test.Set(handle, kFirst, 1);
    test.journal().WhenCommitted(handle.tid(), [&](Error error) {
      MutexLock lock(&mutex);
      done = error == Error::kOk;
      committed.Signal();
    });
  }
  {
    MutexLock lock(&mutex);
    while (!done) committed.Wait(&mutex);
  }
  EXPECT_EQ(test.journal().stats().commits_by_reason[static_cast<int>(CommitReason::kInterval)],
            1u);
}

// A locked transaction turns starters away without making them wait, and they get in when it has
// switched.
TEST(JournalThreadsTest, LockedTransactionBlocksStartersUntilItSwitches) {
  MemoryDevice device(kTestBlocks * kBlockSize);
  FormatLog(&device);
  JournalOptions options;
  Mutex mutex;
  CondVar changed;
  bool locked = false;
  options.on_point = [&](JournalPoint point) {
    if (point != JournalPoint::kLocked) return;
    MutexLock lock(&mutex);
    locked = true;
    changed.SignalAll();
  };
  JournalUnderTest test(&device, options);
  Handle slow = test.Start(1);
  test.Set(slow, kFirst, 1);
  test.journal().RequestCommit(slow.tid(), CommitReason::kSync);
  {
    MutexLock lock(&mutex);
    while (!locked) changed.Wait(&mutex);
  }
  EXPECT_FALSE(slow.TryExtend(1));
  std::thread starter([&] {
    Attempt attempt;
    EXPECT_EQ(test.journal().TryStart(attempt, OpType::kMisc, 1).error(), Error::kWouldBlock);
    MutexLock lock(&mutex);
    locked = false;
    changed.SignalAll();
    // The mutex is given back before the wait.
  });
  {
    MutexLock lock(&mutex);
    while (locked) changed.Wait(&mutex);
  }
  starter.join();
  slow.Stop();
  EXPECT_EQ(test.Start(1).tid(), 2u);
  // Once for the starter; this thread's start may have met the lock too, before the switch.
  EXPECT_GE(test.journal().stats().start_blocked_locked, 1u);
}

// J6: a checkpoint write is in flight when its block is freed; the freeing transaction's callbacks,
// which make the block available, run after it.
class SlowHomeDevice : public Device {
 public:
  explicit SlowHomeDevice(Device* base) : base_(base) {}
  uint64_t size() const override { return base_->size(); }
  bool read_only() const override { return false; }
  void Submit(std::span<IoRequest* const> requests) override {
    for (IoRequest* const request : requests) {
      if (request->op == IoOp::kWrite && request->offset == kFirst * kBlockSize) {
        MutexLock lock(&mutex_);
        held_ = request;
        changed_.SignalAll();
      } else {
        base_->Submit({&request, 1});
      }
    }
  }
  void WaitForHeld() {
    MutexLock lock(&mutex_);
    while (held_ == nullptr) changed_.Wait(&mutex_);
  }
  void LetGo() {
    IoRequest* request;
    {
      MutexLock lock(&mutex_);
      request = std::exchange(held_, nullptr);
    }
    base_->Submit({&request, 1});
  }

 private:
  Device* base_;
  Mutex mutex_;
  CondVar changed_;
  IoRequest* held_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

TEST(JournalThreadsTest, FreedBlockWaitsForItsCheckpointWrite) {
  MemoryDevice memory(kTestBlocks * kBlockSize);
  FormatLog(&memory);
  SlowHomeDevice device(&memory);
  std::atomic<bool> let_go{false};
  std::atomic<bool> durable{false};
  Mutex mutex;
  CondVar changed;
  JournalOptions options;
  options.on_point = [&](JournalPoint point) {
    if (point != JournalPoint::kCommitFlushed) return;
    MutexLock lock(&mutex);
    durable = true;
    changed.SignalAll();
  };
  JournalUnderTest test(&device, options);
  test.SetOne(kFirst, 1);
  ASSERT_EQ(test.journal().CommitAll(CommitReason::kSync), Error::kOk);
  std::thread checkpointer([&] { EXPECT_EQ(test.journal().CheckpointNow(), Error::kOk); });
  device.WaitForHeld();
  durable = false;
  Tid tid;
  bool freed_after_write = false;
  {
    Handle handle = test.Start(0, 1);
    tid = handle.tid();
    handle.RevokeBlock(kFirst);
    handle.OnCommit([&](Error) { freed_after_write = let_go; });
  }
  test.journal().RequestCommit(tid, CommitReason::kSync);
  {
    MutexLock lock(&mutex);
    while (!durable) changed.Wait(&mutex);
  }
  EXPECT_FALSE(test.journal().IsCommitted(tid));
  let_go = true;
  device.LetGo();
  EXPECT_EQ(test.journal().Commit(tid, CommitReason::kSync), Error::kOk);
  EXPECT_TRUE(freed_after_write);
  checkpointer.join();
  EXPECT_EQ(test.journal().Close(), Error::kOk);
}

// Holds what the checkpoint writes home until Release.
class HeldHomeDevice : public Device {
 public:
  explicit HeldHomeDevice(Device* base) : base_(base) {}
  uint64_t size() const override { return base_->size(); }
  bool read_only() const override { return false; }
  void Submit(std::span<IoRequest* const> requests) override {
    std::vector<IoRequest*> pass;
    {
      MutexLock lock(&mutex_);
      for (IoRequest* request : requests) {
        const bool hold = holding_ && request->kind == IoKind::kBackgroundWrite;
        (hold ? held_ : pass).push_back(request);
      }
      changed_.SignalAll();
    }
    base_->Submit(pass);
  }
  void WaitForHeld(size_t count) {
    MutexLock lock(&mutex_);
    while (held_.size() < count) changed_.Wait(&mutex_);
  }
  void Release() {
    std::vector<IoRequest*> pass;
    {
      MutexLock lock(&mutex_);
      holding_ = false;
      pass.swap(held_);
    }
    base_->Submit(pass);
  }

 private:
  Device* const base_;
  Mutex mutex_;
  CondVar changed_;
  bool holding_ ABSL_GUARDED_BY(mutex_) = true;
  std::vector<IoRequest*> held_ ABSL_GUARDED_BY(mutex_);
};

// J3: the checkpoint began in the background, with one write in the device and the rest queued; a
// handle that needs log space does not wait for that to trickle.
TEST(JournalThreadsTest, WhoWaitsForLogSpacePromotesTheCheckpoint) {
  constexpr uint64_t kScattered = 8;
  MemoryDevice memory(kTestBlocks * kBlockSize);
  FormatLog(&memory);
  HeldHomeDevice device(&memory);
  Scheduler scheduler(&device, {.alone_requests = 1, .beside_requests = 1});
  JournalUnderTest test(&scheduler, JournalOptions());
  std::thread editor([&] {
    // Far more than the log can hold at once.
    const uint64_t rounds = 2 * TestLog().blocks() / kScattered;
    for (uint64_t round = 1; round <= rounds; ++round) {
      for (uint64_t i = 0; i < kScattered; ++i) {
        test.SetOne(kFirst + 2 * ((round * kScattered + i) % 2000), round);
      }
      ASSERT_EQ(test.journal().CommitAll(CommitReason::kSync), Error::kOk);
    }
  });
  device.WaitForHeld(kScattered);
  EXPECT_GE(scheduler.stats().promoted, kScattered - 1);
  device.Release();
  editor.join();
  EXPECT_EQ(test.journal().Close(), Error::kOk);
}

}  // namespace
}  // namespace sluice
