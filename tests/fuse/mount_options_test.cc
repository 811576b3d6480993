// SPDX-License-Identifier: Apache-2.0
#include "fs/fuse/mount_options.h"

#include <gtest/gtest.h>
#include <sys/mount.h>

namespace sluice {
namespace {

MountSettings Parsed(const char* list) {
  MountSettings options;
  std::string why;
  EXPECT_TRUE(ParseMountOptions(list, UnknownOption::kRefuse, &options, &why)) << list << why;
  return options;
}

std::string Refusal(const char* list) {
  MountSettings options;
  std::string why;
  EXPECT_FALSE(ParseMountOptions(list, UnknownOption::kRefuse, &options, &why)) << list;
  return why;
}

TEST(MountOptions, DefaultsAreExt4s) {
  const MountSettings options = Parsed("defaults");
  EXPECT_FALSE(options.read_only);
  EXPECT_EQ(options.atime, AtimeSetting::kRelative);
  EXPECT_TRUE(options.barrier);
  EXPECT_EQ(options.commit_seconds, 5u);
  EXPECT_EQ(options.errors, ErrorPolicy::kRemountReadOnly);
  EXPECT_FALSE(options.allow_other.has_value());
}

TEST(MountOptions, LaterWordsWin) {
  EXPECT_FALSE(Parsed("ro,rw").read_only);
  EXPECT_TRUE(Parsed("rw,,ro").read_only);
  EXPECT_EQ(Parsed("noatime,strictatime").atime, AtimeSetting::kAlways);
  EXPECT_FALSE(Parsed("user,exec").noexec);
  EXPECT_TRUE(Parsed("user,exec").nodev);
  EXPECT_FALSE(Parsed("allow_other,noallow_other").allow_other.value());
}

TEST(MountOptions, Values) {
  EXPECT_EQ(Parsed("commit=30").commit_seconds, 30u);
  EXPECT_EQ(Parsed("commit=0").commit_seconds, 5u);
  EXPECT_FALSE(Parsed("barrier=0").barrier);
  EXPECT_FALSE(Parsed("nobarrier").barrier);
  EXPECT_TRUE(Parsed("nobarrier,barrier=1").barrier);
  EXPECT_EQ(Parsed("errors=panic").errors, ErrorPolicy::kPanic);
  EXPECT_EQ(Parsed("errors=continue").errors, ErrorPolicy::kContinue);
  EXPECT_EQ(Parsed("fuseblk=off").fuseblk, FuseblkMode::kOff);
  EXPECT_EQ(Parsed("cache=64M").cache_bytes, 64u << 20);
  EXPECT_EQ(Parsed("cache=4096").cache_bytes, 4096u);
  EXPECT_EQ(Parsed("fsname=/a/b").fsname, "/a/b");
  EXPECT_FALSE(Parsed("ro,noload").recover_journal);
  EXPECT_EQ(Parsed("").data, DataSetting::kOrdered);
  EXPECT_EQ(Parsed("data=writeback").data, DataSetting::kWriteback);
  EXPECT_EQ(Parsed("data=writeback,data=ordered").data, DataSetting::kOrdered);
}

TEST(MountOptions, WhatMount8PassesIsAccepted) {
  Parsed("rw,sync,dirsync,lazytime,strictatime,nodiratime,noatime,iversion,mand,noexec,nosuid");
  Parsed("nodev,nofail,user,users,_netdev,defaults,auto,noauto,x-systemd.automount,X-mount.mkdir");
  Parsed("remount,ro,user_id=0,group_id=0,default_permissions,allow_other,blksize=4096");
  Parsed("comment=hello,loop,subtype=sluicefs,data=ordered,nodelalloc");
}

TEST(MountOptions, UnknownOptionsAreNamed) {
  EXPECT_EQ(Refusal("ro,nosuch"), "unknown option 'nosuch'");
  EXPECT_EQ(Refusal("nosuch=3"), "unknown option 'nosuch=3'");
  EXPECT_EQ(Refusal("commit"), "option 'commit' needs a value");
  EXPECT_EQ(Refusal("ro=1"), "option 'ro' takes no value");
  EXPECT_NE(Refusal("commit=abc").find("commit=SECONDS"), std::string::npos);
  EXPECT_NE(Refusal("commit=-1").find("commit=-1"), std::string::npos);
  EXPECT_NE(Refusal("errors=explode").find("remount-ro|continue|panic"), std::string::npos);
  EXPECT_NE(Refusal("data=journal").find("data=ordered|writeback"), std::string::npos);
  Refusal("barrier=2");
  Refusal("cache=99999999999999999999");
  Refusal("cache=18014398509481984K");
  Refusal("subtype=ext4");
}

TEST(MountOptions, SloppyIgnoresOnlyUnknownNames) {
  MountSettings options;
  std::string why;
  EXPECT_TRUE(ParseMountOptions("nosuch,ro", UnknownOption::kIgnore, &options, &why));
  EXPECT_TRUE(options.read_only);
  EXPECT_FALSE(ParseMountOptions("commit=x", UnknownOption::kIgnore, &options, &why));
}

TEST(MountOptions, KernelFlags) {
  EXPECT_EQ(MountFlags(Parsed("")), static_cast<unsigned long>(MS_RELATIME));
  EXPECT_EQ(MountFlags(Parsed("ro,nodev,nosuid,noexec,noatime")),
            static_cast<unsigned long>(MS_RDONLY | MS_NODEV | MS_NOSUID | MS_NOEXEC | MS_NOATIME));
  EXPECT_EQ(MountFlags(Parsed("sync,dirsync,strictatime")),
            static_cast<unsigned long>(MS_SYNCHRONOUS | MS_DIRSYNC | MS_STRICTATIME));
}

TEST(MountOptions, HelpNamesTheOptions) {
  const std::string help = MountOptionsHelp();
  for (const char* word : {"commit=SECONDS", "errors=remount-ro|continue|panic", "noatime",
                           "fuseblk=auto|on|off", "allow_other"}) {
    EXPECT_NE(help.find(word), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace sluice
