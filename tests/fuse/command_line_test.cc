// SPDX-License-Identifier: Apache-2.0
#include "fs/fuse/command_line.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice {
namespace {

class Arguments {
 public:
  Arguments(std::initializer_list<const char*> words) : words_(words.begin(), words.end()) {
    for (std::string& word : words_) argv_.push_back(word.data());
    argv_.push_back(nullptr);
  }
  int argc() const { return static_cast<int>(words_.size()); }
  char** argv() { return argv_.data(); }

 private:
  std::vector<std::string> words_;
  std::vector<char*> argv_;
};

MountCommand Mount(Arguments arguments) {
  MountCommand command;
  std::string why;
  EXPECT_TRUE(ParseMountCommand(arguments.argc(), arguments.argv(), &command, &why)) << why;
  return command;
}

std::string MountRefusal(Arguments arguments) {
  MountCommand command;
  std::string why;
  EXPECT_FALSE(ParseMountCommand(arguments.argc(), arguments.argv(), &command, &why));
  return why;
}

TEST(CommandLine, RoleComesFromTheName) {
  EXPECT_EQ(RoleOf("sluicefs"), Role::kProgram);
  EXPECT_EQ(RoleOf("/usr/bin/sluicefs"), Role::kProgram);
  EXPECT_EQ(RoleOf("/odd/mount.d/sluicefs"), Role::kProgram);
  EXPECT_EQ(RoleOf("/sbin/mount.sluicefs"), Role::kMountHelper);
  EXPECT_EQ(RoleOf("/sbin/mount.fuse.sluicefs"), Role::kMountHelper);
  EXPECT_EQ(RoleOf("mount.fuseblk.sluicefs"), Role::kMountHelper);
  EXPECT_EQ(RoleOf("/sbin/umount.sluicefs"), Role::kUmountHelper);
  EXPECT_EQ(RoleOf("umount.fuse.sluicefs"), Role::kUmountHelper);
}

TEST(CommandLine, DashFMeansForegroundForPeopleAndFakeForMount8) {
  const MountCommand program = Mount({"sluicefs", "-f", "img", "dir"});
  EXPECT_TRUE(program.foreground);
  EXPECT_FALSE(program.fake);
  const MountCommand helper = Mount({"/sbin/mount.sluicefs", "img", "dir", "-f"});
  EXPECT_FALSE(helper.foreground);
  EXPECT_TRUE(helper.fake);
}

TEST(CommandLine, OptionsMayComeAfterTheOperands) {
  const MountCommand command =
      Mount({"mount.sluicefs", "/a.img", "/m", "-sv", "-n", "-o", "rw,nosuch", "-o", "noatime"});
  EXPECT_EQ(command.image, "/a.img");
  EXPECT_EQ(command.mountpoint, "/m");
  EXPECT_TRUE(command.verbose);
  EXPECT_EQ(command.options.atime, AtimeSetting::kNever);
}

TEST(CommandLine, WrongCallsAreRefused) {
  EXPECT_EQ(MountRefusal({"sluicefs", "img"}), "needs an image and a mountpoint");
  EXPECT_EQ(MountRefusal({"sluicefs", "a", "b", "c"}), "too many operands: 'c'");
  EXPECT_EQ(MountRefusal({"sluicefs", "a", "b", "-x"}), "unknown option -x");
  EXPECT_EQ(MountRefusal({"sluicefs", "a", "b", "-o"}), "option -o needs a value");
  EXPECT_EQ(MountRefusal({"sluicefs", "a", "b", "--frob"}), "unknown option --frob");
  EXPECT_EQ(MountRefusal({"sluicefs", "a", "b", "-o", "zz"}), "unknown option 'zz'");
  EXPECT_NE(MountRefusal({"sluicefs", "a", "b", "-o", "noload"}).find("needs ro"),
            std::string::npos);
}

TEST(CommandLine, HelpAndVersionNeedNoOperands) {
  EXPECT_TRUE(Mount({"sluicefs", "-h"}).show_help);
  EXPECT_TRUE(Mount({"sluicefs", "--version"}).show_version);
}

TEST(CommandLine, DebugStaysInTheForeground) {
  const MountCommand command = Mount({"sluicefs", "-d", "a", "b"});
  EXPECT_TRUE(command.debug);
  EXPECT_TRUE(command.foreground);
}

TEST(CommandLine, UmountHelper) {
  Arguments arguments({"umount.sluicefs", "/m", "-l", "-v", "-t", "fuse.sluicefs"});
  UmountCommand command;
  std::string why;
  ASSERT_TRUE(ParseUmountCommand(arguments.argc(), arguments.argv(), &command, &why)) << why;
  EXPECT_EQ(command.target, "/m");
  EXPECT_TRUE(command.lazy);
  EXPECT_FALSE(command.force);
  Arguments none({"umount.sluicefs"});
  EXPECT_FALSE(ParseUmountCommand(none.argc(), none.argv(), &command, &why));
}

}  // namespace
}  // namespace sluice
