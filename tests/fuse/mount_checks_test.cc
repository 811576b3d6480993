// SPDX-License-Identifier: Apache-2.0
#include "fs/fuse/mount_checks.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace sluice {
namespace {

class MountChecksTest : public testing::Test {
 protected:
  MountChecksTest() {
    std::string name = testing::TempDir() + "mount_checks.XXXXXX";
    directory_ = mkdtemp(name.data());
    image_ = directory_ + "/image";
    std::ofstream(image_) << "x";
  }
  ~MountChecksTest() override {
    unlink(image_.c_str());
    rmdir(directory_.c_str());
  }

  std::string directory_;
  std::string image_;
  std::string resolved_;
  std::string why_;
};

TEST_F(MountChecksTest, GoodMountpointIsResolved) {
  EXPECT_TRUE(ResolveMountpoint(directory_ + "/./", &resolved_, &why_)) << why_;
  EXPECT_EQ(resolved_, directory_);
}

TEST_F(MountChecksTest, BadMountpointsAreNamed) {
  EXPECT_FALSE(ResolveMountpoint(directory_ + "/no", &resolved_, &why_));
  EXPECT_NE(why_.find("/no does not exist"), std::string::npos) << why_;
  EXPECT_FALSE(ResolveMountpoint(image_, &resolved_, &why_));
  EXPECT_NE(why_.find("is not a directory"), std::string::npos) << why_;
}

TEST_F(MountChecksTest, ImageChecks) {
  EXPECT_TRUE(CheckImageFile(image_, ImageUse::kReadWrite, &why_)) << why_;
  EXPECT_FALSE(CheckImageFile(image_ + ".no", ImageUse::kReadOnly, &why_));
  EXPECT_NE(why_.find("No such file"), std::string::npos) << why_;
  EXPECT_FALSE(CheckImageFile(directory_, ImageUse::kReadOnly, &why_));
  EXPECT_NE(why_.find("neither a file nor a block device"), std::string::npos) << why_;
}

// Also for root, whom the mode would not stop.
TEST_F(MountChecksTest, ReadOnlyImageNeedsRo) {
  ASSERT_EQ(chmod(image_.c_str(), 0444), 0);
  EXPECT_FALSE(CheckImageFile(image_, ImageUse::kReadWrite, &why_));
  EXPECT_NE(why_.find("-o ro"), std::string::npos) << why_;
  EXPECT_TRUE(CheckImageFile(image_, ImageUse::kReadOnly, &why_)) << why_;
}

TEST_F(MountChecksTest, AbsolutePathKeepsWhatIsAbsolute) {
  EXPECT_EQ(AbsolutePath("/a/../b"), "/a/../b");
  EXPECT_EQ(AbsolutePath("x").front(), '/');
}

}  // namespace
}  // namespace sluice
