// SPDX-License-Identifier: Apache-2.0
//
// Times the journal alone, on a disk in memory. Not a test: it asserts no figures.
//
//   journal_bench start THREADS HANDLES
//     Each thread starts and stops HANDLES handles that touch three blocks of its own.
//   journal_bench sync THREADS COMMITS FLUSH_US [batch]
//     Each thread makes COMMITS small changes and waits for each to be durable; a flush of the disk
//     takes FLUSH_US. With `batch`, who waits first sleeps as jbd2_journal_stop does for a sync
//     handle: one average commit, if another thread was the last to sync.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "block/memory_device.h"
#include "tests/journal/journal_fixture.h"

namespace sluice {
namespace {

using SteadyClock = std::chrono::steady_clock;

double Seconds(std::chrono::duration<double> time) { return time.count(); }

double ProcessorSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Runs `work(thread)` on each of `count` threads; the seconds until the last has ended.
double RunThreads(int count, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  std::atomic<bool> go{false};
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
      work(i);
    });
  }
  const auto start = SteadyClock::now();
  go.store(true, std::memory_order_release);
  for (std::thread& thread : threads) thread.join();
  return Seconds(SteadyClock::now() - start);
}

void Pause(double seconds) {
  Mutex mutex;
  CondVar never;
  const auto end = SteadyClock::now() + std::chrono::duration<double>(seconds);
  MutexLock lock(&mutex);
  while (SteadyClock::now() < end) {
    never.WaitWithTimeout(&mutex, absl::Seconds(Seconds(end - SteadyClock::now())));
  }
}

std::vector<BufferRef> BlocksOf(JournalUnderTest* test, int thread) {
  std::vector<BufferRef> blocks;
  for (int i = 0; i < 3; ++i) {
    const auto offset = static_cast<BlockNumber>(thread * 3 + i);
    blocks.push_back(test->Buf(kFirstTestBlock + offset));
  }
  return blocks;
}

Tid TouchBlocks(JournalUnderTest* test, const std::vector<BufferRef>& blocks) {
  Handle handle = RunBlocking([&](Attempt& attempt) {
                    return test->journal().TryStart(attempt, OpType::kMisc, 3);
                  }).value();
  for (const BufferRef& block : blocks) handle.Edit(block).data()[100] ^= std::byte{1};
  return handle.tid();
}

void Report(const JournalStats& stats) {
  const auto commits = static_cast<double>(stats.commits);
  const int fsync = static_cast<int>(CommitReason::kFsync);
  std::printf("%llu commits, %.1f handles and %.1f fsyncs each, %.0f us each\n",
              static_cast<unsigned long long>(stats.commits),
              static_cast<double>(stats.handles) / commits,
              static_cast<double>(stats.requests_by_reason[fsync]) / commits,
              static_cast<double>(stats.commit_ns) / commits / 1000);
}

void BenchStart(int threads, int handles) {
  MemoryDevice device(kTestBlocks * kBlockSize);
  FormatLog(&device);
  JournalUnderTest test(&device, JournalOptions{});
  const double before = ProcessorSeconds();
  const double seconds = RunThreads(threads, [&](int thread) {
    const std::vector<BufferRef> blocks = BlocksOf(&test, thread);
    for (int i = 0; i < handles; ++i) TouchBlocks(&test, blocks);
  });
  const double count = static_cast<double>(threads) * handles;
  std::printf("%d threads: %.0f ns a handle, %.2f M handles/s, %.0f ns of processor a handle\n",
              threads, seconds * 1e9 / count, count / seconds / 1e6,
              (ProcessorSeconds() - before) * 1e9 / count);
}

class SlowFlush : public Device {
 public:
  SlowFlush(Device* base, int flush_us) : base_(base), flush_us_(flush_us) {}
  uint64_t size() const override { return base_->size(); }
  bool read_only() const override { return false; }
  void Submit(std::span<IoRequest* const> requests) override {
    for (const IoRequest* request : requests) {
      if (request->op != IoOp::kFlush) continue;
      Pause(flush_us_ * 1e-6);
    }
    base_->Submit(requests);
  }

 private:
  Device* const base_;
  const int flush_us_;
};

// jbd2's rule, with its limit of 15 ms. Its age of the transaction is here that of the last sync's
// end, which is about when the transaction began.
class Batching {
 public:
  void BeforeSync(int thread) {
    double sleep = 0;
    {
      MutexLock lock(&mutex_);
      const bool other = std::exchange(last_, thread) != thread;
      if (other && Seconds(SteadyClock::now() - ended_) < average_) sleep = average_;
    }
    if (sleep > 0) Pause(std::min(sleep, 0.015));
  }
  void AfterSync(double seconds) {
    MutexLock lock(&mutex_);
    average_ = (seconds + 3 * average_) / 4;
    ended_ = SteadyClock::now();
  }

 private:
  Mutex mutex_;
  int last_ ABSL_GUARDED_BY(mutex_) = -1;
  double average_ ABSL_GUARDED_BY(mutex_) = 0;
  SteadyClock::time_point ended_ ABSL_GUARDED_BY(mutex_) = SteadyClock::now();
};

void BenchSync(int threads, int commits, int flush_us, bool batch) {
  MemoryDevice memory(kTestBlocks * kBlockSize);
  FormatLog(&memory);
  SlowFlush device(&memory, flush_us);
  JournalUnderTest test(&device, JournalOptions{});
  Batching batching;
  const double seconds = RunThreads(threads, [&](int thread) {
    const std::vector<BufferRef> blocks = BlocksOf(&test, thread);
    for (int i = 0; i < commits; ++i) {
      const Tid tid = TouchBlocks(&test, blocks);
      if (batch) batching.BeforeSync(thread);
      const auto start = SteadyClock::now();
      if (test.journal().Commit(tid, CommitReason::kFsync) != Error::kOk) std::abort();
      batching.AfterSync(Seconds(SteadyClock::now() - start));
    }
  });
  std::printf("%d threads%s: %.0f syncs/s; ", threads, batch ? ", batching" : "",
              static_cast<double>(threads) * commits / seconds);
  Report(test.journal().stats());
}

int Main(int argc, char** argv) {
  TurnOffDeadlockDetector();
  const std::string_view mode = argc > 1 ? argv[1] : "";
  const auto number = [&](int i) { return std::atoi(argv[i]); };
  if (mode == "start" && argc == 4) {
    BenchStart(number(2), number(3));
  } else if (mode == "sync" && (argc == 5 || argc == 6)) {
    BenchSync(number(2), number(3), number(4), argc == 6);
  } else {
    std::fprintf(stderr,
                 "usage: %s start THREADS HANDLES | sync THREADS COMMITS FLUSH_US [batch]\n",
                 argv[0]);
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) { return sluice::Main(argc, argv); }
