// SPDX-License-Identifier: Apache-2.0
#include "alloc/group_index.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(GroupIndex, PrefersLongEnoughThenNear) {
  GroupIndex index(10);
  EXPECT_FALSE(index.Find(0, 1).has_value());
  index.Set(2, 5);
  index.Set(4, 100);
  index.Set(8, 32768);
  EXPECT_EQ(index.Find(0, 1), 2u);
  EXPECT_EQ(index.Find(0, 64), 4u);
  EXPECT_EQ(index.Find(5, 64), 8u);
  EXPECT_EQ(index.Find(9, 64), 4u);  // around
  EXPECT_EQ(index.Find(0, 1000), 8u);
  EXPECT_TRUE(index.Promises(4, 64));
  EXPECT_FALSE(index.Promises(4, 100));  // the order only tells 64 to 127
}

TEST(GroupIndex, FallsBackToTheLongest) {
  GroupIndex index(10);
  index.Set(1, 3);
  index.Set(7, 40);
  EXPECT_EQ(index.Find(0, 2048), 7u);
  index.Set(7, 0);
  EXPECT_FALSE(index.Contains(7));
  EXPECT_EQ(index.Find(0, 2048), 1u);
}

}  // namespace
}  // namespace sluice
