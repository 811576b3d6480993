// SPDX-License-Identifier: Apache-2.0
//
// A filesystem on a disk in memory, for tests of fs/ and above: made by mkfs, mounted by SetUp,
// unmounted by TearDown, which then checks the image with fsck if the test program links it
// (ImageCheck). Operations run to their end on the calling thread.
#ifndef SLUICE_TESTS_SUPPORT_FS_FIXTURE_H_
#define SLUICE_TESTS_SUPPORT_FS_FIXTURE_H_

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "block/attempt.h"
#include "block/memory_device.h"
#include "format/superblock.h"
#include "fs/filesystem.h"
#include "mkfs/make_filesystem.h"

namespace sluice::testing_support {

// Checks an unmounted image; returns what is wrong, or an empty string. Test programs that link
// fsck set it once.
using ImageCheck = std::function<std::string(Device*)>;
inline ImageCheck& CheckAfterTest() {
  static ImageCheck check;
  return check;
}

inline std::unique_ptr<MemoryDevice> NewImage(uint64_t bytes, MkfsOptions options = {}) {
  auto device = std::make_unique<MemoryDevice>(bytes);
  MkfsReport report;
  EXPECT_EQ(MakeFilesystem(device.get(), options, &report), Error::kOk) << report.problem;
  return device;
}

inline constexpr Caller kRoot = {0, 0, 1};
inline constexpr Caller kUser = {1000, 100, 2};

// The operations of one filesystem, waiting where they must.
class Files {
 public:
  explicit Files(Filesystem* fs) : fs_(fs) {}
  Filesystem* operator->() const { return fs_; }

  InodeRef Root() const {
    return RunBlocking([&](Attempt& a) { return fs_->GetInode(a, format::kRootInode); }).value();
  }
  Result<InodeRef> Lookup(const InodeRef& parent, std::string_view name) const {
    return RunBlocking([&](Attempt& a) { return fs_->Lookup(a, parent, name); });
  }
  Result<InodeRef> Create(const InodeRef& parent, std::string_view name, uint16_t mode = 0644,
                          const Caller& caller = kRoot) const {
    if ((mode & S_IFMT) == 0) mode |= S_IFREG;
    return RunBlocking([&](Attempt& a) {
      return fs_->Create(a, caller, parent, name, {mode, 0, 0});
    });
  }
  Result<InodeRef> Mkdir(const InodeRef& parent, std::string_view name,
                         uint16_t mode = 0755) const {
    return Create(parent, name, static_cast<uint16_t>(S_IFDIR | mode));
  }
  Result<InodeRef> Symlink(const InodeRef& parent, std::string_view name,
                           std::string_view target) const {
    return RunBlocking([&](Attempt& a) { return fs_->Symlink(a, kRoot, parent, name, target); });
  }
  Result<InodeRef> Temporary(const InodeRef& parent) const {
    return RunBlocking([&](Attempt& a) {
      return fs_->CreateTemporary(a, kRoot, parent, {S_IFREG | 0600, 0, 0});
    });
  }
  Result<std::string> Readlink(const InodeRef& inode) const {
    return RunBlocking([&](Attempt& a) { return fs_->Readlink(a, inode); });
  }
  Error Link(const InodeRef& inode, const InodeRef& parent, std::string_view name) const {
    return RunBlocking([&](Attempt& a) { return fs_->Link(a, inode, parent, name); });
  }
  Error Unlink(const InodeRef& parent, std::string_view name) const {
    return RunBlocking([&](Attempt& a) { return fs_->Unlink(a, parent, name); });
  }
  Error Rmdir(const InodeRef& parent, std::string_view name) const {
    return RunBlocking([&](Attempt& a) { return fs_->Rmdir(a, parent, name); });
  }
  Error Rename(const InodeRef& from_parent, std::string_view from, const InodeRef& to_parent,
               std::string_view to, RenameFlags flags = RenameFlags::kNone) const {
    return RunBlocking(
        [&](Attempt& a) { return fs_->Rename(a, from_parent, from, to_parent, to, flags); });
  }
  Result<Attributes> SetAttributes(const InodeRef& inode, const AttributeChange& change) const {
    return RunBlocking([&](Attempt& a) { return fs_->SetAttributes(a, kRoot, inode, change); });
  }
  Error SetFlags(const InodeRef& inode, uint32_t flags) const {
    return RunBlocking([&](Attempt& a) { return fs_->SetFlags(a, inode, flags); });
  }
  Error Write(const InodeRef& inode, uint64_t offset, std::string_view data) const {
    while (!data.empty()) {
      const auto bytes = std::as_bytes(std::span(data.data(), data.size()));
      const Result<size_t> written = RunBlocking(
          [&](Attempt& a) { return fs_->Write(a, kRoot, inode, offset, bytes, false, false); });
      if (!written.ok()) return written.error();
      data.remove_prefix(*written);
      offset += *written;
    }
    return Error::kOk;
  }
  Error Fallocate(const InodeRef& inode, uint32_t mode, uint64_t offset, uint64_t length) const {
    return RunBlocking(
        [&](Attempt& a) { return fs_->Fallocate(a, kRoot, inode, mode, offset, length); });
  }
  // Reads on a device that completes at once (a MemoryDevice).
  Result<std::string> Read(const InodeRef& inode, uint64_t offset, size_t length) const {
    std::string data(length, '?');
    Result<size_t> count = Error::kIo;
    const Error error = RunBlocking([&](Attempt& a) {
      return fs_->Read(a, inode, offset, std::as_writable_bytes(std::span(data.data(), length)),
                       [&](Result<size_t> got) { count = got; });
    });
    if (error != Error::kOk) return error;
    if (!count.ok()) return count.error();
    data.resize(*count);
    return data;
  }

