// SPDX-License-Identifier: Apache-2.0
//
// 64 threads on the smallest legal log, with a schedule that is shaken at every point of commit and
// checkpoint, at every request to the disk, and between all calls, so that commit, checkpoint,
// restart and reservations meet in many orders. A full log must never end in a deadlock (the test
// would not end), credits add up, and a crash leaves what was promised.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "block/memory_device.h"
#include "tests/journal/journal_fixture.h"

namespace sluice {
namespace {

constexpr int kThreads = 64;
constexpr int kRounds = 80;
constexpr uint64_t kBlocksPerThread = 8;
constexpr BlockNumber kFirst = kFirstTestBlock;
constexpr BlockNumber kShared = kFirst + kThreads * kBlocksPerThread;

// Yields or spins, or neither, as the seed and the thread say. The scheduler has its part in it,
// so a seed does not repeat a run; it makes another kind of run.
class Perturbation {
 public:
  explicit Perturbation(uint64_t seed) : seed_(seed) {}
  void Point() const {
    thread_local std::mt19937_64 random(seed_ ^
                                        std::hash<std::thread::id>()(std::this_thread::get_id()));
    const uint64_t choice = random() % 16;
    if (choice < 4) {
      for (uint64_t n = choice + 1; n > 0; --n) std::this_thread::yield();
    } else if (choice < 6) {
      for (uint64_t n = random() % 2000; n > 0; --n)
        std::atomic_signal_fence(std::memory_order_seq_cst);
    }
  }

 private:
  const uint64_t seed_;
};

class PerturbedDevice : public Device {
 public:
  PerturbedDevice(Device* base, const Perturbation* perturbation)
      : base_(base), perturbation_(perturbation) {}
  uint64_t size() const override { return base_->size(); }
  bool read_only() const override { return false; }
  void Submit(std::span<IoRequest* const> requests) override {
    perturbation_->Point();
    base_->Submit(requests);
  }

 private:
  Device* const base_;
  const Perturbation* const perturbation_;
};

using Versions = std::map<BlockNumber, uint64_t>;

class Worker {
 public:
  Worker(JournalUnderTest* test, const Perturbation* perturbation, int thread, uint64_t seed)
      : test_(test),
        perturbation_(perturbation),
        first_(kFirst + static_cast<uint64_t>(thread) * kBlocksPerThread),
        random_(seed * 1000 + static_cast<uint64_t>(thread)) {}

  void Run() {
    for (int round = 0; round < kRounds; ++round) {
      Operation();
      if (reserved_.reserved() && Chance(2)) UseReservation();
      if (Chance(12)) Sync();
      perturbation_->Point();
    }
    reserved_.Free();
  }

  Tid durable() const { return durable_; }

  // After a replay up to `tid`: the blocks are as this thread's last handle up to there left them.
  void Judge(Device* device, Tid tid) const {
    auto last = by_tid_.upper_bound(tid);
    if (last == by_tid_.begin()) return;
    for (const auto& [block, version] : (--last)->second) {
      EXPECT_EQ(VersionOnDevice(device, block), version);
    }
  }

 private:
  bool Chance(uint64_t n) { return random_() % n == 0; }

  void Operation() {
    Handle handle = Chance(3) && !reserved_.reserved() ? StartAndReserve() : test_->Start(6, 1);
    perturbation_->Point();
    Change(&handle, 4);
    if (Chance(5)) {
      Attempt attempt;
      perturbation_->Point();
      const Error error = handle.TryRestart(attempt, 6, 1);
      if (error == Error::kWouldBlock) {
        EXPECT_EQ(attempt.Wait(), Error::kOk);
        handle = test_->Start(6, 1);
      }
      Change(&handle, 3);
    } else if (Chance(8) && handle.TryExtend(100)) {
      Change(&handle, 2);
    }
    perturbation_->Point();
  }

  Handle StartAndReserve() {
    return RunBlocking([&](Attempt& attempt) {
             return test_->journal().TryStart(attempt, OpType::kMapBlocks, Credits{6, 1},
                                              Credits{static_cast<int>(3 + random_() % 6), 0},
                                              &reserved_);
           })
        .value();
  }

  void UseReservation() {
    perturbation_->Point();
    if (Chance(3)) return reserved_.Free();
    Result<Handle> handle = test_->journal().StartReserved(std::move(reserved_));
    ASSERT_TRUE(handle.ok());
    perturbation_->Point();
    Change(&*handle, 2);
  }

  void Change(Handle* handle, uint64_t most) {
    ++version_;
    for (uint64_t n = 1 + random_() % most; n > 0; --n) {
      const BlockNumber block = first_ + random_() % kBlocksPerThread;
      test_->Set(*handle, block, version_);
      now_[block] = version_;
    }
    // Blocks that all threads edit: no checkpoint gets past them without a commit.
    if (Chance(2) && handle->credits_left() > 0) {
      handle->Edit(test_->Buf(kShared + random_() % 4)).data()[200] ^= std::byte{1};
    }
    by_tid_[handle->tid()] = now_;
    last_ = handle->tid();
  }

  void Sync() {
    ASSERT_EQ(test_->journal().Commit(last_, CommitReason::kFsync), Error::kOk);
    durable_ = last_;
  }

  JournalUnderTest* const test_;
  const Perturbation* const perturbation_;
  const BlockNumber first_;
  std::mt19937_64 random_;
  ReservedHandle reserved_;
  uint64_t version_ = 0;
  Versions now_;
  std::map<Tid, Versions> by_tid_;
  Tid last_ = 0;
  Tid durable_ = 0;
};

class JournalStressTest : public testing::TestWithParam<uint64_t> {};

TEST_P(JournalStressTest, FullLogNeverDeadlocks) {
  const uint64_t seed = GetParam();
  const Perturbation perturbation(seed);
  MemoryDevice memory(kTestBlocks * kBlockSize);
  FormatLog(&memory);
  PerturbedDevice device(&memory, &perturbation);
  std::vector<std::unique_ptr<Worker>> workers;
  {
    JournalOptions options;
    options.on_point = [&](JournalPoint) { perturbation.Point(); };
    JournalUnderTest test(&device, options);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      workers.push_back(std::make_unique<Worker>(&test, &perturbation, i, seed));
      threads.emplace_back([worker = workers.back().get()] { worker->Run(); });
    }
    for (std::thread& thread : threads) thread.join();
    const JournalStats stats = test.journal().stats();
    EXPECT_EQ(stats.credit_leaks, 0u);
    EXPECT_EQ(stats.reserved_credits, 0u);
    EXPECT_GT(stats.reserved_handles, 0u);
    EXPECT_GT(stats.requests_by_reason[static_cast<int>(CommitReason::kRestart)], 0u);
    EXPECT_GT(stats.log_blocks_written, 1022u) << "the log never wrapped";
    test.Crash();
  }
  LogArea log;
  ReplayOrFail(&memory, &log);
  const Tid last = log.state.tail_tid - 1;
  for (const auto& worker : workers) {
    EXPECT_LE(worker->durable(), last);
    worker->Judge(&memory, last);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, JournalStressTest, testing::Values(1, 2, 3));

}  // namespace
}  // namespace sluice
