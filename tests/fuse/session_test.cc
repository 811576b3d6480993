// SPDX-License-Identifier: Apache-2.0
//
// The session on a real mount, with a filesystem of one directory and one file that lives here.
// Needs root and /dev/fuse; says so and skips otherwise.
#include "fs/fuse/session.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <latch>
#include <optional>

#include "fs/fuse/kernel_mount.h"
#include "fs/fuse/loop_device.h"
#include "fs/fuse/mount_table.h"
#include "fs/fuse/worker_pool.h"

namespace sluice {
namespace {

constexpr fuse_ino_t kFile = 2;
constexpr char kContents[] = "hello, kernel\n";

// Answers a read when told to: a request in flight.
class SlowReads {
 public:
  void Wait() {
    asked_.count_down();
    go_.wait();
  }
  void AwaitAsked() { asked_.wait(); }
  void Go() { go_.count_down(); }

 private:
  std::latch asked_{1};
  std::latch go_{1};
};

class TinyHandler : public Session::Handler {
 public:
  bool HandleRaw(const fuse_in_header& header, std::span<const std::byte>) override {
    if (header.opcode == kOpcodeSyncfs) {
      ++syncs;
      session->ReplyRaw(header.unique, 0, {});
      return true;
    }
    if (header.opcode != kOpcodeStatx) return false;
    StatxOut out{};
    out.stat.mask = 0x0fff;
    out.stat.mode = S_IFREG | 0644;
    out.stat.links = 1;
    out.stat.inode = header.nodeid;
    out.stat.size = sizeof(kContents) - 1;
    out.stat.birth.seconds = 1234567890;
    session->ReplyRaw(header.unique, 0, std::as_bytes(std::span(&out, 1)));
    return true;
  }
  void HandleDestroy() override { ++destroys; }

  Session* session = nullptr;
  SlowReads* slow = nullptr;
  std::atomic<int> syncs{0};
  std::atomic<int> destroys{0};
  std::atomic<int> opens{0};
};

TinyHandler* Of(fuse_req_t req) {
  return static_cast<TinyHandler*>(static_cast<Session*>(fuse_req_userdata(req))->handler());
}

struct stat StatOf(fuse_ino_t ino) {
  struct stat st {};
  st.st_ino = ino;
  st.st_mode = ino == kFile ? S_IFREG | 0644 : S_IFDIR | 0755;
  st.st_nlink = 1;
  st.st_size = ino == kFile ? sizeof(kContents) - 1 : 0;
  return st;
}

void TinyLookup(fuse_req_t req, fuse_ino_t, const char* name) {
  if (std::strcmp(name, "file") != 0) {
    fuse_reply_err(req, ENOENT);
    return;
  }
  fuse_entry_param entry{};
  entry.ino = kFile;
  entry.attr = StatOf(kFile);
  entry.attr_timeout = entry.entry_timeout = 100;
  fuse_reply_entry(req, &entry);
}

void TinyGetattr(fuse_req_t req, fuse_ino_t ino, fuse_file_info*) {
  const struct stat st = StatOf(ino);
  fuse_reply_attr(req, &st, 100);
}

void TinyOpen(fuse_req_t req, fuse_ino_t, fuse_file_info* info) {
  ++Of(req)->opens;
  if ((info->flags & O_DIRECT) != 0) {
    info->direct_io = 1;
    Session::AddToNextOpenReply(kOpenParallelDirectWrites);
  }
  fuse_reply_open(req, info);
}

class SlowReadJob : public WorkerPool::Job {
 public:
  SlowReadJob(fuse_req_t req, SlowReads* slow) : req_(req), slow_(slow) {}
  void Run() override {
    slow_->Wait();
    fuse_reply_buf(req_, kContents, sizeof(kContents) - 1);
  }

 private:
  fuse_req_t req_;
  SlowReads* slow_;
};

WorkerPool& Workers() {
  static auto* pool = new WorkerPool(2);
  return *pool;
}

void TinyRead(fuse_req_t req, fuse_ino_t, size_t size, off_t offset, fuse_file_info*) {
  if (SlowReads* slow = Of(req)->slow) {
    Workers().Submit(std::make_unique<SlowReadJob>(req, slow));
    return;
  }
  const size_t length = sizeof(kContents) - 1;
  const size_t from = std::min(static_cast<size_t>(offset), length);
  fuse_reply_buf(req, kContents + from, std::min(size, length - from));
}

fuse_lowlevel_ops TinyOperations() {
  fuse_lowlevel_ops operations{};
  operations.lookup = TinyLookup;
  operations.getattr = TinyGetattr;
  operations.open = TinyOpen;
  operations.read = TinyRead;
  return operations;
}

class SessionTest : public testing::Test {
 protected:
  SessionTest() {
    std::string name = testing::TempDir() + "session.XXXXXX";
    directory_ = mkdtemp(name.data());
  }
  ~SessionTest() override {
    if (mounted_) {
      EXPECT_EQ(UnmountAtKernel(directory_), 0);
      End();
    }
    rmdir(directory_.c_str());
  }

