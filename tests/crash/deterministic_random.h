// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_CRASH_DETERMINISTIC_RANDOM_H_
#define SLUICE_TESTS_CRASH_DETERMINISTIC_RANDOM_H_

namespace sluice::crash {

// Random numbers on this thread begin anew: equal runs are equal to the byte.
void RestartRandom();

}  // namespace sluice::crash

#endif  // SLUICE_TESTS_CRASH_DETERMINISTIC_RANDOM_H_
