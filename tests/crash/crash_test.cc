// SPDX-License-Identifier: Apache-2.0
//
// Crash tests of the whole filesystem: each workload in each setting, and every state that a crash
// may leave of it (explorer.h says how many are looked at, and how a failure's token replays it).
//
//   crash_test                                  a seeded subset, about two minutes
//   CRASH_STATES=all crash_test --gtest_filter='*rename*'
//   CRASH_TOKEN='...' crash_test                one state
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <tuple>

#include "tests/crash/explorer.h"
#include "tests/crash/workloads.h"

namespace sluice::crash {
namespace {

void ExpectAllowed(const std::string& name, const Recording& recording,
                   const ExploreOptions& options = {}) {
  ASSERT_EQ(recording.problem, "");
  const Exploration exploration = Explore(name, recording, options);
  if (exploration.skipped) GTEST_SKIP() << "CRASH_TOKEN is of another case";
  for (const std::string& violation : exploration.violations) ADD_FAILURE() << violation;
  EXPECT_GT(exploration.states + exploration.recovery_states, 0u);
  testing::Test::RecordProperty("states", static_cast<int>(exploration.states));
  testing::Test::RecordProperty("recovery_states", static_cast<int>(exploration.recovery_states));
}

using Case = std::tuple<Workload, Setting>;

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
}

class CrashTest : public testing::TestWithParam<Case> {
 protected:
  std::string Name() const {
    return std::string(std::get<0>(GetParam()).name) + "/" + std::get<1>(GetParam()).name;
  }
  Recording Run() const {
    return RunWorkload(std::get<0>(GetParam()).text, std::get<1>(GetParam()));
  }
};

TEST_P(CrashTest, LeavesAnAllowedState) { ExpectAllowed(Name(), Run()); }

INSTANTIATE_TEST_SUITE_P(Workloads, CrashTest,
                         testing::Combine(testing::ValuesIn(Workloads()),
                                          testing::ValuesIn(Settings())),
                         CaseName);

// A token is worth something: another run of the same case is the same to the byte.
TEST(TokenTest, LeadsToTheSameStateOfAnotherRun) {
  if (std::getenv("CRASH_TOKEN") != nullptr) GTEST_SKIP() << "CRASH_TOKEN is of another case";
  const char* const workload = "create A/f; append A/f 9000; fsync A/f; rename A/f B/old; sync";
  for (const Setting& setting : Settings()) {
    const Recording one = RunWorkload(workload, setting);
    const Recording two = RunWorkload(workload, setting);
    ASSERT_EQ(one.problem + two.problem, "");
    const CrashOptions few = {.exhaustive = 4, .samples = 5};
    CrashStates states(one.log, few);
    for (int i = 0; states.Next(); ++i) {
      if (i % 7 != 0) continue;
      ASSERT_EQ(CrashStates(two.log).GoTo(states.Token()), Error::kOk) << setting.name;
    }
  }
}

TEST(WorkloadTest, OneThatFailsIsNoProof) {
  const Setting& setting = Settings()[0];
  EXPECT_NE(RunWorkload("rmdir A", setting).problem, "");
  EXPECT_NE(RunWorkload("create A/f; link A/f A/foo", setting).problem, "");
  EXPECT_NE(RunWorkload("", setting).problem, "");
}

// A crash in the middle of the recovery from a crash.
class RecoveryCrashTest : public CrashTest {};

TEST_P(RecoveryCrashTest, LeadsToTheSameTree) {
  ExpectAllowed("recovery of " + Name(), Run(), {.states = 4, .recovery_states = 12});
}

INSTANTIATE_TEST_SUITE_P(Workloads, RecoveryCrashTest,
                         testing::Combine(testing::ValuesIn(Workloads()),
                                          testing::ValuesIn(Settings())),
                         CaseName);

}  // namespace
}  // namespace sluice::crash
