// SPDX-License-Identifier: Apache-2.0
#include "fs/fuse/replies.h"

#include <gtest/gtest.h>
#include <sys/sysmacros.h>

#include <limits>

#include "format/inode.h"

namespace sluice {
namespace {

Attributes SomeAttributes() {
  Attributes attributes;
  attributes.ino = 4711;
  attributes.generation = 3;
  attributes.mode = S_IFREG | 04755;
  attributes.links = 2;
  attributes.uid = 1000;
  attributes.gid = 1001;
  attributes.size = 123456789012;
  attributes.sectors = 24;
  attributes.flags = format::kInodeImmutable | format::kInodeNoDump;
  attributes.atime = 1'500'000'000;
  attributes.mtime = -1;
  attributes.ctime = 2'000'000'007;
  attributes.btime = 3'000'000'000;
  return attributes;
}

TEST(Replies, TimesBefore1970HavePositiveNanoseconds) {
  EXPECT_EQ(TimespecFrom(-1).tv_sec, -1);
  EXPECT_EQ(TimespecFrom(-1).tv_nsec, 999'999'999);
  EXPECT_EQ(TimespecFrom(-1'000'000'000).tv_sec, -1);
  EXPECT_EQ(TimespecFrom(-1'000'000'000).tv_nsec, 0);
}

TEST(Replies, TimesSurviveTheRoundTrip) {
  for (const Nanoseconds time :
       {Nanoseconds{0}, Nanoseconds{1}, Nanoseconds{-1}, Nanoseconds{1'796'067'896'123'456'789},
        Nanoseconds{-8'000'000'000'000'000'001}}) {
    EXPECT_EQ(NanosecondsFrom(TimespecFrom(time)), time);
  }
}

TEST(Replies, TimesThatNoInodeHoldsBecomeTheNearest) {
  EXPECT_EQ(NanosecondsFrom({std::numeric_limits<time_t>::max(), 0}),
            std::numeric_limits<Nanoseconds>::max());
  EXPECT_EQ(NanosecondsFrom({std::numeric_limits<time_t>::min(), 0}),
            std::numeric_limits<Nanoseconds>::min());
}

TEST(Replies, StatAndTheKernelsFormsAgree) {
  const Attributes attributes = SomeAttributes();
  const struct stat st = StatFrom(attributes);
  const fuse_attr attr = FuseAttrFrom(attributes);
  const StatxAttributes statx = StatxFrom(attributes);
  EXPECT_EQ(st.st_ino, 4711u);
  EXPECT_EQ(attr.ino, 4711u);
  EXPECT_EQ(statx.inode, 4711u);
  EXPECT_EQ(st.st_mode, attributes.mode);
  EXPECT_EQ(attr.mode, attributes.mode);
  EXPECT_EQ(statx.mode, attributes.mode);
  EXPECT_EQ(static_cast<uint64_t>(st.st_size), attributes.size);
  EXPECT_EQ(attr.size, attributes.size);
  EXPECT_EQ(statx.size, attributes.size);
  EXPECT_EQ(st.st_blocks, 24);
  EXPECT_EQ(attr.blocks, 24u);
  EXPECT_EQ(statx.sectors, 24u);
  EXPECT_EQ(st.st_mtim.tv_sec, -1);
  EXPECT_EQ(static_cast<int64_t>(attr.mtime), -1);
  EXPECT_EQ(attr.mtimensec, 999'999'999u);
  EXPECT_EQ(statx.modification.seconds, -1);
  EXPECT_EQ(statx.birth.seconds, 3);
  EXPECT_EQ(statx.attributes, 0x50u);  // immutable, nodump
}

TEST(Replies, DeviceNumbers) {
  Attributes attributes = SomeAttributes();
  attributes.mode = S_IFCHR | 0600;
  attributes.major = 10;
  attributes.minor = 229;
  EXPECT_EQ(StatFrom(attributes).st_rdev, makedev(10, 229));
  EXPECT_EQ(StatxFrom(attributes).rdev_major, 10u);
  EXPECT_EQ(StatxFrom(attributes).rdev_minor, 229u);
}

}  // namespace
}  // namespace sluice
