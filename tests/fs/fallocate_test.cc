// SPDX-License-Identifier: Apache-2.0
//
// fallocate and unwritten blocks: against a model that is a string, across crashes, and beside I/O
// that is still on its way.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "fs/filesystem_impl.h"
#include "tests/support/fs_fixture.h"
#include "tests/support/held_device.h"

namespace sluice {
namespace {

using testing_support::FileTest;
using testing_support::kRoot;
using testing_support::kUser;

constexpr uint32_t kKeep = kFallocateKeepSize;
constexpr uint32_t kPunch = kFallocatePunchHole | kFallocateKeepSize;
constexpr uint32_t kZero = kFallocateZeroRange;
constexpr uint64_t kBlock = kBlockSize;

class FallocateTest : public FileTest {
 protected:
  void CrashAndMount() {
    file_.reset();
    Crash();
    Mount();
    FindFile();
  }
  Error Fallocate(uint32_t mode, uint64_t offset, uint64_t length) {
    return files().Fallocate(file_, mode, offset, length);
  }
  std::string Read(uint64_t offset, size_t length) {
    return files().Read(file_, offset, length).value();
  }
  Error Fsync() {
    std::promise<Error> result;
    const Error error = RunBlocking([&](Attempt& attempt) {
      return fs_->Fsync(attempt, nullptr, file_, false,
                        [&](Error outcome) { result.set_value(outcome); });
    });
    return error == Error::kOk ? result.get_future().get() : error;
  }
  uint64_t Size() { return fs_->GetAttributes(file_).size; }
  uint64_t Blocks() { return fs_->GetAttributes(file_).sectors / 8; }
  // Data (true) and holes as lseek tells them, by whole blocks.
  std::vector<bool> DataBlocks() {
    std::vector<bool> data;
    for (uint64_t at = 0; at < Size(); at += kBlock) {
      const Result<uint64_t> found =
          RunBlocking([&](Attempt& a) { return fs_->SeekData(a, file_, at); });
      data.push_back(found.ok() && *found == at);
    }
    return data;
  }
};

TEST_F(FallocateTest, AllocatedBlocksReadAsZerosAndAreHolesToLseek) {
  ASSERT_EQ(Fallocate(0, 100, 5 * kBlock), Error::kOk);
  EXPECT_EQ(Size(), 100 + 5 * kBlock);
  EXPECT_EQ(Blocks(), 6u);
  EXPECT_EQ(Read(0, 6 * kBlock), std::string(100 + 5 * kBlock, '\0'));
  EXPECT_EQ(DataBlocks(), std::vector<bool>(6, false));
  RemountFile();
  EXPECT_EQ(Read(0, 6 * kBlock), std::string(100 + 5 * kBlock, '\0'));
}

TEST_F(FallocateTest, AWriteIntoUnwrittenBlocksLeavesZerosAround) {
  // What the blocks held before must not show.
  ASSERT_EQ(files().Write(file_, 0, std::string(50 << 20, 'x')), Error::kOk);
  ASSERT_EQ(fs_->Sync(), Error::kOk);
  ASSERT_EQ(Truncate(0), Error::kOk);
  ASSERT_EQ(fs_->Sync(), Error::kOk);
  ASSERT_EQ(Fallocate(0, 0, 40 << 20), Error::kOk);
  ASSERT_EQ(files().Write(file_, 3 * kBlock + 17, "abc"), Error::kOk);
  std::string expected(8 * kBlock, '\0');
  expected.replace(3 * kBlock + 17, 3, "abc");
  EXPECT_EQ(Read(0, expected.size()), expected);
  std::vector<bool> data = DataBlocks();
  EXPECT_TRUE(data[3]);
  EXPECT_EQ(std::count(data.begin(), data.end(), true), 1);
  EXPECT_EQ(Blocks(), (40u << 20) / kBlock);
  RemountFile();
  EXPECT_EQ(Read(0, expected.size()), expected);
  EXPECT_EQ(Read(20 << 20, 1 << 20), std::string(1 << 20, '\0'));
}

TEST_F(FallocateTest, KeepSizeAllocatesBehindTheEndAndTruncateGivesItBack) {
  ASSERT_EQ(files().Write(file_, 0, "abc"), Error::kOk);
  ASSERT_EQ(Fallocate(kKeep, 0, 10 * kBlock), Error::kOk);
  EXPECT_EQ(Size(), 3u);
  EXPECT_EQ(Blocks(), 10u);
  RemountFile();
  EXPECT_EQ(Blocks(), 10u);
  // An append goes into the blocks that are there.
  ASSERT_EQ(files().Write(file_, 3, std::string(2 * kBlock, 'y')), Error::kOk);
  EXPECT_EQ(Blocks(), 10u);
  // Growing by truncate shows zeros.
  ASSERT_EQ(Truncate(5 * kBlock), Error::kOk);
  EXPECT_EQ(Read(3 + 2 * kBlock, 5 * kBlock), std::string(3 * kBlock - 3, '\0'));
  ASSERT_EQ(Truncate(5 * kBlock), Error::kOk);
  EXPECT_EQ(Blocks(), 5u);
}

TEST_F(FallocateTest, PunchedBlocksAreFreedAndPartsAreZeroed) {
  std::string model(10 * kBlock + 50, 'a');
  ASSERT_EQ(files().Write(file_, 0, model), Error::kOk);
  ASSERT_EQ(Fallocate(kPunch, kBlock + 10, 4 * kBlock), Error::kOk);
  std::fill_n(model.begin() + kBlock + 10, 4 * kBlock, '\0');
  EXPECT_EQ(Read(0, 11 * kBlock), model);
  EXPECT_EQ(Blocks(), 11u - 3);
  // Inside one block, and across the end of the file.
  ASSERT_EQ(Fallocate(kPunch, 8 * kBlock + 5, 7), Error::kOk);
  std::fill_n(model.begin() + 8 * kBlock + 5, 7, '\0');
  ASSERT_EQ(Fallocate(kPunch, 9 * kBlock, 100 * kBlock), Error::kOk);
  std::fill(model.begin() + 9 * kBlock, model.end(), '\0');
  EXPECT_EQ(Read(0, 11 * kBlock), model);
  EXPECT_EQ(Size(), model.size());
  EXPECT_EQ(Blocks(), 11u - 5);
  RemountFile();
  EXPECT_EQ(Read(0, 11 * kBlock), model);
}

TEST_F(FallocateTest, PunchingBehindTheEndKeepsWhatWasAllocatedThere) {
  ASSERT_EQ(Fallocate(kKeep, 0, 8 * kBlock), Error::kOk);
  ASSERT_EQ(Fallocate(kPunch, 4 * kBlock, 4 * kBlock), Error::kOk);
  EXPECT_EQ(Blocks(), 8u);
}

TEST_F(FallocateTest, ZeroRangeKeepsTheBlocks) {
  std::string model(10 * kBlock, 'a');
  ASSERT_EQ(files().Write(file_, 0, model), Error::kOk);
  ASSERT_EQ(Fallocate(kZero, 2 * kBlock + 100, 5 * kBlock), Error::kOk);
  std::fill_n(model.begin() + 2 * kBlock + 100, 5 * kBlock, '\0');
  EXPECT_EQ(Read(0, 20 * kBlock), model);
  EXPECT_EQ(Blocks(), 10u);
  ASSERT_EQ(Fallocate(kZero | kKeep, 9 * kBlock, 6 * kBlock), Error::kOk);
  EXPECT_EQ(Size(), 10 * kBlock);
  EXPECT_EQ(Blocks(), 15u + 1);  // more extents than the inode holds: a node
  ASSERT_EQ(Fallocate(kZero, 9 * kBlock + 1, 8 * kBlock), Error::kOk);
  EXPECT_EQ(Size(), 17 * kBlock + 1);
  EXPECT_EQ(Blocks(), 18u + 1);
  model.resize(17 * kBlock + 1);
  std::fill(model.begin() + 9 * kBlock, model.end(), '\0');
  RemountFile();
  EXPECT_EQ(Read(0, 20 * kBlock), model);
}

TEST_F(FallocateTest, RefusesAsExt4Does) {
  EXPECT_EQ(Fallocate(kFallocatePunchHole, 0, 1), Error::kNotSupported);
  EXPECT_EQ(Fallocate(kPunch | kZero, 0, 1), Error::kNotSupported);
  EXPECT_EQ(Fallocate(0x08, 0, kBlock), Error::kNotSupported);  // collapse
  EXPECT_EQ(Fallocate(0x20, 0, kBlock), Error::kNotSupported);  // insert
  EXPECT_EQ(Fallocate(0, 0, 0), Error::kInvalid);
  EXPECT_EQ(Fallocate(0, format::kMaxFileSize, 1), Error::kFileTooLarge);
  EXPECT_EQ(Fallocate(0, 1, UINT64_MAX), Error::kFileTooLarge);
  EXPECT_EQ(files().Fallocate(files().Root(), 0, 0, 1), Error::kIsDirectory);
  ASSERT_EQ(files().SetFlags(file_, format::kInodeAppend), Error::kOk);
  EXPECT_EQ(Fallocate(kPunch, 0, 1), Error::kNotPermitted);
  EXPECT_EQ(Fallocate(kZero, 0, 1), Error::kNotPermitted);
  EXPECT_EQ(Fallocate(kKeep, 0, 1), Error::kOk);
  ASSERT_EQ(files().SetFlags(file_, format::kInodeImmutable), Error::kOk);
  EXPECT_EQ(Fallocate(kKeep, 0, 1), Error::kNotPermitted);
  ASSERT_EQ(files().SetFlags(file_, 0), Error::kOk);
}

TEST_F(FallocateTest, MoreThanThereIsIsNoSpaceAndLeavesAFileThatGivesItBack) {
  const uint64_t before = fs_->Statfs().free_blocks;
  EXPECT_EQ(Fallocate(0, 0, uint64_t{1} << 30), Error::kNoSpace);
  EXPECT_EQ(Size(), 0u);
  ASSERT_EQ(Truncate(0), Error::kOk);
  EXPECT_EQ(fs_->Statfs().free_blocks, before);
  EXPECT_EQ(Fallocate(0, 0, 10 << 20), Error::kOk);
}

// Preallocated blocks can be filled, and holes be punched, when nothing else is free.
TEST_F(FallocateTest, WorksOnAFullImage) {
  ASSERT_EQ(Fallocate(0, 0, 4 << 20), Error::kOk);
  const InodeRef filler = files().Create(files().Root(), "filler").value();
  uint64_t at = 0;
  while (files().Write(filler, at, std::string(1 << 20, 'z')) == Error::kOk) at += 1 << 20;
  while (files().Write(filler, at, std::string(4096, 'z')) == Error::kOk) at += 4096;
  for (uint64_t block = 0; block < 3; ++block) {
    ASSERT_EQ(files().Write(file_, (2 * block + 1) * kBlock, "data"), Error::kOk);
  }
  ASSERT_EQ(Fallocate(kPunch, 512 << 10, 1 << 20), Error::kOk);
  EXPECT_EQ(Read(kBlock, 5), std::string("data\0", 5));
}

TEST_F(FallocateTest, SetIdBitsGoUnlessTheCallerIsPrivileged) {
  AttributeChange change;
  change.mode = 06755;
  ASSERT_TRUE(files().SetAttributes(file_, change).ok());
  ASSERT_EQ(Fallocate(0, 0, 10), Error::kOk);
  EXPECT_EQ(fs_->GetAttributes(file_).mode & 07777, 06755);
  ASSERT_EQ(RunBlocking([&](Attempt& a) { return fs_->Fallocate(a, kUser, file_, 0, 0, 10); }),
            Error::kOk);
  EXPECT_EQ(fs_->GetAttributes(file_).mode & 07777, 0755);
}

// Its turn among a transaction's ordered data comes when the transaction has closed and its data is
// about to be written.
class AtOrderedWrite : public OrderedData {
 public:
  explicit AtOrderedWrite(std::function<void()> action) : action_(std::move(action)) {}
  // On a thread of its own: the commit's must not wait.
  void StartOrderedWrite() override { std::thread(action_).join(); }
  void WaitOrderedWrite() override {}

