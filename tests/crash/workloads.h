// SPDX-License-Identifier: Apache-2.0
//
// The named workloads of the crash tests. They begin with the tree of RunWorkload (runner.h).
#ifndef SLUICE_TESTS_CRASH_WORKLOADS_H_
#define SLUICE_TESTS_CRASH_WORKLOADS_H_

#include <vector>

#include "tests/crash/runner.h"

namespace sluice::crash {

struct Workload {
  const char* name;
  const char* text;
};

const std::vector<Workload>& Workloads();
const std::vector<Setting>& Settings();

}  // namespace sluice::crash

#endif  // SLUICE_TESTS_CRASH_WORKLOADS_H_
