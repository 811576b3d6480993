// SPDX-License-Identifier: Apache-2.0
//
// Freeze, thaw and shutdown: what an image holds meanwhile, and who waits.
#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "format/superblock.h"
#include "fsck/check.h"
#include "journal/log_area.h"
#include "tests/support/fs_fixture.h"

namespace sluice {
namespace {

using testing_support::Files;
using testing_support::FsTest;

class FreezeTest : public FsTest {
 protected:
  // The image as a copy of it made now would be.
  std::unique_ptr<MemoryDevice> Copy() { return device_->Clone(); }

  static ImageSummary Summary(Device* image) {
    ImageSummary summary;
    EXPECT_EQ(SummarizeImage(image, &summary), Error::kOk) << summary.message;
    return summary;
  }
  static void ExpectClean(Device* image) {
    const ImageSummary summary = Summary(image);
    EXPECT_TRUE(summary.log_empty);
    EXPECT_EQ(summary.reason, "");
    CheckReport report;
    EXPECT_EQ(CheckImage(image, {}, &report), Error::kOk) << report.message;
    EXPECT_TRUE(report.clean());
    EXPECT_FALSE(report.replay.needed);
  }
  static std::unique_ptr<Filesystem> MountCopy(Device* image) {
    std::string message;
    Result<std::unique_ptr<Filesystem>> mounted = Filesystem::Mount(image, {}, &message);
    EXPECT_TRUE(mounted.ok()) << message;
    return mounted.ok() ? std::move(mounted).value() : nullptr;
  }
  static std::string Contents(Files files, std::string_view name) {
    const Result<InodeRef> file = files.Lookup(files.Root(), name);
    if (!file.ok()) return "(none)";
    return files.Read(*file, 0, 100).value();
  }
  // Whether an operation that changes something would wait now. It changes nothing.
  bool WouldPark() {
    Attempt attempt;
    const Error error = fs_->Unlink(attempt, files().Root(), "no such name");
    const bool parks = attempt.parks();
    EXPECT_EQ(error, parks ? Error::kWouldBlock : Error::kNotFound);
    return parks;
  }
};

TEST_F(FreezeTest, ACopyOfAFrozenImageIsClean) {
  const InodeRef file = files().Create(files().Root(), "f").value();
  ASSERT_EQ(files().Write(file, 0, "first"), Error::kOk);
  ASSERT_EQ(fs_->Sync(), Error::kOk);
  ASSERT_EQ(files().Write(file, 0, "FIRST"), Error::kOk);  // an overwrite: no handle
  ASSERT_TRUE(files().Mkdir(files().Root(), "d").ok());
  ASSERT_EQ(fs_->Freeze(), Error::kOk);
  const std::unique_ptr<MemoryDevice> copy = Copy();
  ExpectClean(copy.get());
  const std::unique_ptr<Filesystem> mounted = MountCopy(copy.get());
  ASSERT_NE(mounted, nullptr);
  EXPECT_EQ(Contents(Files(mounted.get()), "f"), "FIRST");
  EXPECT_TRUE(Files(mounted.get()).Lookup(Files(mounted.get()).Root(), "d").ok());
  EXPECT_EQ(mounted->Unmount(), Error::kOk);
  EXPECT_EQ(fs_->Thaw(), Error::kOk);
  // In use again: a copy now is not clean.
  EXPECT_NE(Summary(Copy().get()).reason, "");
}

TEST_F(FreezeTest, NothingIsWrittenWhileFrozen) {
  const InodeRef file = files().Create(files().Root(), "f").value();
  ASSERT_EQ(files().Write(file, 0, "data"), Error::kOk);
  ASSERT_EQ(fs_->Freeze(), Error::kOk);
  const uint64_t writes = device_->count(IoOp::kWrite);
  EXPECT_EQ(Contents(files(), "f"), "data");
  EXPECT_EQ(files().List(files().Root()).size(), 3u);
  EXPECT_EQ(fs_->Sync(), Error::kOk);
  const Error synced = RunBlocking([&](Attempt& attempt) {
    return fs_->Fsync(attempt, nullptr, file, false,
                      [](Error error) { EXPECT_EQ(error, Error::kOk); });
  });
  EXPECT_EQ(synced, Error::kOk);
  EXPECT_TRUE(WouldPark());
  EXPECT_EQ(device_->count(IoOp::kWrite), writes);
  EXPECT_EQ(fs_->Thaw(), Error::kOk);
  EXPECT_FALSE(WouldPark());
}

TEST_F(FreezeTest, ChangesWaitForTheThaw) {
  const InodeRef file = files().Create(files().Root(), "f").value();
  ASSERT_EQ(files().Write(file, 0, "old"), Error::kOk);
  ASSERT_EQ(fs_->Freeze(), Error::kOk);
  const Files all = files();
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  const auto change = [&](const std::function<bool()>& operation) {
    threads.emplace_back([&done, operation] {
      EXPECT_TRUE(operation());
      ++done;
    });
  };
  change([&] { return all.Write(file, 0, "new") == Error::kOk; });
  change([&] { return all.Mkdir(all.Root(), "d").ok(); });
  change([&] { return all.Symlink(all.Root(), "s", "f").ok(); });
  change([&] { return all.Link(file, all.Root(), "l") == Error::kOk; });
  change([&] { return all.Temporary(all.Root()).ok(); });
  change([&] {
    AttributeChange mode;
    mode.mode = 0600;
    return all.SetAttributes(file, mode).ok();
  });
  EXPECT_EQ(Contents(files(), "f"), "old");
  EXPECT_EQ(done.load(), 0);
  EXPECT_EQ(fs_->Thaw(), Error::kOk);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done.load(), 6);
  EXPECT_EQ(Contents(files(), "f"), "new");
}

TEST_F(FreezeTest, FreezeAndThawAnswerWhatTheyAre) {
  EXPECT_EQ(fs_->Thaw(), Error::kInvalid);
  EXPECT_EQ(fs_->Freeze(), Error::kOk);
  EXPECT_EQ(fs_->Freeze(), Error::kBusy);
  EXPECT_EQ(fs_->Thaw(), Error::kOk);
  EXPECT_EQ(fs_->Thaw(), Error::kInvalid);
  Unmount();
  options_.read_only = true;
  Mount();
  EXPECT_EQ(fs_->Freeze(), Error::kReadOnly);
}

TEST_F(FreezeTest, AnUnlinkedOpenFileIsInTheCopysOrphanList) {
  const InodeRef file = files().Create(files().Root(), "f").value();
  ASSERT_EQ(files().Write(file, 0, std::string(100000, 'x')), Error::kOk);
  std::unique_ptr<OpenFile> open = fs_->Open(file, true, false).value();
  ASSERT_EQ(files().Unlink(files().Root(), "f"), Error::kOk);
  ASSERT_EQ(fs_->Freeze(), Error::kOk);
  ExpectClean(Copy().get());
  // The last descriptor goes while frozen: the deletion waits.
  fs_->Release(std::move(open));
  ExpectClean(Copy().get());
  EXPECT_EQ(fs_->Thaw(), Error::kOk);
}

TEST_F(FreezeTest, UnmountThaws) {
  ASSERT_TRUE(files().Create(files().Root(), "f").ok());
  ASSERT_EQ(fs_->Freeze(), Error::kOk);
  Unmount();
  ExpectClean(device_.get());
}

TEST_F(FreezeTest, ManyWritersMeetManyFreezes) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&, i] {
      const InodeRef dir = files().Mkdir(files().Root(), "d" + std::to_string(i)).value();
      for (int n = 0; !stop.load(); ++n) {
        const std::string name = "f" + std::to_string(n % 10);
        const Result<InodeRef> file = files().Create(dir, name);
        if (file.ok()) {
          EXPECT_EQ(files().Write(*file, 0, std::string(5000, 'x')), Error::kOk);
        } else {
          EXPECT_EQ(files().Unlink(dir, name), Error::kOk);
        }
      }
    });
  }
  for (int round = 0; round < 20; ++round) {
    EXPECT_EQ(fs_->Freeze(), Error::kOk);
    ExpectClean(Copy().get());
    EXPECT_EQ(fs_->Thaw(), Error::kOk);
    std::this_thread::yield();
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
}

