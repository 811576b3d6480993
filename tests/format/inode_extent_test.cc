// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <functional>

#include "format/extent.h"
#include "format/inode.h"
#include "tests/format/sample_blocks.h"

namespace sluice::format {
namespace {

using testing::Block;
using testing::kSeed;
using testing::SampleExtentLeaf;
using testing::SampleInode;

constexpr BlockCount kBlocks = 100000;

Error CheckNode(const Block& block, int depth = -1, FileBlock first = 0,
                FileBlock end = kMaxFileBlocks) {
  const char* reason = nullptr;
  const Error error = CheckExtentNode(block.data() + kExtentNodeOffset, kExtentsPerBlock, depth,
                                      first, end, kBlocks, &reason);
  EXPECT_EQ(error != Error::kOk, reason != nullptr);
  return error;
}

ExtentHeader* HeaderIn(Block* block) { return ExtentHeaderOf(block->data() + kExtentNodeOffset); }
Extent* ExtentsIn(Block* block) { return ExtentsOf(block->data() + kExtentNodeOffset); }
ExtentIndex* IndexesIn(Block* block) { return ExtentIndexesOf(block->data() + kExtentNodeOffset); }

TEST(ExtentTest, AcceptsEmptyAndFullLeaves) {
  EXPECT_EQ(CheckNode(SampleExtentLeaf(0)), Error::kOk);
  EXPECT_EQ(CheckNode(SampleExtentLeaf(kExtentsPerBlock), 0), Error::kOk);
}

TEST(ExtentTest, KeepsToTheGivenRange) {
  const Block block = SampleExtentLeaf(10);  // logical 0..189
  EXPECT_EQ(CheckNode(block, 0, 0, 190), Error::kOk);
  EXPECT_EQ(CheckNode(block, 0, 0, 189), Error::kCorrupt);
  EXPECT_EQ(CheckNode(block, 0, 1), Error::kCorrupt);
  EXPECT_EQ(CheckNode(block, 1), Error::kCorrupt);
}

TEST(ExtentTest, LastBlockOfTheLargestFile) {
  Block block = SampleExtentLeaf(1);
  ExtentsIn(&block)[0].logical = 0xffffffff;
  ExtentsIn(&block)[0].length = 1;
  EXPECT_EQ(CheckNode(block), Error::kOk);
  ExtentsIn(&block)[0].length = 2;
  EXPECT_EQ(CheckNode(block), Error::kCorrupt);
}

TEST(ExtentTest, RefusesImpossibleLeaves) {
  const std::vector<std::pair<const char*, std::function<void(Block*)>>> changes = {
      {"magic", [](Block* b) { HeaderIn(b)->magic = 0; }},
      {"entries", [](Block* b) { HeaderIn(b)->entries = 253; }},
      {"capacity", [](Block* b) { HeaderIn(b)->capacity = 4; }},
      {"depth", [](Block* b) { HeaderIn(b)->depth = 6; }},
      {"length 0", [](Block* b) { ExtentsIn(b)[3].length = 0; }},
      {"length 32769", [](Block* b) { ExtentsIn(b)[9].length = 32769; }},
      {"flags", [](Block* b) { ExtentsIn(b)[3].flags = 2; }},
      {"overlap", [](Block* b) { ExtentsIn(b)[3].length = 21; }},
      {"order", [](Block* b) { ExtentsIn(b)[3].logical = 1; }},
      {"physical 0", [](Block* b) { ExtentsIn(b)[3].physical = 0; }},
      {"physical end", [](Block* b) { ExtentsIn(b)[3].physical = kBlocks - 9; }},
      {"physical wraps", [](Block* b) { ExtentsIn(b)[3].physical = ~uint64_t{0} - 4; }},
  };
  for (const auto& [name, change] : changes) {
    Block block = SampleExtentLeaf(10);
    change(&block);
    EXPECT_EQ(CheckNode(block), Error::kCorrupt) << name;
  }
}

TEST(ExtentTest, ChecksIndexNodes) {
  Block block = SampleExtentLeaf(0);
  HeaderIn(&block)->depth = 2;
  EXPECT_EQ(CheckNode(block), Error::kCorrupt) << "an index without entries";
  HeaderIn(&block)->entries = 3;
  for (uint32_t i = 0; i < 3; ++i) {
    IndexesIn(&block)[i].logical = 100 * i;
    IndexesIn(&block)[i].child = 700 + i;
  }
  EXPECT_EQ(CheckNode(block, 2, 0, 201), Error::kOk);
  EXPECT_EQ(CheckNode(block, 2, 0, 200), Error::kCorrupt);
  EXPECT_EQ(CheckNode(block, 2, 1), Error::kCorrupt);
  IndexesIn(&block)[2].logical = 100;
  EXPECT_EQ(CheckNode(block), Error::kCorrupt) << "same key twice";
  IndexesIn(&block)[2].logical = 101;
  IndexesIn(&block)[2].child = kBlocks;
  EXPECT_EQ(CheckNode(block), Error::kCorrupt) << "child outside the image";
  IndexesIn(&block)[2].child = 0;
  EXPECT_EQ(CheckNode(block), Error::kCorrupt) << "child 0";
}

TEST(InodeTest, SealedInodeIsGood) {
  const char* reason = nullptr;
  EXPECT_EQ(CheckInode(kSeed, 12, kBlocks, SampleInode(12), &reason), Error::kOk) << reason;
}

TEST(InodeTest, AtAnotherNumberItIsBad) {
  EXPECT_EQ(CheckInode(kSeed, 13, kBlocks, SampleInode(12), nullptr), Error::kCorrupt);
  EXPECT_EQ(CheckInode(kSeed + 1, 12, kBlocks, SampleInode(12), nullptr), Error::kCorrupt);
}

TEST(InodeTest, EveryFlippedByteIsFound) {
  Inode inode = SampleInode(12);
  std::byte* bytes = reinterpret_cast<std::byte*>(&inode);
  for (size_t i = 0; i < sizeof(inode); ++i) {
    bytes[i] ^= std::byte{0x80};
    EXPECT_EQ(CheckInode(kSeed, 12, kBlocks, inode, nullptr), Error::kCorrupt) << "byte " << i;
    bytes[i] ^= std::byte{0x80};
  }
}

TEST(InodeTest, FreeInodesPassOnlyWhenSealed) {
  Inode inode;
  std::memset(&inode, 0, sizeof(inode));
  EXPECT_EQ(CheckInode(kSeed, 12, kBlocks, inode, nullptr), Error::kCorrupt);
  SealInode(kSeed, 12, &inode);
  EXPECT_EQ(CheckInode(kSeed, 12, kBlocks, inode, nullptr), Error::kOk);
}

TEST(InodeTest, TableSealsEachRecordForItsNumber) {
  Block block{};
  SealInodeTable(kSeed, 33, block);
  for (uint32_t i = 0; i < kInodesPerBlock; ++i) {
    const Inode* inode = As<Inode>(block.data() + i * kInodeSize);
    EXPECT_EQ(CheckInode(kSeed, 33 + i, kBlocks, *inode, nullptr), Error::kOk);
    EXPECT_EQ(CheckInode(kSeed, 34 + i, kBlocks, *inode, nullptr), Error::kCorrupt);
  }
}

Error CheckChanged(const std::function<void(Inode*)>& change) {
  Inode inode = SampleInode(12);
  change(&inode);
  SealInode(kSeed, 12, &inode);
  const char* reason = nullptr;
  const Error error = CheckInode(kSeed, 12, kBlocks, inode, &reason);
  EXPECT_EQ(error != Error::kOk, reason != nullptr);
  return error;
}

void MakeShortSymlink(Inode* inode, size_t size) {
  inode->mode = S_IFLNK | 0777;
  inode->flags = kInodeInlineSymlink;
  inode->size = size;
  std::memset(inode->root, 'x', sizeof(inode->root));
}

TEST(InodeTest, ImpossibleFieldsAreCorruptEvenWithARightChecksum) {
  const std::vector<std::pair<const char*, std::function<void(Inode*)>>> changes = {
      {"type 0", [](Inode* i) { i->mode = 0644; }},
      {"type 15", [](Inode* i) { i->mode = 0170644; }},
      {"flags", [](Inode* i) { i->flags = 0x80000000; }},
      {"inline flag on a file", [](Inode* i) { i->flags = kInodeInlineSymlink; }},
      {"links", [](Inode* i) { i->links = 0x80000000; }},
      {"blocks", [](Inode* i) { i->blocks = kBlocks + 1; }},
      {"xattr", [](Inode* i) { i->xattr_block = kBlocks; }},
      {"size", [](Inode* i) { i->size = kMaxFileSize + 1; }},
      {"root magic", [](Inode* i) { i->root[0] ^= 1; }},
      {"root entries", [](Inode* i) { i->root[2] = 5; }},
      {"directory size", [](Inode* i) { i->mode = S_IFDIR | 0755, i->parent = 1; }},
      {"directory parent", [](Inode* i) { i->mode = S_IFDIR | 0755, i->size = 4096; }},
      {"fifo size", [](Inode* i) { i->mode = S_IFIFO; }},
      {"symlink 0", [](Inode* i) { MakeShortSymlink(i, 0); }},
      {"symlink 81", [](Inode* i) { MakeShortSymlink(i, 81); }},
      {"symlink NUL", [](Inode* i) { MakeShortSymlink(i, 80), i->root[79] = 0; }},
      {"long symlink", [](Inode* i) { i->mode = S_IFLNK, i->size = 4096; }},
  };
  for (const auto& [name, change] : changes) {
    EXPECT_EQ(CheckChanged(change), Error::kCorrupt) << name;
  }
}

TEST(InodeTest, EveryTypeHasAGoodForm) {
  EXPECT_EQ(CheckChanged([](Inode* i) { i->links = 0; }), Error::kOk) << "orphan";
  EXPECT_EQ(CheckChanged([](Inode* i) { i->size = kMaxFileSize; }), Error::kOk);
  EXPECT_EQ(CheckChanged([](Inode* i) {
              i->mode = S_IFDIR | 01755;
              i->size = 4096;
              i->parent = 1;
            }),
            Error::kOk);
  EXPECT_EQ(CheckChanged([](Inode* i) { MakeShortSymlink(i, 80); }), Error::kOk);
  EXPECT_EQ(CheckChanged([](Inode* i) { i->mode = S_IFLNK | 0777, i->size = 4095; }), Error::kOk);
  for (const uint16_t type : {S_IFCHR, S_IFBLK, S_IFIFO, S_IFSOCK}) {
    EXPECT_EQ(CheckChanged([type](Inode* i) { i->mode = type, i->size = 0; }), Error::kOk);
  }
}

}  // namespace
}  // namespace sluice::format
