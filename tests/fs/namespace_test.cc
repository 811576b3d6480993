// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>

#include <set>

#include "tests/support/fs_fixture.h"

namespace sluice {
namespace {

using testing_support::Files;
using testing_support::FsTest;
using testing_support::kRoot;
using testing_support::kUser;

class NamespaceTest : public FsTest {
 protected:
  Attributes Stat(const InodeRef& inode) { return fs_->GetAttributes(inode); }
};

TEST_F(NamespaceTest, FreshImageHasAnEmptyRoot) {
  const InodeRef root = files().Root();
  EXPECT_EQ(Stat(root).links, 2u);
  const auto names = files().List(root);
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0].name, ".");
  EXPECT_EQ(names[1].name, "..");
  EXPECT_EQ(names[1].ino, root->ino);
  EXPECT_EQ(files().Lookup(root, "x").error(), Error::kNotFound);
}

TEST_F(NamespaceTest, CreateLookupUnlink) {
  const InodeRef root = files().Root();
  const InodeRef file = files().Create(root, "a", 0640, kUser).value();
  const Attributes made = Stat(file);
  EXPECT_EQ(made.mode, S_IFREG | 0640);
  EXPECT_EQ(made.uid, kUser.uid);
  EXPECT_EQ(made.gid, kUser.gid);
  EXPECT_EQ(made.links, 1u);
  EXPECT_GT(made.btime, 0);
  EXPECT_EQ(files().Lookup(root, "a").value(), file);
  EXPECT_EQ(files().Create(root, "a").error(), Error::kExists);
  EXPECT_EQ(files().Mkdir(root, "a").error(), Error::kExists);
  EXPECT_EQ(files().Rmdir(root, "a"), Error::kNotDirectory);
  EXPECT_EQ(files().Lookup(file, "x").error(), Error::kNotDirectory);
  EXPECT_EQ(files().Create(file, "x").error(), Error::kNotDirectory);
  EXPECT_EQ(files().Unlink(root, "a"), Error::kOk);
  EXPECT_EQ(files().Lookup(root, "a").error(), Error::kNotFound);
  EXPECT_EQ(files().Unlink(root, "a"), Error::kNotFound);
}

TEST_F(NamespaceTest, NamesAreChecked) {
  const InodeRef root = files().Root();
  const std::string longest(255, 'n');
  EXPECT_TRUE(files().Create(root, longest).ok());
  EXPECT_TRUE(files().Lookup(root, longest).ok());
  EXPECT_EQ(files().Create(root, longest + "n").error(), Error::kNameTooLong);
  EXPECT_EQ(files().Lookup(root, longest + "n").error(), Error::kNameTooLong);
  EXPECT_EQ(files().Create(root, "").error(), Error::kInvalid);
  EXPECT_EQ(files().Create(root, "a/b").error(), Error::kInvalid);
  EXPECT_EQ(files().Create(root, std::string_view("a\0b", 3)).error(), Error::kInvalid);
  EXPECT_EQ(files().Create(root, ".").error(), Error::kExists);
  EXPECT_EQ(files().Mkdir(root, "..").error(), Error::kExists);
  EXPECT_EQ(files().Lookup(root, ".").value(), root);
  EXPECT_EQ(files().Lookup(root, "..").value(), root);
  EXPECT_EQ(files().Rmdir(root, "."), Error::kInvalid);
  EXPECT_EQ(files().Rmdir(root, ".."), Error::kNotEmpty);
  EXPECT_EQ(files().Unlink(root, "."), Error::kIsDirectory);
  EXPECT_EQ(files().Rename(root, ".", root, "x"), Error::kBusy);
  EXPECT_EQ(files().Rename(root, longest, root, ".."), Error::kBusy);
  EXPECT_TRUE(files().Create(root, "\xff\xfe bytes").ok());
}