 private:
  const std::function<void()> action_;
};

// A transaction maps blocks and waits for their data; the next one frees them. If only the first is
// durable when the power goes, the file must not show what was in the blocks before.
class OrderedDropTest : public FallocateTest {
 protected:
  OrderedDropTest() { options_.manual = true; }

  void CommitWhile(std::function<void()> action) {
    ASSERT_EQ(fs_->Sync(), Error::kOk);
    {
      Handle handle = RunBlocking([&](Attempt& a) {
                        return fs_->journal()->TryStart(a, OpType::kMisc, 1);
                      }).value();
      handle.AddOrdered(std::make_shared<AtOrderedWrite>(std::move(action)));
    }
    ASSERT_EQ(files().Write(file_, 0, std::string(8 * kBlock, 'n')), Error::kOk);
    ASSERT_EQ(fs_->journal()->CommitNow(CommitReason::kSync), Error::kOk);
  }
  void ExpectWritten() {
    CrashAndMount();
    EXPECT_TRUE(Read(0, 9 * kBlock) == std::string(8 * kBlock, 'n'));
  }
};

TEST_F(OrderedDropTest, Punch) {
  CommitWhile([&] { EXPECT_EQ(Fallocate(kPunch, 0, 8 * kBlock), Error::kOk); });
  ExpectWritten();
}

TEST_F(OrderedDropTest, ZeroRange) {
  CommitWhile([&] { EXPECT_EQ(Fallocate(kZero, 0, 8 * kBlock), Error::kOk); });
  ExpectWritten();
}

TEST_F(OrderedDropTest, Truncate) {
  CommitWhile([&] { EXPECT_EQ(Truncate(0), Error::kOk); });
  ExpectWritten();
}

TEST_F(OrderedDropTest, Delete) {
  CommitWhile([&] {
    EXPECT_EQ(files().Unlink(files().Root(), "f"), Error::kOk);
    fs_->impl()->inodes->Unreferenced(file_);
    file_.reset();
    fs_->impl()->inodes->DrainReaper();
  });
  ExpectWritten();
}

// J6: I/O that is still on its way when its blocks are punched. The punch waits for it, so that
// neither does the reader see what another file writes there later, nor does a late write hit it.
class HeldTest : public ::testing::Test {
 protected:
  HeldTest() : memory_(testing_support::NewImage(uint64_t{32} << 20)), held_(memory_.get()) {
    MountOptions options;
    options.manual = true;
    std::string message;
    fs_ = Filesystem::Mount(&held_, options, &message).value();
    file_ = files().Create(files().Root(), "f").value();
    EXPECT_EQ(files().Write(file_, 0, std::string(8 * kBlock, 'o')), Error::kOk);
    EXPECT_EQ(fs_->Sync(), Error::kOk);
  }
  ~HeldTest() override {
    file_.reset();
    EXPECT_EQ(fs_->Unmount(), Error::kOk);
  }
  testing_support::Files files() { return testing_support::Files(fs_.get()); }
  Error TryPunch() {
    Attempt attempt;
    return fs_->Fallocate(attempt, kRoot, file_, kPunch, 0, 8 * kBlock);
  }
  // The punch can go on now; what it frees goes to another file, all there is being taken.
  void PunchAndReuse() {
    ASSERT_EQ(files().Fallocate(file_, kPunch, 0, 8 * kBlock), Error::kOk);
    ASSERT_EQ(fs_->Sync(), Error::kOk);
    const InodeRef other = files().Create(files().Root(), "other").value();
    uint64_t size = 0;
    while (files().Write(other, size, std::string(64 * kBlock, 'x')) == Error::kOk) {
      size += 64 * kBlock;
    }
    ASSERT_EQ(fs_->Sync(), Error::kOk);
    ASSERT_GT(size, uint64_t{16} << 20);
    for (uint64_t at = 0; at < size; at += 64 * kBlock) {
      ASSERT_TRUE(files().Read(other, at, 64 * kBlock).value() == std::string(64 * kBlock, 'x'));
    }
    EXPECT_TRUE(files().Read(file_, 0, 8 * kBlock).value() == std::string(8 * kBlock, '\0'));
  }

