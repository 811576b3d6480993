// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/crash/model.h"
#include "tests/crash/operation.h"

namespace sluice::crash {
namespace {

TEST(GeneratorTest, EachSequenceIsAWorkloadAndThereOnce) {
  std::set<std::string> seen;
  for (unsigned length = 1; length <= 2; ++length) {
    for (uint64_t i = 0; i < SequenceCount(length); ++i) {
      const std::string text = Sequence(length, i);
      EXPECT_TRUE(seen.insert(text).second) << text;
      if (i % 97 == 0 || length == 1) {
        EXPECT_TRUE(ParseWorkload(text)) << text;
      }
    }
  }
}

// Every operation and every persistence point that there is must be among the steps.
TEST(GeneratorTest, EachKindIsThere) {
  std::set<OpKind> kinds;
  for (uint64_t i = 0; i < SequenceCount(1); ++i) {
    const auto operations = ParseWorkload(Sequence(1, i));
    ASSERT_TRUE(operations) << Sequence(1, i);
    for (const Operation& operation : *operations) kinds.insert(operation.kind);
  }
  for (int kind = 0; kind <= static_cast<int>(OpKind::kSync); ++kind) {
    const auto of_descriptors = {OpKind::kOpen, OpKind::kTmpfile, OpKind::kClose};
    const OpKind it = static_cast<OpKind>(kind);
    if (std::find(of_descriptors.begin(), of_descriptors.end(), it) != of_descriptors.end()) {
      continue;
    }
    EXPECT_TRUE(kinds.contains(it)) << kind;
  }
}

TEST(GeneratorTest, ASeedIsASample) {
  std::mt19937_64 one(7), two(7), three(8);
  const std::string first = RandomSequence(&one);
  EXPECT_EQ(first, RandomSequence(&two));
  EXPECT_NE(first, RandomSequence(&three));
}

}  // namespace
}  // namespace sluice::crash