TEST_F(NamespaceTest, DirectoriesCountLinksAndMustBeEmpty) {
  const InodeRef root = files().Root();
  const InodeRef dir = files().Mkdir(root, "d").value();
  EXPECT_EQ(Stat(dir).links, 2u);
  EXPECT_EQ(Stat(root).links, 3u);
  EXPECT_EQ(files().Lookup(dir, "..").value(), root);
  const InodeRef sub = files().Mkdir(dir, "s").value();
  EXPECT_EQ(Stat(dir).links, 3u);
  EXPECT_EQ(files().Rmdir(root, "d"), Error::kNotEmpty);
  EXPECT_EQ(files().Unlink(root, "d"), Error::kIsDirectory);
  fs_->AddLookup(sub);
  EXPECT_EQ(files().Rmdir(dir, "s"), Error::kOk);
  EXPECT_EQ(Stat(dir).links, 2u);
  EXPECT_EQ(Stat(sub).links, 0u);
  EXPECT_EQ(files().Create(sub, "x").error(), Error::kNotFound);
  fs_->Forget(sub->ino, 1);
  EXPECT_EQ(files().Rmdir(root, "d"), Error::kOk);
  EXPECT_EQ(Stat(root).links, 2u);
}

TEST_F(NamespaceTest, SetGroupIdDirectoriesGiveTheirGroup) {
  const InodeRef root = files().Root();
  const InodeRef dir = files().Mkdir(root, "d", 02775).value();
  AttributeChange chown;
  chown.gid = 77;
  ASSERT_TRUE(files().SetAttributes(dir, chown).ok());
  const Attributes file = Stat(files().Create(dir, "f", 02755, kUser).value());
  EXPECT_EQ(file.gid, 77u);
  EXPECT_EQ(file.mode & 07777, 0755);
  const Attributes sub = Stat(files().Create(dir, "s", S_IFDIR | 0755, kUser).value());
  EXPECT_EQ(sub.gid, 77u);
  EXPECT_EQ(sub.mode & 07777, 02755);
}

TEST_F(NamespaceTest, SpecialFilesSurviveARemount) {
  const InodeRef root = files().Root();
  const auto device = RunBlocking([&](Attempt& a) {
    return fs_->Create(a, kRoot, root, "dev", {S_IFCHR | 0600, 1234, 567890});
  });
  ASSERT_TRUE(device.ok());
  EXPECT_TRUE(files().Create(root, "fifo", S_IFIFO | 0600).ok());
  EXPECT_TRUE(files().Create(root, "sock", S_IFSOCK | 0600).ok());
  EXPECT_EQ(files().Create(root, "link", S_IFLNK | 0777).error(), Error::kInvalid);
}

TEST_F(NamespaceTest, SymlinksShortAndLong) {
  for (const size_t length : {size_t{1}, size_t{80}, size_t{81}, size_t{4095}}) {
    const std::string target(length, 't');
    const std::string name = "l" + std::to_string(length);
    const InodeRef link = files().Symlink(files().Root(), name, target).value();
    EXPECT_EQ(files().Readlink(link).value(), target);
    EXPECT_EQ(Stat(link).size, length);
  }
  EXPECT_EQ(files().Symlink(files().Root(), "e", "").error(), Error::kNotFound);
  EXPECT_EQ(files().Symlink(files().Root(), "e", std::string(4096, 't')).error(),
            Error::kNameTooLong);
  EXPECT_EQ(files().Readlink(files().Root()).error(), Error::kInvalid);
  Remount();
  for (const size_t length : {size_t{1}, size_t{80}, size_t{81}, size_t{4095}}) {
    const std::string name = "l" + std::to_string(length);
    const InodeRef link = files().Lookup(files().Root(), name).value();
    EXPECT_EQ(files().Readlink(link).value(), std::string(length, 't'));
    EXPECT_EQ(files().Readlink(link).value(), std::string(length, 't'));
  }
  EXPECT_EQ(files().Unlink(files().Root(), "l4095"), Error::kOk);
}

