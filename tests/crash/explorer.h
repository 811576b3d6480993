// SPDX-License-Identifier: Apache-2.0
//
// Looks at the states that a crash may leave of a recorded run (state_checker.h says how).
//
// How many: as many as $CRASH_STATES says per case (default below), spread evenly over all states
// that small limits enumerate; CRASH_STATES=all looks at every one: all subsets of up to 12
// unflushed writes, else 2000 samples, per flush.
//
// A failure prints CRASH_TOKEN='<case>|<state>[|<state of its recovery>]', which
// scripts/replay-crash looks at again. With that in the environment the tests do the same and skip
// all other cases.
#ifndef SLUICE_TESTS_CRASH_EXPLORER_H_
#define SLUICE_TESTS_CRASH_EXPLORER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "block/crash_states.h"
#include "tests/crash/runner.h"

namespace sluice::crash {

// States that were looked at already, of any workload: the same contents after the same
// operations in the same setting are the same.
using SeenStates = absl::flat_hash_set<uint64_t>;

struct ExploreOptions {
  uint64_t states = 0;                 // looked at, at most; 0: as the environment says
  uint64_t recovery_states = 0;        // of the mount of each, crashed again; 0: none
  uint64_t recovery_every = 1;         // of the mount of one state of so many
  uint64_t use_every = 4;              // one of so many is also used after the recovery
  unsigned max_violations = 1;         // then it stops
  std::optional<CrashOptions> limits;  // what is enumerated; absent: as the environment says
  SeenStates* seen = nullptr;          // these are not looked at again, and it grows
  uint64_t first = 0;                  // number of the first state, for the shares above
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

// Looks again at the state of a token (without the case). Everything is done with it that can be.
Exploration Revisit(const std::string& name, const Recording& recording, const std::string& state);

}  // namespace sluice::crash

#endif  // SLUICE_TESTS_CRASH_EXPLORER_H_
