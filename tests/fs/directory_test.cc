// SPDX-License-Identifier: Apache-2.0
//
// Large directories: the tree's growth and splits, lookups, scans while names come and go.
#include <map>
#include <set>

#include "fs/directory_node.h"
#include "tests/support/fs_fixture.h"

namespace sluice {
namespace {

using testing_support::Files;
using testing_support::FsTest;

std::string NameOf(int i) {
  // Lengths from short to long, so that leaves split at different counts.
  return "f" + std::to_string(i) + std::string(static_cast<size_t>(i % 40), 'x');
}

class DirectoryTest : public FsTest {
 protected:
  DirectoryTest() : FsTest(uint64_t{2} << 30, Mkfs()) {}
  static MkfsOptions Mkfs() {
    MkfsOptions options;
    options.bytes_per_inode = 4096;
    options.journal_blocks = 4096;
    return options;
  }
  // Names of one inode, so that a large directory costs no inodes.
  void Fill(const InodeRef& dir, const InodeRef& file, int from, int to) {
    for (int i = from; i < to; ++i) ASSERT_EQ(files().Link(file, dir, NameOf(i)), Error::kOk);
  }
};

TEST_F(DirectoryTest, TwoHundredThousandNames) {
  constexpr int kCount = 200'000;
  InodeRef root = files().Root();
  InodeRef dir = files().Mkdir(root, "d").value();
  InodeRef file = files().Create(root, "file").value();
  Fill(dir, file, 0, kCount);
  EXPECT_EQ(fs_->GetAttributes(file).links, kCount + 1u);
  root = dir = file = nullptr;
  Remount();
  dir = files().Lookup(files().Root(), "d").value();
  file = files().Lookup(files().Root(), "file").value();
  for (int i = 0; i < kCount; ++i) {
    const Result<InodeRef> found = files().Lookup(dir, NameOf(i));
    ASSERT_TRUE(found.ok()) << NameOf(i);
    ASSERT_EQ(*found, file);
  }
  EXPECT_EQ(files().Lookup(dir, "absent").error(), Error::kNotFound);
  std::set<std::string> seen;
  uint64_t last = 0;
  for (const Files::Name& name : files().List(dir)) {
    EXPECT_GT(name.cookie, last);
    last = name.cookie;
    EXPECT_TRUE(seen.insert(name.name).second) << name.name;
  }
  EXPECT_EQ(seen.size(), kCount + 2u);
  for (int i = 0; i < kCount; ++i) ASSERT_EQ(files().Unlink(dir, NameOf(i)), Error::kOk);
  EXPECT_EQ(files().List(dir).size(), 2u);
  const uint64_t size = fs_->GetAttributes(dir).size;
  // Emptied leaves are filled again.
  Fill(dir, file, 0, kCount / 2);
  EXPECT_EQ(fs_->GetAttributes(dir).size, size);
  for (int i = 0; i < kCount / 2; ++i) ASSERT_EQ(files().Unlink(dir, NameOf(i)), Error::kOk);
  EXPECT_EQ(files().Rmdir(files().Root(), "d"), Error::kOk);
}

TEST_F(DirectoryTest, AScanReturnsUntouchedNamesOnceWhileOthersChange) {
  constexpr int kKept = 3000;
  const InodeRef root = files().Root();
  const InodeRef dir = files().Mkdir(root, "d").value();
  const InodeRef file = files().Create(root, "file").value();
  Fill(dir, file, 0, kKept);
  std::map<std::string, int> seen;
  uint64_t cookie = 0;
  int next = kKept;
  for (;;) {
    const std::vector<Files::Name> part = files().List(dir, cookie, 17);
    if (part.empty()) break;
    for (const Files::Name& name : part) ++seen[name.name];
    cookie = part.back().cookie;
    // Others come (and split leaves) and go.
    if (next < kKept + 9000) {
      Fill(dir, file, next, next + 40);
      for (int i = next; i < next + 20; ++i) ASSERT_EQ(files().Unlink(dir, NameOf(i)), Error::kOk);
      next += 40;
    }
  }
  for (int i = 0; i < kKept; ++i) EXPECT_EQ(seen[NameOf(i)], 1) << NameOf(i);
}

TEST(DirectoryNodeTest, InsertRemoveSplitKeepOrder) {
  alignas(8) std::byte leaf[kBlockSize] = {};
  dirnode::InitLeaf(leaf);
  std::map<uint64_t, std::string> model;
  uint64_t state = 1;
  for (int step = 0; step < 20'000; ++step) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t key = 256 + (state >> 33) % 500;
    const std::string name(1 + (state >> 20) % 90, static_cast<char>('a' + state % 26));
    const auto found = model.find(key);
    if (found != model.end()) {
      const uint32_t slot = dirnode::LeafLowerBound(leaf, key);
      ASSERT_EQ(dirnode::EntryName(dirnode::LeafEntry(leaf, slot)), found->second);
      dirnode::LeafRemove(leaf, slot);
      model.erase(found);
    } else if (dirnode::LeafFits(leaf, name.size())) {
      dirnode::LeafInsert(leaf, key, 7, 8, name);
      model[key] = name;
    } else {
      std::byte right[kBlockSize];
      std::byte left[kBlockSize];
      std::memcpy(left, leaf, kBlockSize);
      const uint64_t split = dirnode::LeafSplit(left, right);
      const uint32_t count =
          format::DirNodeOf(left)->count + uint32_t{format::DirNodeOf(right)->count};
      ASSERT_EQ(count, model.size());
      ASSERT_TRUE(dirnode::LeafFits(left, 255) && dirnode::LeafFits(right, 255));
      ASSERT_LT(dirnode::LeafEntry(left, format::DirNodeOf(left)->count - 1u)->key, split);
      ASSERT_EQ(dirnode::LeafEntry(right, 0)->key, split);
      dirnode::LeafRemove(leaf, 0);
      model.erase(model.begin());
    }
    ASSERT_EQ(format::DirNodeOf(leaf)->count, model.size());
  }
  uint32_t slot = 0;
  for (const auto& [key, name] : model) {
    EXPECT_EQ(dirnode::LeafEntry(leaf, slot)->key, key);
    EXPECT_EQ(dirnode::EntryName(dirnode::LeafEntry(leaf, slot)), name);
    ++slot;
  }
}

}  // namespace
}  // namespace sluice