TEST_F(NamespaceTest, HardLinks) {
  const InodeRef root = files().Root();
  const InodeRef dir = files().Mkdir(root, "d").value();
  const InodeRef file = files().Create(root, "a").value();
  EXPECT_EQ(files().Link(file, dir, "b"), Error::kOk);
  EXPECT_EQ(Stat(file).links, 2u);
  EXPECT_EQ(files().Lookup(dir, "b").value(), file);
  EXPECT_EQ(files().Link(file, dir, "b"), Error::kExists);
  EXPECT_EQ(files().Link(dir, root, "e"), Error::kNotPermitted);
  EXPECT_EQ(files().Unlink(root, "a"), Error::kOk);
  EXPECT_EQ(Stat(file).links, 1u);
  fs_->AddLookup(file);
  EXPECT_EQ(files().Unlink(dir, "b"), Error::kOk);
  EXPECT_EQ(files().Link(file, root, "again"), Error::kNotFound);
  fs_->Forget(file->ino, 1);
}

TEST_F(NamespaceTest, TemporaryFilesMayBeLinkedOnce) {
  InodeRef root = files().Root();
  InodeRef file = files().Temporary(root).value();
  fs_->AddLookup(file);
  EXPECT_EQ(Stat(file).links, 0u);
  EXPECT_EQ(files().Write(file, 0, "content"), Error::kOk);
  EXPECT_EQ(files().Link(file, root, "named"), Error::kOk);
  EXPECT_EQ(Stat(file).links, 1u);
  fs_->Forget(file->ino, 1);
  root = file = nullptr;
  Remount();
  const InodeRef named = files().Lookup(files().Root(), "named").value();
  EXPECT_EQ(files().Read(named, 0, 100).value(), "content");
}

TEST_F(NamespaceTest, RenameMovesReplacesAndExchanges) {
  const InodeRef root = files().Root();
  const InodeRef dir = files().Mkdir(root, "d").value();
  const InodeRef a = files().Create(root, "a").value();
  const InodeRef b = files().Create(dir, "b").value();
  EXPECT_EQ(files().Rename(root, "a", root, "a2"), Error::kOk);
  EXPECT_EQ(files().Lookup(root, "a").error(), Error::kNotFound);
  EXPECT_EQ(files().Lookup(root, "a2").value(), a);
  EXPECT_EQ(files().Rename(root, "a2", dir, "b", RenameFlags::kNoReplace), Error::kExists);
  EXPECT_EQ(files().Rename(root, "a2", dir, "b", RenameFlags::kExchange), Error::kOk);
  EXPECT_EQ(files().Lookup(root, "a2").value(), b);
  EXPECT_EQ(files().Lookup(dir, "b").value(), a);
  EXPECT_EQ(files().Rename(root, "a2", dir, "b"), Error::kOk);
  EXPECT_EQ(files().Lookup(dir, "b").value(), b);
  EXPECT_EQ(files().Lookup(root, "a2").error(), Error::kNotFound);
  EXPECT_EQ(files().Rename(root, "a2", dir, "c"), Error::kNotFound);
  EXPECT_EQ(files().Rename(dir, "b", dir, "none", RenameFlags::kExchange), Error::kNotFound);
  EXPECT_EQ(files().Rename(dir, "b", root, "x", RenameFlags::kNoReplace), Error::kOk);
}

TEST_F(NamespaceTest, RenameOntoAnotherNameOfTheSameFileDoesNothing) {
  const InodeRef root = files().Root();
  const InodeRef file = files().Create(root, "a").value();
  ASSERT_EQ(files().Link(file, root, "b"), Error::kOk);
  EXPECT_EQ(files().Rename(root, "a", root, "b"), Error::kOk);
  EXPECT_TRUE(files().Lookup(root, "a").ok());
  EXPECT_TRUE(files().Lookup(root, "b").ok());
  EXPECT_EQ(files().Rename(root, "a", root, "a"), Error::kOk);
}

