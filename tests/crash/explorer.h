// SPDX-License-Identifier: Apache-2.0
//
// Looks at the states that a crash may leave of a recorded run: mounts each, walks it, judges it,
// uses it, unmounts it and has it checked.
//
// How many: as many as $CRASH_STATES says per case (default below), spread evenly over all states
// that small limits enumerate; CRASH_STATES=all looks at every one: all subsets of up to 12
// unflushed writes, else 2000 samples, per flush.
//
// A failure prints CRASH_TOKEN='<case>|<state>[|<state of its recovery>]'. With that in the
// environment the same program looks at that state alone and skips all other cases.
#ifndef SLUICE_TESTS_CRASH_EXPLORER_H_
#define SLUICE_TESTS_CRASH_EXPLORER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "block/crash_states.h"
#include "tests/crash/runner.h"

namespace sluice::crash {

struct ExploreOptions {
  uint64_t states = 0;           // looked at, at most; 0: as the environment says
  uint64_t recovery_states = 0;  // of the mount of each, crashed again; 0: none
  unsigned max_violations = 1;   // then it stops
};

struct Exploration {
  uint64_t states = 0;           // looked at
  uint64_t possible = 0;         // enumerated
  uint64_t recovery_states = 0;  // crashed again in recovery
  std::vector<std::string> violations;
  bool skipped = false;  // the environment asks for another case
};

// `name` is the case's, for tokens: without '|' or quotes.
Exploration Explore(const std::string& name, const Recording& recording,
                    const ExploreOptions& options = {});

}  // namespace sluice::crash

#endif  // SLUICE_TESTS_CRASH_EXPLORER_H_
