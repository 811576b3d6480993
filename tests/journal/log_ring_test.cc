// SPDX-License-Identifier: Apache-2.0
#include "journal/log_ring.h"

#include <gtest/gtest.h>

#include "journal/credits.h"

namespace sluice {
namespace {

// Against a model that counts one block at a time, for every pair of places in small rings.
TEST(LogRingTest, AgreesWithCountingBlocks) {
  for (uint64_t blocks = 4; blocks <= 12; ++blocks) {
    const LogRing ring(blocks);
    EXPECT_EQ(ring.size(), blocks - 2);
    for (uint64_t from = 2; from < blocks; ++from) {
      uint64_t at = from;
      for (uint64_t count = 0; count < 3 * blocks; ++count) {
        EXPECT_EQ(ring.Advance(from, count), at);
        if (count < ring.size()) {
          EXPECT_EQ(ring.Distance(from, at), count);
          EXPECT_EQ(ring.Free(from, at), ring.size() - 1 - count);
        }
        at = at + 1 == blocks ? 2 : at + 1;
      }
    }
  }
}

TEST(CreditLimitsTest, AFullTransactionFitsItsShareOfTheLog) {
  for (uint64_t ring : {1022ull, 4096ull, 32766ull, (1ull << 20) - 2}) {
    const CreditLimits limits(ring);
    EXPECT_LE(3 * static_cast<uint64_t>(limits.max_transaction), ring);
    const int images = limits.max_handle;
    const int descriptors = CeilDiv(images, static_cast<int>(format::kTagsPerDescriptor));
    EXPECT_LE(images + descriptors + 1, limits.max_transaction);
  }
}

}  // namespace
}  // namespace sluice