  void Mount(MountType type, const std::string& source) {
    if (geteuid() != 0 || access("/dev/fuse", R_OK | W_OK) != 0) GTEST_SKIP() << "needs /dev/fuse";
    MountPlan plan;
    plan.type = type;
    plan.source = source;
    plan.mountpoint = directory_;
    const MountAttempt attempt = MountAtKernel(plan);
    ASSERT_GE(attempt.fd, 0) << attempt.why;
    session_ = std::make_unique<Session>(attempt.fd, TinyOperations(), &handler_, false);
    ASSERT_TRUE(session_->valid());
    handler_.session = session_.get();
    session_->Start(2, [this] { ended_.count_down(); });
    mounted_ = true;
    ASSERT_TRUE(session_->WaitReady());
  }
  void End() {
    ended_.wait();
    session_->Join();
    session_->Drain();
    mounted_ = false;
  }
  std::string File() const { return directory_ + "/file"; }
  std::string ReadFile() {
    std::ifstream file(File());
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string directory_;
  TinyHandler handler_;
  std::unique_ptr<Session> session_;
  std::latch ended_{1};
  bool mounted_ = false;
};

TEST_F(SessionTest, ServesAndEndsWithTheMount) {
  Mount(MountType::kFuse, "/some/odd name,with\\signs");
  if (IsSkipped()) return;
  EXPECT_EQ(ReadFile(), kContents);
  const std::optional<MountEntry> entry = FindMountAt(directory_);
  ASSERT_TRUE(entry.has_value());
  EXPECT_EQ(entry->source, "/some/odd name,with\\signs");
  EXPECT_EQ(entry->type, "fuse.sluicefs");
  EXPECT_TRUE(IsSluicefs(*entry));
  EXPECT_TRUE(IsMountedAnywhere(entry->device));
  EXPECT_EQ(UnmountAtKernel(directory_), 0);
  End();
  EXPECT_FALSE(IsMountedAnywhere(entry->device));
}

TEST_F(SessionTest, StatxShowsTheBirthTime) {
  Mount(MountType::kFuse, "test");
  if (IsSkipped()) return;
  struct statx statx_buffer;
  ASSERT_EQ(statx(AT_FDCWD, File().c_str(), 0, STATX_BTIME, &statx_buffer), 0);
  if ((statx_buffer.stx_mask & STATX_BTIME) == 0) GTEST_SKIP() << "kernel without FUSE_STATX";
  EXPECT_EQ(statx_buffer.stx_btime.tv_sec, 1234567890);
}

TEST_F(SessionTest, UnhandledRawOpcodeIsRefusedNotLost) {
  Mount(MountType::kFuse, "test");
  if (IsSkipped()) return;
  EXPECT_LT(open(directory_.c_str(), O_TMPFILE | O_RDWR, 0600), 0);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(SessionTest, DirectOpenGetsTheParallelFlagAndStillReads) {
  Mount(MountType::kFuse, "test");
  if (IsSkipped()) return;
  const int fd = open(File().c_str(), O_RDONLY | O_DIRECT);
  ASSERT_GE(fd, 0);
  alignas(4096) char data[4096];
  EXPECT_EQ(read(fd, data, sizeof(data)), static_cast<ssize_t>(sizeof(kContents) - 1));
  close(fd);
}

TEST_F(SessionTest, BusyMountIsNotUnmounted) {
  Mount(MountType::kFuse, "test");
  if (IsSkipped()) return;
  const int fd = open(File().c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(UnmountAtKernel(directory_), EBUSY);
  close(fd);
}

// On fuseblk the kernel sends DESTROY and umount waits for the answer.
TEST_F(SessionTest, FuseblkUmountWaitsForDestroyAndSyncArrives) {
  const std::string image = testing::TempDir() + "session_image." + std::to_string(getpid());
  std::ofstream(image) << std::string(1 << 20, '\0');
  {
    std::string why;
    const std::optional<LoopDevice> loop = LoopDevice::Attach(image, LoopAccess::kReadWrite, &why);
    unlink(image.c_str());
    if (!loop) GTEST_SKIP() << why;
    Mount(MountType::kFuseblk, loop->path());
  }
  if (IsSkipped()) return;
  const int fd = open(directory_.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(syncfs(fd), 0);
  close(fd);
  RecordProperty("syncfs_requests", handler_.syncs);  // 0 before Linux 6.18
  EXPECT_EQ(handler_.destroys, 0);
  EXPECT_EQ(UnmountAtKernel(directory_), 0);
  EXPECT_EQ(handler_.destroys, 1);
  End();
}

// A request that another thread answers later does not hold up the receive threads.
TEST_F(SessionTest, PuntedRequestsAreDrained) {
  SlowReads slow;
  handler_.slow = &slow;
  Mount(MountType::kFuse, "test");
  if (IsSkipped()) return;
  std::thread reader([this] { EXPECT_EQ(ReadFile(), kContents); });
  slow.AwaitAsked();
  struct stat st;
  EXPECT_EQ(stat((directory_ + "/missing").c_str(), &st), -1);
  slow.Go();
  reader.join();
}

}  // namespace
}  // namespace sluice
