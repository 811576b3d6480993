// SPDX-License-Identifier: Apache-2.0
//
// A crash at each named ordering point of commit and checkpoint (docs/DESIGN.md, "Journal"), and
// the same with the rule of a point broken: then something must be found.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "fs/filesystem_impl.h"
#include "tests/crash/explorer.h"
#include "tests/crash/faulty_device.h"
#include "tests/crash/workloads.h"

namespace sluice::crash {
namespace {

const char* const kWorkload =
    "create A/f; append A/f 9000; fsync A/f; unlink A/foo; append A/bar 5000; fsync A/bar; "
    "rename A/f B/old; mkdir A/D; fsync A";

const char* const kReuse =
    "truncate A/foo 0; fsync A/foo; append A/bar 20000; fdatasync A/bar; write A/bar 0 20000";

const Setting& SettingNamed(std::string_view name) {
  for (const Setting& setting : Settings()) {
    if (setting.name == name) return setting;
  }
  ADD_FAILURE() << name;
  return Settings()[0];
}

class OrderingTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("CRASH_TOKEN") != nullptr) GTEST_SKIP() << "CRASH_TOKEN is of another case";
  }
};

TEST_F(OrderingTest, ACrashAtEachPoint) {
  std::map<JournalPoint, std::vector<CrashLog>> logs;
  RunOptions options;
  options.on_point = [&](JournalPoint point, const CrashDevice& device) {
    logs[point].push_back(device.TakeLog());
  };
  const Setting& setting = SettingNamed("checkpoints");
  Recording recording = RunWorkload(kWorkload, setting, options);
  ASSERT_EQ(recording.problem, "");
  const std::string name = std::string(setting.name) + ": " + kWorkload;
  for (int i = 0; i <= static_cast<int>(JournalPoint::kTailFlushed); ++i) {
    const std::vector<CrashLog>& of_point = logs[static_cast<JournalPoint>(i)];
    EXPECT_GE(of_point.size(), 3u) << "point " << i;
    for (const CrashLog& log : of_point) {
      recording.log = log;
      const Exploration exploration = Explore(name, recording, {.states = 8});
      EXPECT_GT(exploration.states, 0u);
      for (const std::string& violation : exploration.violations) {
        ADD_FAILURE() << "at point " << i << ": " << violation;
      }
    }
  }
}

// Swallows the next flush behind each time a point was met.
class NoFlushAfterPoint : public FaultyDevice {
 public:
  using FaultyDevice::FaultyDevice;
  void Arm() { armed_ = true; }

 private:
  bool Swallow(const IoRequest& request) override {
    if (request.op != IoOp::kFlush || !armed_) return false;
    armed_ = false;
    return true;
  }
  bool armed_ = false;
};

// Of all settings; each state of the few that small limits enumerate.
size_t ViolationsWithout(std::optional<JournalPoint> before, const char* workload) {
  size_t found = 0;
  for (const Setting& setting : Settings()) {
    NoFlushAfterPoint* device = nullptr;
    RunOptions options;
    options.make_device = [&device](Device* below) {
      auto made = std::make_unique<NoFlushAfterPoint>(below);
      device = made.get();
      return made;
    };
    options.on_point = [&](JournalPoint point, const CrashDevice&) {
      if (point == before) device->Arm();
    };
    const Recording recording = RunWorkload(workload, setting, options);
    EXPECT_EQ(recording.problem, "");
    found += Explore("planted", recording, {.states = 400}).violations.size();
  }
  return found;
}

TEST_F(OrderingTest, NoFlushBeforeTheCommitRecord) {
  EXPECT_GT(ViolationsWithout(JournalPoint::kDataWritten, kWorkload), 0u);
}

TEST_F(OrderingTest, NoFlushBehindTheCommitRecord) {
  EXPECT_GT(ViolationsWithout(JournalPoint::kCommitWritten, kWorkload), 0u);
}

TEST_F(OrderingTest, TheTailMovesBeforeTheCheckpointIsFlushed) {
  EXPECT_GT(ViolationsWithout(JournalPoint::kCheckpointWritten, kWorkload), 0u);
}

// The control: none of it is found without a fault.
TEST_F(OrderingTest, NothingBrokenNothingFound) {
  EXPECT_EQ(ViolationsWithout(std::nullopt, kWorkload), 0u);
  EXPECT_EQ(ViolationsWithout(std::nullopt, kReuse), 0u);
}

// J4: with the freeing transaction not durable, its blocks get other bytes.
TEST_F(OrderingTest, FreedBlocksAreReusedTooEarly) {
  EXPECT_GT(ViolationsWithout(JournalPoint::kCommitWritten, kReuse), 0u);
}

// An inode without a name that the orphan file does not have is lost by a crash.
TEST_F(OrderingTest, AnOrphanIsForgotten) {
  size_t found = 0;
  for (const bool forget : {false, true}) {
    found = 0;
    RunOptions options;
    options.after_operation = [forget](Filesystem* fs) {
      if (!forget) return;
      Filesystem::Impl* const impl = fs->impl();
      for (const InodeRef& inode :
           impl->inodes->Collect([](Inode& i) { return i.orphan_slot != 0; })) {
        Attempt attempt;
        Result<Handle> handle = fs->journal()->TryStart(attempt, OpType::kMisc, 2);
        ASSERT_TRUE(handle.ok());
        MutexLock lock(&inode->mutex);
        impl->orphans->Remove(*handle, inode.get());
      }
    };
    const Recording recording = RunWorkload("open @o A/foo; unlink A/foo; create A/f; fsync A/f",
                                            SettingNamed("plain"), options);
    ASSERT_EQ(recording.problem, "");
    found = Explore("planted", recording, {.states = 100}).violations.size();
    EXPECT_EQ(found, forget ? 1u : 0u);
  }
}

}  // namespace
}  // namespace sluice::crash