TEST_F(FreezeTest, ShutdownStopsEverything) {
  InodeRef file = files().Create(files().Root(), "f").value();
  ASSERT_EQ(files().Write(file, 0, "data"), Error::kOk);
  ASSERT_EQ(fs_->Shutdown(ShutdownMode::kNoFlush), Error::kOk);
  const uint64_t writes = device_->count(IoOp::kWrite);
  EXPECT_EQ(files().Create(files().Root(), "g").error(), Error::kShutdown);
  EXPECT_EQ(files().Write(file, 0, "more"), Error::kShutdown);
  EXPECT_EQ(files().Unlink(files().Root(), "f"), Error::kShutdown);
  EXPECT_EQ(files().Read(file, 0, 4).error(), Error::kShutdown);
  EXPECT_EQ(fs_->Open(file, false, false).error(), Error::kShutdown);
  EXPECT_EQ(fs_->Sync(), Error::kShutdown);
  EXPECT_EQ(fs_->Freeze(), Error::kShutdown);
  EXPECT_EQ(
      RunBlocking([&](Attempt& a) { return fs_->Fsync(a, nullptr, file, false, [](Error) {}); }),
      Error::kShutdown);
  EXPECT_EQ(fs_->Shutdown(ShutdownMode::kFlushAll), Error::kOk);  // has been
  file = nullptr;
  Unmount();
  EXPECT_EQ(device_->count(IoOp::kWrite), writes);
}

