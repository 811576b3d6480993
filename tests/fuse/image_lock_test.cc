// SPDX-License-Identifier: Apache-2.0
#include "block/image_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "fs/fuse/loop_device.h"

namespace sluice {
namespace {

class ImageLockTest : public testing::Test {
 protected:
  ImageLockTest() : path_(testing::TempDir() + "image_lock." + std::to_string(getpid())) {
    std::ofstream(path_) << std::string(1 << 20, 'x');
  }
  ~ImageLockTest() override { std::remove(path_.c_str()); }

  std::optional<ImageLock> Try(ImageLockMode mode = ImageLockMode::kExclusive) {
    return ImageLock::Acquire(path_, mode, &why_, ImageLockWait::kNoWaiting);
  }

  const std::string path_;
  std::string why_;
};

// Another process that holds the lock and obeys single-letter orders: 'm' marks that it is
// unmounting, anything else (or the end of the pipe) ends it.
class Holder {
 public:
  explicit Holder(const std::string& path) {
    int orders[2];
    int answers[2];
    if (pipe(orders) != 0 || pipe(answers) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      close(orders[1]);
      Obey(path, orders[0], answers[1]);
    }
    close(orders[0]);
    close(answers[1]);
    order_fd_ = orders[1];
    answer_fd_ = answers[0];
    Await();
  }
  ~Holder() {
    close(order_fd_);
    close(answer_fd_);
    waitpid(pid_, nullptr, 0);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  void MarkUnmounting() {
    ASSERT_EQ(write(order_fd_, "m", 1), 1);
    Await();
  }
  void End() { ASSERT_EQ(write(order_fd_, "e", 1), 1); }
  pid_t pid() const { return pid_; }

 private:
  [[noreturn]] static void Obey(const std::string& path, int orders, int answers) {
    std::string why;
    std::optional<ImageLock> lock = ImageLock::Acquire(path, ImageLockMode::kExclusive, &why);
    if (!lock) _exit(1);
    char order = 'm';
    do {
      if (write(answers, "k", 1) != 1) _exit(1);
      if (read(orders, &order, 1) != 1) _exit(0);
      if (order == 'm') lock->MarkUnmounting();
    } while (order == 'm');
    _exit(0);
  }
  void Await() {
    char answer = 0;
    ASSERT_EQ(read(answer_fd_, &answer, 1), 1);
  }

  pid_t pid_;
  int order_fd_;
  int answer_fd_;
};

TEST_F(ImageLockTest, SecondWriterIsRefusedWithTheHoldersPid) {
  const Holder holder(path_);
  EXPECT_FALSE(Try().has_value());
  EXPECT_NE(why_.find("in use by process " + std::to_string(holder.pid())), std::string::npos)
      << why_;
  EXPECT_EQ(ImageLockHolder(path_), holder.pid());
  EXPECT_FALSE(ImageHolderIsUnmounting(path_));
}

TEST_F(ImageLockTest, GraceEndsInARefusalToo) {
  const Holder holder(path_);
  EXPECT_FALSE(ImageLock::Acquire(path_, ImageLockMode::kExclusive, &why_).has_value());
}

TEST_F(ImageLockTest, AnUnmountingHolderIsWaitedFor) {
  Holder holder(path_);
  holder.MarkUnmounting();
  EXPECT_TRUE(ImageHolderIsUnmounting(path_));
  EXPECT_FALSE(Try().has_value());  // still held
  holder.End();
  EXPECT_TRUE(ImageLock::Acquire(path_, ImageLockMode::kExclusive, &why_).has_value()) << why_;
}

TEST_F(ImageLockTest, ReleasedByTheProcessEnd) {
  {
    const Holder holder(path_);
    EXPECT_FALSE(Try().has_value());
  }
  EXPECT_TRUE(Try().has_value()) << why_;
  EXPECT_EQ(ImageLockHolder(path_), std::nullopt);
}

TEST_F(ImageLockTest, ReadersShareAndExcludeWriters) {
  const std::optional<ImageLock> first = Try(ImageLockMode::kShared);
  const std::optional<ImageLock> second = Try(ImageLockMode::kShared);
  EXPECT_TRUE(first.has_value());
  EXPECT_TRUE(second.has_value());
  EXPECT_FALSE(Try().has_value());
}

TEST_F(ImageLockTest, MoveKeepsAndReleaseFrees) {
  std::optional<ImageLock> first = Try();
  ASSERT_TRUE(first.has_value());
  ImageLock moved = std::move(*first);
  first.reset();
  EXPECT_FALSE(Try().has_value());
  moved.Release();
  EXPECT_TRUE(Try().has_value());
}

TEST_F(ImageLockTest, MissingImageSaysSo) {
  EXPECT_FALSE(ImageLock::Acquire(path_ + ".no", ImageLockMode::kExclusive, &why_).has_value());
  EXPECT_NE(why_.find("No such file"), std::string::npos) << why_;
}

TEST_F(ImageLockTest, LoopDeviceAndItsFileAreOneLock) {
  const std::optional<LoopDevice> loop = LoopDevice::Attach(path_, LoopAccess::kReadWrite, &why_);
  if (!loop) GTEST_SKIP() << why_;
  EXPECT_EQ(ResolveBackingFile(loop->path()), path_);
  const Holder holder(loop->path());
  EXPECT_FALSE(Try().has_value());
  EXPECT_EQ(ImageLockHolder(loop->path()), holder.pid());
}

}  // namespace
}  // namespace sluice