  struct Name {
    std::string name;
    InodeNumber ino;
    uint8_t type;
    uint64_t cookie;
  };
  // Names behind `cookie`, at most `limit`, as a caller of readdir(3) gets them.
  std::vector<Name> List(const InodeRef& directory, uint64_t cookie = 0,
                         size_t limit = SIZE_MAX) const {
    std::vector<Name> names;
    for (size_t before = 0; names.size() < limit;) {
      const Error error = RunBlocking([&](Attempt& a) {
        return fs_->Readdir(a, directory, cookie,
                            [&](std::string_view name, InodeNumber ino, uint8_t type, uint64_t at) {
                              if (names.size() >= limit) return false;
                              names.push_back({std::string(name), ino, type, at});
                              cookie = at;
                              return true;
                            });
      });
      EXPECT_EQ(error, Error::kOk);
      if (error != Error::kOk || names.size() == before) break;
      before = names.size();
    }
    return names;
  }

 private:
  Filesystem* const fs_;
};

class FsTest : public ::testing::Test {
 protected:
  explicit FsTest(uint64_t bytes = uint64_t{64} << 20, MkfsOptions mkfs = {})
      : device_(NewImage(bytes, std::move(mkfs))) {}

  void SetUp() override { Mount(); }
  void TearDown() override {
    if (fs_ != nullptr) Unmount();
    if (CheckAfterTest()) {
      EXPECT_EQ(CheckAfterTest()(device_.get()), "");
    }
  }

  void Mount() {
    std::string message;
    Result<std::unique_ptr<Filesystem>> mounted =
        Filesystem::Mount(device_.get(), options_, &message);
    ASSERT_TRUE(mounted.ok()) << message;
    fs_ = std::move(mounted).value();
  }
  void Unmount() {
    EXPECT_EQ(fs_->Unmount(), Error::kOk);
    fs_.reset();
  }
  void Remount() {
    Unmount();
    Mount();
  }
  // The power goes off: what the device has now is all there is.
  void Crash() {
    std::unique_ptr<MemoryDevice> after = device_->Clone();
    fs_.reset();
    device_ = std::move(after);
  }

  Files files() const { return Files(fs_.get()); }

  std::unique_ptr<MemoryDevice> device_;
  MountOptions options_;
  std::unique_ptr<Filesystem> fs_;
};

// A filesystem with one empty file, "f".
class FileTest : public FsTest {
 protected:
  void SetUp() override {
    FsTest::SetUp();
    file_ = files().Create(files().Root(), "f").value();
  }
  void TearDown() override {
    file_.reset();
    FsTest::TearDown();
  }
  void RemountFile() {
    file_.reset();
    Remount();
    FindFile();
  }
  void FindFile() { file_ = files().Lookup(files().Root(), "f").value(); }
  Error Truncate(uint64_t size) {
    AttributeChange change;
    change.size = size;
    return files().SetAttributes(file_, change).error();
  }

  InodeRef file_;
};

// The first superblock as it is on the device.
inline format::Superblock SuperblockOn(Device* device) {
  std::vector<std::byte> block(kBlockSize);
  EXPECT_EQ(device->Read(0, block), Error::kOk);
  format::Superblock super;
  const format::ConstBlockSpan bytes(block.data(), kBlockSize);
  EXPECT_EQ(format::ParseSuperblock(bytes, &super, nullptr), Error::kOk);
  return super;
}

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_SUPPORT_FS_FIXTURE_H_