TEST_F(NamespaceTest, RenameOfDirectories) {
  const InodeRef root = files().Root();
  const InodeRef a = files().Mkdir(root, "a").value();
  const InodeRef b = files().Mkdir(root, "b").value();
  const InodeRef deep = files().Mkdir(a, "deep").value();
  const InodeRef deeper = files().Mkdir(deep, "deeper").value();
  ASSERT_TRUE(files().Create(root, "file").ok());
  EXPECT_EQ(files().Rename(root, "a", deeper, "x"), Error::kInvalid);
  EXPECT_EQ(files().Rename(root, "a", a, "x"), Error::kInvalid);
  EXPECT_EQ(files().Rename(deep, "deeper", root, "a"), Error::kNotEmpty);
  EXPECT_EQ(files().Rename(deep, "deeper", root, "a", RenameFlags::kExchange), Error::kInvalid);
  EXPECT_EQ(files().Rename(root, "a", root, "file"), Error::kNotDirectory);
  EXPECT_EQ(files().Rename(root, "file", root, "b"), Error::kIsDirectory);
  EXPECT_EQ(files().Rename(root, "b", root, "a"), Error::kNotEmpty);
  EXPECT_EQ(files().Rename(a, "deep", b, "moved"), Error::kOk);
  EXPECT_EQ(Stat(a).links, 2u);
  EXPECT_EQ(Stat(b).links, 3u);
  EXPECT_EQ(files().Lookup(deep, "..").value(), b);
  EXPECT_EQ(files().Rename(b, "moved", root, "a"), Error::kOk);
  EXPECT_EQ(Stat(b).links, 2u);
  EXPECT_EQ(Stat(root).links, 4u);
  EXPECT_EQ(files().Lookup(root, "a").value(), deep);
  EXPECT_EQ(files().Lookup(deep, "..").value(), root);
  // A directory and a file change places: the links follow the directory.
  ASSERT_TRUE(files().Create(b, "f").ok());
  EXPECT_EQ(files().Rename(root, "a", b, "f", RenameFlags::kExchange), Error::kOk);
  EXPECT_EQ(Stat(root).links, 3u);
  EXPECT_EQ(Stat(b).links, 3u);
  EXPECT_EQ(files().Lookup(deep, "..").value(), b);
}

TEST_F(NamespaceTest, ImmutableAndAppendOnly) {
  const InodeRef root = files().Root();
  const InodeRef dir = files().Mkdir(root, "d").value();
  const InodeRef file = files().Create(dir, "f").value();
  EXPECT_EQ(files().SetFlags(file, 0x00001000), Error::kNotSupported);
  EXPECT_EQ(files().SetFlags(file, format::kInodeDirSync), Error::kNotSupported);
  ASSERT_EQ(files().SetFlags(dir, format::kInodeAppend), Error::kOk);
  EXPECT_TRUE(files().Create(dir, "g").ok());
  EXPECT_EQ(files().Unlink(dir, "g"), Error::kNotPermitted);
  EXPECT_EQ(files().Rename(dir, "g", root, "g"), Error::kNotPermitted);
  ASSERT_EQ(files().SetFlags(dir, format::kInodeImmutable), Error::kOk);
  EXPECT_EQ(files().Create(dir, "h").error(), Error::kNotPermitted);
  ASSERT_EQ(files().SetFlags(dir, 0), Error::kOk);
  ASSERT_EQ(files().SetFlags(file, format::kInodeImmutable), Error::kOk);
  EXPECT_EQ(files().Unlink(dir, "f"), Error::kNotPermitted);
  EXPECT_EQ(files().Link(file, root, "f"), Error::kNotPermitted);
  EXPECT_EQ(files().Rename(dir, "f", root, "f"), Error::kNotPermitted);
  AttributeChange chmod;
  chmod.mode = 0600;
  EXPECT_EQ(files().SetAttributes(file, chmod).error(), Error::kNotPermitted);
  EXPECT_EQ(fs_->Open(file, true, false).error(), Error::kNotPermitted);
  EXPECT_EQ(files().SetFlags(file, 0), Error::kOk);
}

