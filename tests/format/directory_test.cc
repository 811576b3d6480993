// SPDX-License-Identifier: Apache-2.0
#include "format/directory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "tests/format/sample_blocks.h"

namespace sluice::format {
namespace {

using testing::Block;
using testing::kHashSeed;
using testing::SampleDirIndex;
using testing::SampleDirLeaf;

Error Check(const Block& block, int level = -1, uint64_t first = 0, uint64_t end = kEndDirKey) {
  const char* reason = nullptr;
  const Error error = CheckDirBlock(kHashSeed, block, level, first, end, 300, &reason);
  EXPECT_EQ(error != Error::kOk, reason != nullptr);
  return error;
}

DirEntry* EntryIn(Block* block, int slot) {
  return As<DirEntry>(block->data() + DirSlotsOf(block->data())[slot]);
}
char* NameIn(Block* block, int slot) { return reinterpret_cast<char*>(EntryIn(block, slot) + 1); }

TEST(DirKeyTest, FitsTheCookieRange) {
  for (int i = 0; i < 1000; ++i) {
    const uint64_t key = DirKey(kHashSeed, std::to_string(i));
    EXPECT_GE(key, kMinDirKey);
    EXPECT_LE(key, kEndDirKey - kDirKeySequences);
    EXPECT_EQ(key % kDirKeySequences, 0u);
  }
  EXPECT_NE(DirKey(kHashSeed, "a"), DirKey(kHashSeed, "b"));
  EXPECT_NE(DirKey(kHashSeed, "a"), DirKey(kHashSeed + 1, "a"));
}

TEST(DirLeafTest, AcceptsLeaves) {
  EXPECT_EQ(Check(SampleDirLeaf({})), Error::kOk);
  EXPECT_EQ(Check(SampleDirLeaf({"a", "file.c", "...", ".x", std::string_view("\xff\x01", 2)}), 0),
            Error::kOk);
  const std::string longest(255, 'n');
  EXPECT_EQ(Check(SampleDirLeaf({longest})), Error::kOk);
}

TEST(DirLeafTest, AcceptsNamesOfEqualHash) {
  Block block = SampleDirLeaf({"same"});
  EntryIn(&block, 0)->key = DirKey(kHashSeed, "same") + 255;
  EXPECT_EQ(Check(block), Error::kOk);
  EntryIn(&block, 0)->key = DirKey(kHashSeed, "same") + 256;
  EXPECT_EQ(Check(block), Error::kCorrupt);
}

TEST(DirLeafTest, AcceptsGarbageThatIsCounted) {
  Block block = SampleDirLeaf({"one", "three"});
  const uint32_t size = sizeof(DirEntry) + EntryIn(&block, 1)->name_length;
  DirNodeOf(block.data())->count = 1;
  EXPECT_EQ(Check(block), Error::kCorrupt);
  DirNodeOf(block.data())->garbage = static_cast<uint16_t>(size);
  EXPECT_EQ(Check(block), Error::kOk);
}

TEST(DirLeafTest, KeepsToTheGivenRange) {
  const Block block = SampleDirLeaf({"name"});
  const uint64_t key = DirKey(kHashSeed, "name");
  EXPECT_EQ(Check(block, 0, key, key + 1), Error::kOk);
  EXPECT_EQ(Check(block, 0, key + 1), Error::kCorrupt);
  EXPECT_EQ(Check(block, 0, 0, key), Error::kCorrupt);
  EXPECT_EQ(Check(block, 1), Error::kCorrupt);
}

TEST(DirLeafTest, RefusesImpossibleLeaves) {
  const std::vector<std::pair<const char*, std::function<void(Block*)>>> changes = {
      {"level", [](Block* b) { DirNodeOf(b->data())->level = 6; }},
      {"count", [](Block* b) { DirNodeOf(b->data())->count = 65535; }},
      {"count 192", [](Block* b) { DirNodeOf(b->data())->count = 192; }},
      {"heap low", [](Block* b) { DirNodeOf(b->data())->heap_start = 49; }},
      {"heap high", [](Block* b) { DirNodeOf(b->data())->heap_start = 4097; }},
      {"heap above an entry", [](Block* b) { DirNodeOf(b->data())->heap_start = 4090; }},
      {"garbage", [](Block* b) { DirNodeOf(b->data())->garbage = 1; }},
      {"slot past the block", [](Block* b) { DirSlotsOf(b->data())[0] = 4078; }},
      {"slot in the header", [](Block* b) { DirSlotsOf(b->data())[0] = 8; }},
      {"slot twice", [](Block* b) { DirSlotsOf(b->data())[0] = DirSlotsOf(b->data())[1]; }},
      {"empty name", [](Block* b) { EntryIn(b, 0)->name_length = 0; }},
      {"long name", [](Block* b) { EntryIn(b, 0)->name_length = 255; }},
      {"slash", [](Block* b) { NameIn(b, 0)[0] = '/'; }},
      {"NUL", [](Block* b) { NameIn(b, 0)[1] = 0; }},
      {"renamed", [](Block* b) { NameIn(b, 0)[0] ^= 1; }},
      {"inode 0", [](Block* b) { EntryIn(b, 1)->inode = 0; }},
      {"type 0", [](Block* b) { EntryIn(b, 1)->type = 0; }},
      {"type 14", [](Block* b) { EntryIn(b, 1)->type = 14; }},
      {"key", [](Block* b) { EntryIn(b, 1)->key = ~uint64_t{0}; }},
  };
  for (const auto& [name, change] : changes) {
    Block block = SampleDirLeaf({"alpha", "beta", "gamma"});
    ASSERT_EQ(Check(block), Error::kOk);
    change(&block);
    EXPECT_EQ(Check(block), Error::kCorrupt) << name;
  }
}

TEST(DirLeafTest, RefusesDotAndDotDot) {
  EXPECT_EQ(Check(SampleDirLeaf({"."})), Error::kCorrupt);
  EXPECT_EQ(Check(SampleDirLeaf({".."})), Error::kCorrupt);
}

TEST(DirLeafTest, RefusesKeysOutOfOrder) {
  Block block = SampleDirLeaf({"alpha", "beta"});
  const uint16_t first = DirSlotsOf(block.data())[0];
  DirSlotsOf(block.data())[0] = DirSlotsOf(block.data())[1];
  DirSlotsOf(block.data())[1] = first;
  EXPECT_EQ(Check(block), Error::kCorrupt);
}

TEST(DirLeafTest, RefusesOverlappingEntries) {
  // A second entry inside the name of the first: every byte is legal, the bytes are shared.
  Block block = SampleDirLeaf({"first-name-long-enough-to-hold-another-entry-inside-of-it", "b"});
  Block copy = block;
  const uint16_t small = DirSlotsOf(block.data())[EntryIn(&block, 0)->name_length == 1 ? 0 : 1];
  DirNodeOf(copy.data())->heap_start = small;
  DirNodeOf(copy.data())->garbage = 0;
  EXPECT_EQ(Check(copy) == Error::kOk, small == DirNodeOf(block.data())->heap_start);
  const int other = EntryIn(&block, 0)->name_length == 1 ? 1 : 0;
  DirSlotsOf(block.data())[other] = static_cast<uint16_t>(small + 1);
  EXPECT_EQ(Check(block), Error::kCorrupt);
}

TEST(DirIndexTest, AcceptsAndRefuses) {
  EXPECT_EQ(Check(SampleDirIndex(1), 1), Error::kOk);
  EXPECT_EQ(Check(SampleDirIndex(kDirIndexCapacity), 1), Error::kOk);
  EXPECT_EQ(Check(SampleDirIndex(2), 2), Error::kCorrupt);
  EXPECT_EQ(Check(SampleDirIndex(2), 1, 1), Error::kCorrupt) << "does not begin with its range";
  EXPECT_EQ(Check(SampleDirIndex(2), 1, 0, uint64_t{1} << 40), Error::kCorrupt);
  const std::vector<std::pair<const char*, std::function<void(Block*)>>> changes = {
      {"count 0", [](Block* b) { DirNodeOf(b->data())->count = 0; }},
      {"count 254", [](Block* b) { DirNodeOf(b->data())->count = 254; }},
      {"heap", [](Block* b) { DirNodeOf(b->data())->heap_start = 4096; }},
      {"garbage", [](Block* b) { DirNodeOf(b->data())->garbage = 1; }},
      {"same key", [](Block* b) { DirIndexesOf(b->data())[2].key = uint64_t{1} << 40; }},
      {"child 0", [](Block* b) { DirIndexesOf(b->data())[2].child = 0; }},
      {"child past the end", [](Block* b) { DirIndexesOf(b->data())[2].child = 300; }},
  };
  for (const auto& [name, change] : changes) {
    Block block = SampleDirIndex(5);
    change(&block);
    EXPECT_EQ(Check(block), Error::kCorrupt) << name;
  }
}

TEST(OrphanTest, CountsItsSlots) {
  Block block{};
  EXPECT_EQ(CheckOrphanBlock(block, 100, nullptr), Error::kOk);
  OrphanSlotsOf(block.data())[505] = 100;
  const char* reason = nullptr;
  EXPECT_EQ(CheckOrphanBlock(block, 100, &reason), Error::kCorrupt);
  EXPECT_NE(reason, nullptr);
  OrphanHeaderOf(block.data())->count = 1;
  EXPECT_EQ(CheckOrphanBlock(block, 100, nullptr), Error::kOk);
  EXPECT_EQ(CheckOrphanBlock(block, 99, nullptr), Error::kCorrupt);
}

}  // namespace
}  // namespace sluice::format
