// SPDX-License-Identifier: Apache-2.0
//
// Looks again at the one state that a failure's token names, and says in words what it is.
#ifndef SLUICE_TESTS_CRASH_REPLAY_TOKEN_H_
#define SLUICE_TESTS_CRASH_REPLAY_TOKEN_H_

#include <string>

namespace sluice::crash {

// Prints to standard output. Returns the exit status: 0 nothing is wrong with the state (any more),
// 1 something is, 2 the token does not make sense.
int ReplayToken(const std::string& token);

}  // namespace sluice::crash

#endif  // SLUICE_TESTS_CRASH_REPLAY_TOKEN_H_
