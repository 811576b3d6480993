// SPDX-License-Identifier: Apache-2.0
#include "fs/fuse/errno_map.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace sluice {
namespace {

constexpr Error kAllErrors[] = {
#define SLUICE_LISTED(name, text) Error::name,
    SLUICE_ERRORS(SLUICE_LISTED)
#undef SLUICE_LISTED
};

TEST(ErrnoMap, EveryErrorHasAnErrno) {
  for (const Error error : kAllErrors) {
    if (error == Error::kWouldBlock) continue;
    EXPECT_GT(ErrnoOf(error), 0) << std::string(ErrorText(error));
    EXPECT_LT(ErrnoOf(error), 512) << std::string(ErrorText(error));
  }
}

TEST(ErrnoMap, KnownOnes) {
  EXPECT_EQ(ErrnoOf(Error::kOk), 0);
  EXPECT_EQ(ErrnoOf(Error::kNotFound), ENOENT);
  EXPECT_EQ(ErrnoOf(Error::kNoEntryAtOffset), ENXIO);
  EXPECT_EQ(ErrnoOf(Error::kCorrupt), EUCLEAN);
  EXPECT_EQ(ErrnoOf(Error::kNotImplemented), ENOSYS);
  EXPECT_EQ(ErrnoOf(Error::kNotSupported), EOPNOTSUPP);
}

TEST(ErrnoMapDeathTest, WouldBlockNeverReachesTheKernel) {
  EXPECT_DEATH((void)ErrnoOf(Error::kWouldBlock), "kWouldBlock");
}

}  // namespace
}  // namespace sluice