  std::unique_ptr<MemoryDevice> memory_;
  HeldDevice held_;
  std::unique_ptr<Filesystem> fs_;
  InodeRef file_;
};

TEST_F(HeldTest, AReadOnItsWaySeesTheFilesOwnBytes) {
  std::string data(8 * kBlock, '?');
  Result<size_t> count = Error::kWouldBlock;
  held_.Hold(IoOp::kRead);
  Attempt attempt;
  ASSERT_EQ(fs_->Read(attempt, file_, 0, std::as_writable_bytes(std::span(data)),
                      [&](Result<size_t> got) { count = got; }),
            Error::kOk);
  ASSERT_EQ(held_.held(), 1u);
  EXPECT_EQ(TryPunch(), Error::kWouldBlock);
  held_.Release();
  ASSERT_TRUE(count.ok());
  EXPECT_TRUE(data == std::string(8 * kBlock, 'o'));
  PunchAndReuse();
}

TEST_F(HeldTest, AWriteOnItsWayDoesNotHitTheNextOwner) {
  ASSERT_EQ(files().Write(file_, 0, std::string(8 * kBlock, 'n')), Error::kOk);
  held_.Hold(IoOp::kWrite);
  ASSERT_EQ(file_->StartWriteback(100, IoKind::kBackgroundWrite), 8u);
  EXPECT_EQ(TryPunch(), Error::kWouldBlock);
  held_.Release();
  PunchAndReuse();
}

// After each operation either the power goes off, and what was synced is there, or it does not.
TEST_F(FallocateTest, RandomChangesAgreeWithTheModel) {
  std::mt19937 random(17);
  std::string model;
  const auto below = [&](size_t end) { return random() % end; };
  for (int step = 0; step < 4000 && !HasFatalFailure(); ++step) {
    const size_t offset = below(400'000);
    const size_t length = 1 + below(below(3) == 0 ? 90'000 : 9'000);
    switch (below(16)) {
      case 0:
        ASSERT_EQ(Truncate(offset), Error::kOk);
        model.resize(offset);
        break;
      case 1:
        ASSERT_EQ(Fsync(), Error::kOk);
        break;
      case 2:
        if (below(20) == 0) {
          ASSERT_EQ(Fsync(), Error::kOk);
          CrashAndMount();
        } else if (below(20) == 0) {
          RemountFile();
        }
        break;
      case 3:
      case 4: {
        const bool keep = below(2) == 0;
        ASSERT_EQ(Fallocate(keep ? kKeep : 0, offset, length), Error::kOk);
        if (!keep && model.size() < offset + length) model.resize(offset + length);
        break;
      }
      case 5:
      case 6:
        ASSERT_EQ(Fallocate(kPunch, offset, length), Error::kOk);
        if (offset < model.size()) {
          std::fill_n(model.begin() + offset, std::min(length, model.size() - offset), '\0');
        }
        break;
      case 7:
      case 8: {
        const bool keep = below(2) == 0;
        ASSERT_EQ(Fallocate(keep ? kZero | kKeep : kZero, offset, length), Error::kOk);
        if (!keep && model.size() < offset + length) model.resize(offset + length);
        if (offset < model.size()) {
          std::fill_n(model.begin() + offset, std::min(length, model.size() - offset), '\0');
        }
        break;
      }
      case 9:
      case 10:
      case 11: {
        const std::string expected = offset < model.size() ? model.substr(offset, length) : "";
        ASSERT_EQ(Read(offset, length), expected) << "step " << step;
        break;
      }
      default: {
        const std::string data(length, static_cast<char>('a' + step % 26));
        ASSERT_EQ(files().Write(file_, offset, data), Error::kOk);
        if (model.size() < offset + length) model.resize(offset + length);
        model.replace(offset, length, data);
      }
    }
    ASSERT_EQ(Size(), model.size()) << "step " << step;
  }
  RemountFile();
  EXPECT_EQ(Read(0, model.size() + 1), model);
  ASSERT_EQ(Truncate(0), Error::kOk);
  EXPECT_EQ(Blocks(), 0u);
}

}  // namespace
}  // namespace sluice
