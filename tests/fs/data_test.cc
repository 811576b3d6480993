// SPDX-License-Identifier: Apache-2.0
//
// Reading, writing and truncating regular files, against a model that is a string.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <random>
#include <string>
#include <thread>

#include "fs/filesystem_impl.h"
#include "tests/support/fs_fixture.h"

namespace sluice {
namespace {

using testing_support::FileTest;

std::string Pattern(size_t length, char first) {
  std::string data(length, '\0');
  for (size_t i = 0; i < length; ++i) data[i] = static_cast<char>(first + i % 23);
  return data;
}

class DataTest : public FileTest {
 protected:
  std::string Read(uint64_t offset, size_t length) {
    return files().Read(file_, offset, length).value();
  }
  Error Fsync(bool data_only) {
    std::promise<Error> result;
    const Error error = RunBlocking([&](Attempt& attempt) {
      return fs_->Fsync(attempt, nullptr, file_, data_only,
                        [&](Error outcome) { result.set_value(outcome); });
    });
    return error == Error::kOk ? result.get_future().get() : error;
  }
};

TEST_F(DataTest, WhatWasWrittenIsReadBeforeAndAfterARemount) {
  const std::string data = Pattern(3 * 4096 + 17, 'a');
  ASSERT_EQ(files().Write(file_, 5, data), Error::kOk);
  EXPECT_EQ(Read(5, data.size()), data);
  EXPECT_EQ(Read(0, 5), std::string(5, '\0'));
  RemountFile();
  EXPECT_EQ(Read(5, data.size() + 100), data);
  EXPECT_EQ(fs_->GetAttributes(file_).size, 5 + data.size());
  EXPECT_EQ(fs_->GetAttributes(file_).sectors, 4u * 8);
}

TEST_F(DataTest, HolesReadAsZerosAndHaveNoBlocks) {
  ASSERT_EQ(files().Write(file_, uint64_t{1} << 40, "end"), Error::kOk);
  EXPECT_EQ(fs_->GetAttributes(file_).size, (uint64_t{1} << 40) + 3);
  EXPECT_LE(fs_->GetAttributes(file_).sectors, 8u);
  EXPECT_EQ(Read(12345, 10), std::string(10, '\0'));
  const auto seek = [&](uint64_t offset, bool data) {
    return RunBlocking([&](Attempt& a) {
      return data ? fs_->SeekData(a, file_, offset) : fs_->SeekHole(a, file_, offset);
    });
  };
  EXPECT_EQ(seek(0, true).value(), uint64_t{1} << 40);
  EXPECT_EQ(seek(0, false).value(), 0u);
  EXPECT_EQ(seek(uint64_t{1} << 40, false).value(), (uint64_t{1} << 40) + 3);
  EXPECT_EQ(seek((uint64_t{1} << 40) + 3, true).error(), Error::kNoEntryAtOffset);
}

TEST_F(DataTest, ATruncatedTailComesBackAsZeros) {
  ASSERT_EQ(files().Write(file_, 0, Pattern(10000, 'a')), Error::kOk);
  ASSERT_EQ(Truncate(5000), Error::kOk);
  ASSERT_EQ(Truncate(9000), Error::kOk);
  EXPECT_EQ(Read(5000, 4000), std::string(4000, '\0'));
  RemountFile();
  EXPECT_EQ(Read(0, 5000), Pattern(10000, 'a').substr(0, 5000));
  EXPECT_EQ(Read(5000, 4000), std::string(4000, '\0'));
}

TEST_F(DataTest, TheLargestFileEndsAtSixteenTebibytes) {
  ASSERT_EQ(files().Write(file_, format::kMaxFileSize - 1, "x"), Error::kOk);
  EXPECT_EQ(files().Write(file_, format::kMaxFileSize, "x"), Error::kFileTooLarge);
  EXPECT_EQ(Truncate(format::kMaxFileSize + 1), Error::kFileTooLarge);
  EXPECT_EQ(Truncate(0), Error::kOk);
  EXPECT_EQ(fs_->GetAttributes(file_).sectors, 0u);
}

TEST_F(DataTest, AFullImageTakesWhatFitsAndGivesItBack) {
  const uint64_t before = fs_->Statfs().free_blocks;
  const std::string piece = Pattern(1 << 20, 'a');
  uint64_t offset = 0;
  Error error = Error::kOk;
  while ((error = files().Write(file_, offset, piece)) == Error::kOk) offset += piece.size();
  EXPECT_EQ(error, Error::kNoSpace);
  // Root takes the reserve too; a block may be left that the extent tree might have needed.
  EXPECT_LE(fs_->Statfs().free_blocks, 1u);
  EXPECT_EQ(Read(offset - piece.size(), piece.size()), piece);
  ASSERT_EQ(Truncate(0), Error::kOk);
  EXPECT_EQ(fs_->Statfs().free_blocks, before);
  // What was freed a moment ago can be had: the commit that makes it so is waited for.
  EXPECT_EQ(files().Write(file_, 0, piece), Error::kOk);
}

TEST_F(DataTest, RandomChangesAgreeWithTheModel) {
  std::mt19937 random(7);
  std::string model;
  const auto below = [&](size_t end) { return random() % end; };
  for (int step = 0; step < 4000; ++step) {
    const size_t offset = below(300'000);
    switch (below(16)) {
      case 0:
        ASSERT_EQ(Truncate(offset), Error::kOk);
        model.resize(offset);
        break;
      case 1:
        ASSERT_EQ(Fsync(below(2) == 0), Error::kOk);
        break;
      case 2:
        if (below(20) == 0) RemountFile();
        break;
      case 3:
      case 4:
      case 5:
      case 6: {
        const size_t length = below(20'000);
        const std::string expected = offset < model.size() ? model.substr(offset, length) : "";
        ASSERT_EQ(Read(offset, length), expected) << "step " << step;
        break;
      }
      default: {
        const std::string data =
            Pattern(1 + below(below(4) == 0 ? 70'000 : 3'000), static_cast<char>('a' + step % 100));
        ASSERT_EQ(files().Write(file_, offset, data), Error::kOk);
        if (model.size() < offset + data.size()) model.resize(offset + data.size());
        model.replace(offset, data.size(), data);
      }
    }
    ASSERT_EQ(fs_->GetAttributes(file_).size, model.size());
  }
  RemountFile();
  EXPECT_EQ(Read(0, model.size() + 1), model);
}

// The flusher may have written the pages long before; they are durable only after a flush.
TEST_F(DataTest, FdatasyncFlushesWhatTheFlusherWrote) {
  ASSERT_EQ(files().Write(file_, 0, Pattern(4096, 'a')), Error::kOk);
  ASSERT_EQ(fs_->Sync(), Error::kOk);
  ASSERT_EQ(files().Write(file_, 0, Pattern(4096, 'b')), Error::kOk);
  while (file_->StartWriteback(100, IoKind::kBackgroundWrite) > 0)
    file_->WaitWriteback(IoKind::kBackgroundWrite);
  ASSERT_TRUE(file_->pages.idle());
  const uint64_t flushes = device_->count(IoOp::kFlush);
  const uint64_t commits = fs_->journal()->stats().commits;
  ASSERT_EQ(Fsync(/*data_only=*/true), Error::kOk);
  EXPECT_EQ(device_->count(IoOp::kFlush), flushes + 1);
  EXPECT_EQ(fs_->journal()->stats().commits, commits);  // an overwrite needs no commit
}

// Writeout takes no lock that truncate holds: it may start between truncate's look and its drop.
TEST_F(DataTest, TruncateBesideWriteout) {
  std::atomic<bool> stop{false};
  std::thread writeout([&] {
    while (!stop) {
      file_->StartWriteback(SIZE_MAX, IoKind::kBackgroundWrite);
      file_->WaitWriteback(IoKind::kBackgroundWrite);
    }
  });
  AttributeChange empty;
  empty.size = 0;
  const std::string data = Pattern(64 * kBlockSize, 'a');
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(files().Write(file_, 0, data), Error::kOk);
    ASSERT_TRUE(files().SetAttributes(file_, empty).ok());
  }
  stop = true;
  writeout.join();
}

// The object that knew the inode's last transaction may be gone from memory.
TEST_F(DataTest, FsyncOfAnInodeThatWasEvictedCommitsItsChanges) {
  ASSERT_EQ(files().Write(file_, 0, "old"), Error::kOk);
  const InodeNumber ino = file_->ino;
  const Tid tid = file_->sync_tid.load();
  ASSERT_FALSE(fs_->journal()->IsCommitted(tid));
  file_->fs()->impl()->flusher->FlushAll();
  file_.reset();
  fs_->impl()->inodes.reset();
  fs_->impl()->inodes = std::make_unique<InodeCache>(fs_.get(), 100);
  file_ = RunBlocking([&](Attempt& a) { return fs_->GetInode(a, ino); }).value();
  ASSERT_EQ(Fsync(/*data_only=*/false), Error::kOk);
  EXPECT_TRUE(fs_->journal()->IsCommitted(tid));
}

}  // namespace
}  // namespace sluice
