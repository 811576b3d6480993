// SPDX-License-Identifier: Apache-2.0
//
// Inodes without a name: while somebody has them open, after a crash, and when space is short.
#include "fs/filesystem_impl.h"
#include "tests/support/fs_fixture.h"

namespace sluice {
namespace {

using testing_support::FsTest;

class OrphanTest : public FsTest {
 protected:
  uint64_t FreeInodes() { return fs_->Statfs().free_inodes; }
};

TEST_F(OrphanTest, AnOpenFileOutlivesItsName) {
  const InodeRef root = files().Root();
  const uint64_t before = FreeInodes();
  InodeRef file = files().Create(root, "f").value();
  ASSERT_EQ(files().Write(file, 0, "still here"), Error::kOk);
  auto open = fs_->Open(file, true, false).value();
  ASSERT_EQ(files().Unlink(root, "f"), Error::kOk);
  fs_->impl()->inodes->DrainReaper();
  EXPECT_EQ(files().Read(file, 0, 100).value(), "still here");
  EXPECT_EQ(FreeInodes(), before - 1);
  fs_->Release(std::move(open));
  file = nullptr;
  fs_->impl()->inodes->DrainReaper();
  EXPECT_EQ(FreeInodes(), before);
}

TEST_F(OrphanTest, TheKernelsLookupsKeepAnInode) {
  const InodeRef root = files().Root();
  const uint64_t before = FreeInodes();
  const InodeNumber ino = [&] {
    const InodeRef file = files().Create(root, "f").value();
    fs_->AddLookup(file, 3);
    return file->ino;
  }();
  ASSERT_EQ(files().Unlink(root, "f"), Error::kOk);
  fs_->Forget(ino, 2);
  fs_->impl()->inodes->DrainReaper();
  EXPECT_EQ(FreeInodes(), before - 1);
  fs_->Forget(ino, 1);
  fs_->impl()->inodes->DrainReaper();
  EXPECT_EQ(FreeInodes(), before);
  EXPECT_EQ(RunBlocking([&](Attempt& a) { return fs_->GetInode(a, ino); }).error(), Error::kStale);
}

TEST_F(OrphanTest, ACrashLeavesNothingBehind) {
  const SpaceInfo before = fs_->Statfs();
  InodeRef root = files().Root();
  for (int i = 0; i < 50; ++i) {
    const InodeRef file = files().Create(root, "f" + std::to_string(i)).value();
    fs_->AddLookup(file);
    ASSERT_EQ(files().Write(file, 0, "data"), Error::kOk);
  }
  InodeRef dir = files().Mkdir(root, "d").value();
  fs_->AddLookup(dir);
  InodeRef temporary = files().Temporary(root).value();
  fs_->AddLookup(temporary);
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(files().Unlink(root, "f" + std::to_string(i)), Error::kOk);
  }
  ASSERT_EQ(files().Rmdir(root, "d"), Error::kOk);
  ASSERT_EQ(fs_->Sync(), Error::kOk);
  EXPECT_EQ(FreeInodes(), before.free_inodes - 52);
  root = dir = temporary = nullptr;
  Crash();
  Mount();
  EXPECT_EQ(FreeInodes(), before.free_inodes);
  EXPECT_EQ(files().List(files().Root()).size(), 2u);
  Remount();
  EXPECT_EQ(fs_->Statfs().free_blocks, before.free_blocks - 1);  // the root's block
}

TEST_F(OrphanTest, UnmountDeletesWhatTheKernelNeverForgot) {
  const uint64_t before = FreeInodes();
  {
    const InodeRef file = files().Create(files().Root(), "f").value();
    fs_->AddLookup(file);
    ASSERT_EQ(files().Unlink(files().Root(), "f"), Error::kOk);
  }
  Remount();
  EXPECT_EQ(FreeInodes(), before);
}

TEST_F(OrphanTest, DeletedSpaceIsThereForTheNextWriter) {
  const InodeRef root = files().Root();
  const std::string chunk(1 << 20, 'c');
  for (int round = 0; round < 4; ++round) {
    const InodeRef file = files().Create(root, "big").value();
    // More than half of the image each time: the next round needs what this one frees.
    const uint64_t bytes = fs_->Statfs().available_blocks * kBlockSize * 3 / 4;
    for (uint64_t at = 0; at + chunk.size() < bytes && at < (uint64_t{40} << 20);
         at += chunk.size()) {
      ASSERT_EQ(files().Write(file, at, chunk), Error::kOk) << round << " " << at;
    }
    ASSERT_EQ(files().Unlink(root, "big"), Error::kOk);
  }
}

}  // namespace
}  // namespace sluice
