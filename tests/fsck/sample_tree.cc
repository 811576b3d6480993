// SPDX-License-Identifier: Apache-2.0
#include "tests/fsck/sample_tree.h"

#include <sys/stat.h>

#include <string>

#include "base/check.h"
#include "tests/support/fs_fixture.h"

namespace sluice::testing {

namespace {

using testing_support::Files;

InodeNumber Write(const Files& files, const InodeRef& inode, uint64_t offset, size_t bytes) {
  SLUICE_CHECK(files.Write(inode, offset, std::string(bytes, 'x')) == Error::kOk);
  return inode->ino;
}

void Populate(const Files& files, SampleTree* tree) {
  const InodeRef root = files.Root();
  const InodeRef big = *files.Mkdir(root, "big");
  tree->big_directory = big->ino;
  for (int i = 0; i < 600; ++i) {
    SLUICE_CHECK(files.Create(big, "a-name-of-some-length-" + std::to_string(i)).ok());
  }
  const InodeRef directory = *files.Mkdir(root, "dir");
  tree->directory = directory->ino;
  const InodeRef sub = *files.Mkdir(directory, "sub");
  tree->sub = sub->ino;
  tree->other = (*files.Mkdir(directory, "other"))->ino;
  tree->inner = (*files.Mkdir(sub, "inner"))->ino;
  const InodeRef file = *files.Create(directory, "file");
  tree->file = Write(files, file, 0, 20000);
  SLUICE_CHECK(files.Link(file, directory, "again") == Error::kOk);
  const InodeRef fragmented = *files.Create(root, "fragmented");
  for (uint64_t i = 0; i < 12; ++i) {
    tree->fragmented = Write(files, fragmented, i * 2 * kBlockSize, kBlockSize);
  }
  tree->long_symlink = (*files.Symlink(root, "long", std::string(300, 't')))->ino;
  tree->short_symlink = (*files.Symlink(root, "short", "dir/file"))->ino;
  tree->fifo = (*files.Create(root, "fifo", S_IFIFO | 0600))->ino;
}

SampleTree Make() {
  SampleTree tree;
  MkfsOptions mkfs;
  mkfs.journal_blocks = 1024;
  tree.image = testing_support::NewImage(uint64_t{512} << 20, mkfs);
  MountOptions options;
  options.manual = true;
  std::string message;
  auto fs = Filesystem::Mount(tree.image.get(), options, &message);
  SLUICE_CHECK(fs.ok());
  Populate(Files(fs->get()), &tree);
  SLUICE_CHECK((*fs)->Unmount() == Error::kOk);
  return tree;
}

}  // namespace

const SampleTree& TheSampleTree() {
  static const SampleTree* const tree = new SampleTree(Make());
  return *tree;
}

}  // namespace sluice::testing
