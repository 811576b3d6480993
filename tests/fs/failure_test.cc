// SPDX-License-Identifier: Apache-2.0
//
// When the disk fails, or the user gives up a promise: who is told, how often, and what the image
// says afterwards.
#include <future>
#include <mutex>
#include <string>

#include "base/log.h"
#include "format/superblock.h"
#include "fs/filesystem_impl.h"
#include "journal/log_area.h"
#include "tests/support/fs_fixture.h"

namespace sluice {
namespace {

using testing_support::FsTest;

// Everything logged while it lives.
class LogCapture {
 public:
  LogCapture() {
    SetLogSink([this](LogLevel, std::string_view line) {
      const std::lock_guard<std::mutex> lock(mutex_);
      text_ += std::string(line) + "\n";
    });
  }
  ~LogCapture() { SetLogSink(nullptr); }
  bool Has(std::string_view words) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return text_.find(words) != std::string::npos;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

class FailureTest : public FsTest {
 protected:
  Error Fsync(OpenFile* file) {
    std::promise<Error> result;
    const Error error = RunBlocking([&](Attempt& attempt) {
      return fs_->Fsync(attempt, file, file->inode, false,
                        [&](Error outcome) { result.set_value(outcome); });
    });
    return error == Error::kOk ? result.get_future().get() : error;
  }
  std::unique_ptr<OpenFile> Open(const InodeRef& inode) {
    return fs_->Open(inode, true, false).value();
  }
  format::SuperSector1 State() { return testing_support::SuperblockOn(device_.get()).state; }
  // Everything in the log's ring fails to be written.
  void FailLogWrites() {
    const LogArea log(fs_->impl()->super);
    uint64_t contiguous = 0;
    const uint64_t start = log.DeviceOffset(format::kLogFirst, &contiguous);
    device_->FailRange(IoOp::kWrite, start, contiguous * kBlockSize);
  }
};

TEST_F(FailureTest, EachDescriptorLearnsOfAnErrorOnce) {
  const InodeRef inode = files().Create(files().Root(), "f").value();
  ASSERT_EQ(files().Write(inode, 0, std::string(4096, 'a')), Error::kOk);
  ASSERT_EQ(fs_->Sync(), Error::kOk);
  std::unique_ptr<OpenFile> first = Open(inode), second = Open(inode);
  ASSERT_EQ(files().Write(inode, 0, std::string(4096, 'b')), Error::kOk);  // in place: no log
  device_->FailNth(IoOp::kWrite, 1);
  EXPECT_EQ(Fsync(first.get()), Error::kIo);
  std::unique_ptr<OpenFile> late = Open(inode);
  EXPECT_EQ(fs_->TakeError(late.get()), Error::kOk);
  EXPECT_EQ(Fsync(first.get()), Error::kOk);  // written now, and told before
  EXPECT_EQ(Fsync(second.get()), Error::kIo);
  EXPECT_EQ(Fsync(second.get()), Error::kOk);
  EXPECT_EQ(Fsync(late.get()), Error::kOk);
  EXPECT_FALSE(fs_->read_only());
  for (auto* file : {&first, &second, &late}) fs_->Release(std::move(*file));
}

TEST_F(FailureTest, AFailedLogWriteStopsEverythingAndSaysWhy) {
  InodeRef inode = files().Create(files().Root(), "kept").value();
  ASSERT_EQ(fs_->Sync(), Error::kOk);
  inode = files().Create(files().Root(), "lost").value();
  std::unique_ptr<OpenFile> file = Open(inode);
  {
    LogCapture log;
    FailLogWrites();
    EXPECT_EQ(Fsync(file.get()), Error::kIo);
    EXPECT_TRUE(log.Has("a log write or flush failed"));
  }
  device_->ClearFaults();
  EXPECT_TRUE(fs_->read_only());
  EXPECT_EQ(files().Create(files().Root(), "x").error(), Error::kReadOnly);
  EXPECT_EQ(files().Write(inode, 0, "x"), Error::kReadOnly);
  EXPECT_NE(Fsync(file.get()), Error::kOk);
  fs_->impl()->inodes->DrainReaper();
  const format::SuperSector1 state = State();
  EXPECT_NE(state.state & format::kStateError, 0u);
  EXPECT_EQ(state.error_count, 1u);
  EXPECT_NE(std::string(state.last_error_text).find("log write or flush failed"),
            std::string::npos);
  fs_->Release(std::move(file));
  inode = nullptr;
  EXPECT_NE(fs_->Unmount(), Error::kOk);
  fs_.reset();
  // The next mount replays what is good, and says what was noted.
  Mount();
  EXPECT_TRUE(files().Lookup(files().Root(), "kept").ok());
  EXPECT_FALSE(files().Lookup(files().Root(), "lost").ok());
  EXPECT_NE(State().state & format::kStateError, 0u);
  Unmount();
  device_ = testing_support::NewImage(uint64_t{64} << 20);  // an error noted is not clean
}

TEST_F(FailureTest, AFailedFlushDoesToo) {
  InodeRef inode = files().Create(files().Root(), "f").value();
  std::unique_ptr<OpenFile> file = Open(inode);
  device_->FailNth(IoOp::kFlush, 1);
  EXPECT_EQ(Fsync(file.get()), Error::kIo);
  EXPECT_EQ(files().Create(files().Root(), "x").error(), Error::kReadOnly);
  fs_->Release(std::move(file));
  inode = nullptr;
  Crash();
  Mount();
  Unmount();
  device_ = testing_support::NewImage(uint64_t{64} << 20);
}

class ErrorsTest : public FailureTest {
 protected:
  void SetUp() override {}
  void MountWith(OnError policy) {
    options_.on_error = policy;
    Mount();
    fs_->ReportCorruption(1, 2, "damage planted by a test");
    fs_->impl()->inodes->DrainReaper();
  }
  void EndWithErrorNoted() {
    EXPECT_NE(State().state & format::kStateError, 0u);
    EXPECT_STREQ(State().last_error_text, "damage planted by a test");
    device_ = testing_support::NewImage(uint64_t{64} << 20);
  }
};

TEST_F(ErrorsTest, RemountReadOnly) {
  MountWith(OnError::kRemountReadOnly);
  EXPECT_EQ(files().Create(files().Root(), "x").error(), Error::kReadOnly);
  Unmount();
  EndWithErrorNoted();
}

TEST_F(ErrorsTest, Continue) {
  MountWith(OnError::kContinue);
  EXPECT_TRUE(files().Create(files().Root(), "x").ok());
  Unmount();
  EndWithErrorNoted();
}

TEST_F(ErrorsTest, Panic) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(MountWith(OnError::kPanic), "stopping, as errors=panic asks");
}

class ModesTest : public FailureTest {
 protected:
  void SetUp() override { options_.manual = true; }
};

TEST_F(ModesTest, WaiversAreSaidAtMount) {
  {
    LogCapture log;
    Mount();
    EXPECT_FALSE(log.Has("barriers are off"));
    EXPECT_FALSE(log.Has("data=writeback"));
    Unmount();
  }
  options_.barrier = false;
  options_.data = DataMode::kWriteback;
  LogCapture log;
  Mount();
  EXPECT_TRUE(log.Has("barriers are off"));
  EXPECT_TRUE(log.Has("data=writeback"));
  Unmount();
}

// What a commit takes along, and what not.
TEST_F(ModesTest, OnlyOrderedDataIsWrittenByTheCommit) {
  for (const DataMode mode : {DataMode::kOrdered, DataMode::kWriteback}) {
    options_.data = mode;
    Mount();
    InodeRef inode = files().Create(files().Root(), "f").value();
    ASSERT_EQ(files().Write(inode, 0, std::string(8192, 'd')), Error::kOk);
    ASSERT_EQ(fs_->journal()->CommitAll(CommitReason::kInterval), Error::kOk);
    EXPECT_EQ(inode->pages.dirty_pages(), mode == DataMode::kOrdered ? 0u : 2u);
    std::unique_ptr<OpenFile> file = Open(inode);
    EXPECT_EQ(Fsync(file.get()), Error::kOk);
    fs_->Release(std::move(file));
    inode = nullptr;
    Crash();
    Mount();
    EXPECT_EQ(files().Read(files().Lookup(files().Root(), "f").value(), 4000, 200).value(),
              std::string(200, 'd'));
    ASSERT_EQ(files().Unlink(files().Root(), "f"), Error::kOk);
    Unmount();
  }
}

TEST_F(ModesTest, NorecoveryLeavesLogAndImageAlone) {
  Mount();
  ASSERT_TRUE(files().Create(files().Root(), "in the log only").ok());
  ASSERT_EQ(fs_->journal()->CommitAll(CommitReason::kSync), Error::kOk);
  Crash();
  options_.norecovery = true;
  std::string message;
  EXPECT_EQ(Filesystem::Mount(device_.get(), options_, &message).error(), Error::kInvalid);
  EXPECT_NE(message.find("-o ro,norecovery"), std::string::npos) << message;
  options_.read_only = true;
  Mount();
  EXPECT_FALSE(files().Lookup(files().Root(), "in the log only").ok());
  EXPECT_EQ(files().Create(files().Root(), "x").error(), Error::kReadOnly);
  Unmount();
  // With replay in memory it is seen; the image is still the same.
  options_.norecovery = false;
  Mount();
  EXPECT_TRUE(files().Lookup(files().Root(), "in the log only").ok());
  Unmount();
  EXPECT_EQ(device_->count(IoOp::kWrite), 0u);
  EXPECT_EQ(device_->count(IoOp::kFlush), 0u);
  options_.read_only = false;
  Mount();
  EXPECT_TRUE(files().Lookup(files().Root(), "in the log only").ok());
  Unmount();
}

}  // namespace
}  // namespace sluice
