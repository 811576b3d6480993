// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "format/superblock.h"
#include "tests/support/fs_fixture.h"

namespace sluice {
namespace {

using testing_support::FsTest;
using testing_support::NewImage;

class MountTest : public FsTest {
 protected:
  MountTest() : FsTest(uint64_t{300} << 20) {}

  Error TryMount(Device* device, std::string* message) {
    const auto mounted = Filesystem::Mount(device, options_, message);
    return mounted.ok() ? Error::kOk : mounted.error();
  }
  void Overwrite(uint64_t offset, size_t length, std::byte value) {
    const std::vector<std::byte> bytes(length, value);
    ASSERT_EQ(device_->Write(offset, bytes), Error::kOk);
  }
  // A damaged image is not for the check after the test.
  void ReplaceImage() { device_ = NewImage(uint64_t{64} << 20); }
  format::Superblock Super() { return testing_support::SuperblockOn(device_.get()); }
};

TEST_F(MountTest, MarksTheImage) {
  EXPECT_NE(Super().state.state & format::kStateMounted, 0u);
  EXPECT_EQ(Super().state.mount_count, 1u);
  Unmount();
  EXPECT_EQ(Super().state.state, 0u);
  options_.mountpoint = "/mnt/here";
  Mount();
  EXPECT_STREQ(Super().state.last_mountpoint, "/mnt/here");
  EXPECT_EQ(Super().state.mount_count, 2u);
}

TEST_F(MountTest, FallsBackToABackup) {
  ASSERT_TRUE(files().Create(files().Root(), "f").ok());
  Unmount();
  for (const int damage : {0, 1, 2}) {
    if (damage == 0) Overwrite(0, kBlockSize, std::byte{0});
    if (damage == 1) Overwrite(0, kSectorSize, std::byte{0x5a});
    if (damage == 2) Overwrite(0, kBlockSize, std::byte{0});
    Mount();
    EXPECT_TRUE(files().Lookup(files().Root(), "f").ok());
    Unmount();
  }
  ReplaceImage();
}

TEST_F(MountTest, AnotherFilesystemsImageIsNotOurs) {
  Unmount();
  Overwrite(0, kBlockSize, std::byte{0});
  Overwrite(1024, kSectorSize, std::byte{0x53});  // where ext4 has its superblock
  std::string message;
  EXPECT_EQ(TryMount(device_.get(), &message), Error::kUnknownFormat);
  EXPECT_EQ(message, "not a sluicefs image");
  std::unique_ptr<MemoryDevice> blank = std::make_unique<MemoryDevice>(uint64_t{64} << 20);
  EXPECT_EQ(TryMount(blank.get(), &message), Error::kUnknownFormat);
  ReplaceImage();
}

TEST_F(MountTest, TruncatedImage) {
  Unmount();
  MemoryDevice shorter(uint64_t{200} << 20);
  std::vector<std::byte> head(16 << 20);
  ASSERT_EQ(device_->Read(0, head), Error::kOk);
  ASSERT_EQ(shorter.Write(0, head), Error::kOk);
  std::string message;
  EXPECT_EQ(TryMount(&shorter, &message), Error::kCorrupt);
  EXPECT_NE(message.find("smaller than its superblock claims"), std::string::npos) << message;
}

TEST_F(MountTest, UnknownFeatures) {
  Unmount();
  std::vector<std::byte> block(kBlockSize);
  const format::Superblock good = Super();
  format::Superblock super = good;
  const auto write = [&] {
    format::SerializeSuperblock(super, 0, format::BlockSpan(block.data(), kBlockSize));
    ASSERT_EQ(device_->Write(0, block), Error::kOk);
  };
  std::string message;
  super.fixed.feature_incompat = 1u << 30;
  write();
  EXPECT_EQ(TryMount(device_.get(), &message), Error::kNewerFormat);
  super = good;
  super.fixed.feature_ro_compat = 1u << 30;
  write();
  EXPECT_EQ(TryMount(device_.get(), &message), Error::kNewerFormat);
  options_.read_only = true;
  EXPECT_EQ(TryMount(device_.get(), &message), Error::kOk) << message;
  options_.read_only = false;
  super = good;
  write();
}

TEST_F(MountTest, ReadOnlyDeviceNeedsReadOnlyMount) {
  Unmount();
  std::unique_ptr<MemoryDevice> copy = device_->Clone();
  copy->set_read_only(true);
  std::string message;
  EXPECT_EQ(TryMount(copy.get(), &message), Error::kReadOnly);
  options_.read_only = true;
  EXPECT_EQ(TryMount(copy.get(), &message), Error::kOk) << message;
}

TEST_F(MountTest, CommittedChangesSurviveACrash) {
  ASSERT_TRUE(files().Create(files().Root(), "kept").ok());
  ASSERT_EQ(fs_->Sync(), Error::kOk);
  Crash();
  options_.read_only = true;
  device_->RefuseWrites();
  Mount();
  EXPECT_TRUE(files().Lookup(files().Root(), "kept").ok());
  Unmount();
  device_->ClearFaults();
  options_.read_only = false;
  Mount();
  EXPECT_TRUE(files().Lookup(files().Root(), "kept").ok());
}

// A sparse image on a full host: the message says what to do, and the next mount has everything.
TEST_F(MountTest, ReplayOnAFullHostSaysSoAndLosesNothing) {
  ASSERT_TRUE(files().Create(files().Root(), "kept").ok());
  ASSERT_EQ(fs_->Sync(), Error::kOk);
  Crash();
  // The group table is in every transaction that makes a file.
  device_->FailRange(IoOp::kWrite, kBlockSize, kBlockSize, Error::kNoSpace);
  std::string message;
  EXPECT_EQ(TryMount(device_.get(), &message), Error::kNoSpace);
  EXPECT_NE(message.find("make room"), std::string::npos) << message;
  EXPECT_EQ(message.find("fsck"), std::string::npos) << message;
  device_->ClearFaults();
  Mount();
  EXPECT_TRUE(files().Lookup(files().Root(), "kept").ok());
}

TEST_F(MountTest, DirsyncNamesAreDurableAtOnce) {
  Unmount();
  options_.dirsync = true;
  Mount();
  ASSERT_TRUE(files().Mkdir(files().Root(), "d").ok());
  ASSERT_EQ(files().Rename(files().Root(), "d", files().Root(), "e"), Error::kOk);
  Crash();
  Mount();
  EXPECT_TRUE(files().Lookup(files().Root(), "e").ok());
  EXPECT_FALSE(files().Lookup(files().Root(), "d").ok());
}

TEST_F(MountTest, DamagedDirectoryBlockIsReportedAndStopsWriting) {
  ASSERT_TRUE(files().Mkdir(files().Root(), "d").ok());
  for (int i = 0; i < 300; ++i) {
    const InodeRef dir = files().Lookup(files().Root(), "d").value();
    ASSERT_TRUE(files().Create(dir, "name " + std::to_string(i)).ok());
  }
  Unmount();
  // Every directory block's last byte (a name) is changed.
  for (uint64_t block = 1; block < device_->size() / kBlockSize; ++block) {
    std::vector<std::byte> bytes(kBlockSize);
    ASSERT_EQ(device_->Read(block * kBlockSize, bytes), Error::kOk);
    const auto* header = format::As<format::BlockHeader>(bytes.data());
    if (header->magic != format::kBlockMagic) continue;
    if (header->kind != static_cast<uint16_t>(format::BlockKind::kDirectory)) continue;
    if (header->owner == format::kRootInode) continue;
    bytes.back() ^= std::byte{1};
    ASSERT_EQ(device_->Write(block * kBlockSize, bytes), Error::kOk);
  }
  Mount();
  InodeRef again = files().Lookup(files().Root(), "d").value();
  EXPECT_EQ(files().Lookup(again, "name 7").error(), Error::kCorrupt);
  EXPECT_TRUE(fs_->read_only());
  EXPECT_EQ(files().Create(files().Root(), "x").error(), Error::kReadOnly);
  const InodeNumber ino = again->ino;
  again = nullptr;
  Unmount();
  EXPECT_NE(Super().state.state & format::kStateError, 0u);
  EXPECT_EQ(Super().state.last_error_inode, ino);
  ReplaceImage();
}

}  // namespace
}  // namespace sluice
