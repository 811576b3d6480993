// SPDX-License-Identifier: Apache-2.0
#include "fs/fuse/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>

namespace sluice {
namespace {

class FunctionJob : public WorkerPool::Job {
 public:
  explicit FunctionJob(std::function<void()> function) : function_(std::move(function)) {}
  void Run() override { function_(); }

 private:
  std::function<void()> function_;
};

void Submit(WorkerPool* pool, std::function<void()> function) {
  pool->Submit(std::make_unique<FunctionJob>(std::move(function)));
}

TEST(WorkerPool, WaitIdleWaitsForAllJobs) {
  WorkerPool pool(4);
  std::atomic<int> done{0};
  for (int i = 0; i < 1000; ++i) Submit(&pool, [&] { ++done; });
  pool.WaitIdle();
  EXPECT_EQ(done, 1000);
}

// Every job waits for all others: it ends only if the pool grows to four threads.
TEST(WorkerPool, GrowsWhileJobsBlock) {
  WorkerPool pool(4);
  std::latch all(4);
  for (int i = 0; i < 4; ++i) Submit(&pool, [&] { all.arrive_and_wait(); });
  pool.WaitIdle();
  EXPECT_TRUE(all.try_wait());
}

TEST(WorkerPool, NeverMoreThreadsThanTheBound) {
  WorkerPool pool(3);
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  for (int i = 0; i < 200; ++i) {
    Submit(&pool, [&] {
      const int now = ++running;
      int seen = most;
      while (seen < now && !most.compare_exchange_weak(seen, now)) {
      }
      --running;
    });
  }
  pool.WaitIdle();
  EXPECT_LE(most, 3);
}

TEST(WorkerPool, DestructorRunsWhatIsQueued) {
  std::atomic<int> done{0};
  {
    WorkerPool pool(1);
    for (int i = 0; i < 100; ++i) Submit(&pool, [&] { ++done; });
  }
  EXPECT_EQ(done, 100);
}

TEST(WorkerPool, JobsMaySubmitJobs) {
  WorkerPool pool(2);
  std::atomic<int> done{0};
  Submit(&pool, [&] {
    Submit(&pool, [&] { ++done; });
    ++done;
  });
  pool.WaitIdle();
  EXPECT_EQ(done, 2);
}

}  // namespace
}  // namespace sluice