// After each kind of shutdown: what was synced, what was done since, what was written since.
TEST_F(FreezeTest, WhatAShutdownKeeps) {
  for (const ShutdownMode mode :
       {ShutdownMode::kNoFlush, ShutdownMode::kFlushLog, ShutdownMode::kFlushAll}) {
    const std::string suffix = std::to_string(static_cast<int>(mode));
    InodeRef over = files().Create(files().Root(), "over" + suffix).value();
    ASSERT_EQ(files().Write(over, 0, "old"), Error::kOk);
    ASSERT_EQ(fs_->Sync(), Error::kOk);
    InodeRef fresh = files().Create(files().Root(), "new" + suffix).value();
    ASSERT_EQ(files().Write(fresh, 0, "fresh"), Error::kOk);
    ASSERT_EQ(files().Write(over, 0, "NEW"), Error::kOk);
    ASSERT_EQ(fs_->Shutdown(mode), Error::kOk);
    over = fresh = nullptr;
    Unmount();
    if (mode == ShutdownMode::kFlushAll) ExpectClean(device_.get());
    Mount();
    EXPECT_EQ(Contents(files(), "new" + suffix),
              mode == ShutdownMode::kNoFlush ? "(none)" : "fresh");
    EXPECT_EQ(Contents(files(), "over" + suffix), mode == ShutdownMode::kFlushAll ? "NEW" : "old");
  }
}

TEST_F(FreezeTest, ShutdownEndsTheWaitOfParkedOperations) {
  ASSERT_EQ(fs_->Freeze(), Error::kOk);
  std::thread creator(
      [&] { EXPECT_EQ(files().Create(files().Root(), "f").error(), Error::kShutdown); });
  ASSERT_EQ(fs_->Shutdown(ShutdownMode::kFlushLog), Error::kOk);
  creator.join();
  Unmount();
  ExpectClean(device_.get());
}

}  // namespace
}  // namespace sluice