TEST_F(NamespaceTest, AttributesSurviveARemount) {
  InodeRef file = files().Create(files().Root(), "f", 04755).value();
  AttributeChange change;
  change.uid = 5;
  change.gid = 6;
  change.atime = -1'500'000'000;
  change.mtime = 9'000'000'000'123'456'789;
  ASSERT_TRUE(files().SetAttributes(file, change).ok());
  AttributeChange kill;
  kill.kill_suid_sgid = true;
  ASSERT_TRUE(files().SetAttributes(file, kill).ok());
  const InodeNumber ino = file->ino;
  const uint32_t generation = Stat(file).generation;
  file = nullptr;
  Remount();
  const InodeRef again = files().Lookup(files().Root(), "f").value();
  const Attributes found = Stat(again);
  EXPECT_EQ(found.ino, ino);
  EXPECT_EQ(found.mode, S_IFREG | 0755);
  EXPECT_EQ(found.uid, 5u);
  EXPECT_EQ(found.gid, 6u);
  EXPECT_EQ(found.atime, -1'500'000'000);
  EXPECT_EQ(found.mtime, 9'000'000'000'123'456'789);
  EXPECT_TRUE(RunBlocking([&](Attempt& a) { return fs_->GetInode(a, ino, generation); }).ok());
  EXPECT_EQ(RunBlocking([&](Attempt& a) { return fs_->GetInode(a, ino, generation + 1); }).error(),
            Error::kStale);
  EXPECT_EQ(RunBlocking([&](Attempt& a) { return fs_->GetInode(a, ino + 5); }).error(),
            Error::kStale);
  EXPECT_EQ(RunBlocking([&](Attempt& a) { return fs_->GetInode(a, 2); }).error(), Error::kStale);
}

TEST_F(NamespaceTest, DeletedSpaceComesBack) {
  const SpaceInfo before = fs_->Statfs();
  InodeRef root = files().Root();
  InodeRef dir = files().Mkdir(root, "d").value();
  for (int i = 0; i < 500; ++i) {
    const std::string name = "a rather long name of a file " + std::to_string(i);
    const InodeRef file = files().Create(dir, name).value();
    ASSERT_EQ(files().Write(file, 0, "data"), Error::kOk);
  }
  EXPECT_LT(fs_->Statfs().free_blocks, before.free_blocks);
  for (int i = 0; i < 500; ++i) {
    const std::string name = "a rather long name of a file " + std::to_string(i);
    ASSERT_EQ(files().Unlink(dir, name), Error::kOk);
  }
  ASSERT_EQ(files().Rmdir(root, "d"), Error::kOk);
  root = dir = nullptr;
  Remount();
  EXPECT_EQ(fs_->Statfs().free_inodes, before.free_inodes);
  // The root keeps its block.
  EXPECT_EQ(fs_->Statfs().free_blocks, before.free_blocks - 1);
}

TEST_F(NamespaceTest, ReadOnlyMountChangesNothing) {
  ASSERT_TRUE(files().Create(files().Root(), "f").ok());
  Unmount();
  options_.read_only = true;
  device_->RefuseWrites();
  Mount();
  EXPECT_TRUE(files().Lookup(files().Root(), "f").ok());
  EXPECT_EQ(files().Create(files().Root(), "g").error(), Error::kReadOnly);
  EXPECT_EQ(files().Unlink(files().Root(), "f"), Error::kReadOnly);
  EXPECT_EQ(files().List(files().Root()).size(), 3u);
  Unmount();
  device_->ClearFaults();
}

}  // namespace
}  // namespace sluice
