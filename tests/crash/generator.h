// SPDX-License-Identifier: Apache-2.0
//
// Makes workloads: sequences of one, two or three operations on the tree of RunWorkload, each with
// or without a persistence point behind it (fsync of the file, fdatasync, fsync of its directory,
// sync). All sequences of one and of two are counted out; those of three are drawn from a seed.
#ifndef SLUICE_TESTS_CRASH_GENERATOR_H_
#define SLUICE_TESTS_CRASH_GENERATOR_H_

#include <cstdint>
#include <random>
#include <string>

namespace sluice::crash {

// Steps: an operation and what makes it persistent. Numbered from 0.
uint64_t StepCount();

// Sequence `index` of all that have `length` (1 or 2) steps; there are StepCount() to the power of
// it. Not every sequence can be performed: the model (History::Apply) says which.
uint64_t SequenceCount(unsigned length);
std::string Sequence(unsigned length, uint64_t index);

// One of three steps.
std::string RandomSequence(std::mt19937_64* random);

}  // namespace sluice::crash

#endif  // SLUICE_TESTS_CRASH_GENERATOR_H_
