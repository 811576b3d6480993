// SPDX-License-Identifier: Apache-2.0
//
// Runs a judge over every crash state of a recorded workload. A failure prints the token of its
// state; SLUICE_CRASH_TOKEN=<token> in the environment makes the same test look at that state
// alone, under a debugger for example.
#ifndef SLUICE_TESTS_SUPPORT_CRASH_CHECK_H_
#define SLUICE_TESTS_SUPPORT_CRASH_CHECK_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

#include "block/crash_device.h"
#include "block/crash_states.h"

namespace sluice {

// Looks at one state: `device` may be written to (recovery); `mark` is the last one before the
// crash. Returns what is wrong; empty if nothing is.
using CrashJudge = std::function<std::string(MemoryDevice* device, std::optional<uint64_t> mark)>;

// Judges every state of `log`, and fails the test for each of the first few that are wrong.
// Returns how many states there were; a test should say how many it expects at least.
inline uint64_t CheckCrashStates(const CrashLog& log, const CrashJudge& judge,
                                 const CrashOptions& options = {}) {
  constexpr int kMaxFailures = 3;
  CrashStates states(log, options);
  const auto judged = [&] {
    const std::string wrong = judge(states.Materialize().get(), states.Mark());
    if (wrong.empty()) return true;
    ADD_FAILURE() << wrong << "\nreplay with SLUICE_CRASH_TOKEN='" << states.Token() << "'";
    return false;
  };
  if (const char* const token = std::getenv("SLUICE_CRASH_TOKEN"); token != nullptr) {
    if (states.GoTo(token) != Error::kOk) {
      ADD_FAILURE() << "the token is not of this workload";
    } else {
      judged();
    }
    return 1;
  }
  for (int failures = 0; states.Next();) {
    if (!judged() && ++failures == kMaxFailures) break;
  }
  return states.count();
}

}  // namespace sluice

#endif  // SLUICE_TESTS_SUPPORT_CRASH_CHECK_H_
