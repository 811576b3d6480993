// SPDX-License-Identifier: Apache-2.0
//
// The crash tests can fail: with faults planted below the filesystem the judge finds violations.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "tests/crash/explorer.h"
#include "tests/crash/faulty_device.h"
#include "tests/crash/workloads.h"

namespace sluice::crash {
namespace {

// Flushes that do nothing: all of them, or every second one.
class NoFlushDevice : public FaultyDevice {
 public:
  NoFlushDevice(Device* below, unsigned keep_every) : FaultyDevice(below), keep_(keep_every) {}

 private:
  bool Swallow(const IoRequest& request) override {
    if (request.op != IoOp::kFlush) return false;
    ++flushes_;
    return keep_ == 0 || flushes_ % keep_ != 0;
  }
  const unsigned keep_;
  unsigned flushes_ = 0;
};

// Writes of file data come one flush too late: as if nobody had ordered them before the commit.
class LateDataDevice : public FaultyDevice {
 public:
  using FaultyDevice::FaultyDevice;

 private:
  bool Swallow(const IoRequest& request) override {
    if (request.op == IoOp::kFlush) {
      for (const auto& [offset, bytes] : std::exchange(late_, {})) {
        IgnoreError(below()->Write(offset, bytes));
      }
      late_ = std::exchange(held_, {});
      return false;
    }
    if (request.op != IoOp::kWrite || !IsData(request)) return false;
    std::vector<std::byte> bytes;
    for (const auto& buffer : request.buffers) {
      bytes.insert(bytes.end(), buffer.begin(), buffer.end());
    }
    held_.emplace_back(request.offset, std::move(bytes));
    return true;
  }
  // Files of these tests begin with their pattern.
  static bool IsData(const IoRequest& request) {
    return request.buffers[0][0] == static_cast<std::byte>(History::Pattern(2, 1, 0, 1)[0]);
  }
  std::vector<std::pair<uint64_t, std::vector<std::byte>>> held_, late_;
};

const char* const kWorkloads[] = {
    "create A/f; append A/f 9000; fsync A/f; create A/g; append A/g 5000; fsync A/g",
    "append A/foo 9000; fsync A/foo; rename A/foo A/f; fsync A/f; mkdir B/D; fsync B",
    "write A/foo 0 4096; fdatasync A/foo; unlink A/foo; fsync A; append A/bar 9000; fsync A/bar",
};

size_t Cases() { return std::size(kWorkloads) * Settings().size(); }

size_t Violations(const RunOptions& options) {
  size_t found = 0;
  for (const char* workload : kWorkloads) {
    for (const Setting& setting : Settings()) {
      const Recording recording = RunWorkload(workload, setting, options);
      EXPECT_EQ(recording.problem, "");
      found += Explore("planted", recording, {.states = 60}).violations.size();
    }
  }
  return found;
}

class PlantedTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("CRASH_TOKEN") != nullptr) GTEST_SKIP() << "CRASH_TOKEN is of another case";
  }
};

TEST_F(PlantedTest, NothingPlantedNothingFound) { EXPECT_EQ(Violations({}), 0u); }

TEST_F(PlantedTest, NoFlushes) {
  const auto make = [](Device* below) { return std::make_unique<NoFlushDevice>(below, 0); };
  EXPECT_GE(Violations({.make_device = make}), Cases() / 2);
}

TEST_F(PlantedTest, EverySecondFlushMissing) {
  const auto make = [](Device* below) { return std::make_unique<NoFlushDevice>(below, 2); };
  EXPECT_GT(Violations({.make_device = make}), 0u);
}

TEST_F(PlantedTest, NoBarrier) { EXPECT_GE(Violations({.barrier = false}), Cases() / 2); }

TEST_F(PlantedTest, DataAfterItsCommit) {
  const auto make = [](Device* below) { return std::make_unique<LateDataDevice>(below); };
  EXPECT_GT(Violations({.make_device = make}), 0u);
}

}  // namespace
}  // namespace sluice::crash
