// SPDX-License-Identifier: Apache-2.0
#include "fs/extent_tree.h"

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <vector>

#include "format/extent.h"
#include "gtest/gtest.h"
#include "tests/alloc/test_image.h"

namespace sluice {
namespace {

constexpr uint64_t kMiB = TestImage::kMiB;
constexpr InodeNumber kIno = 42;

// A file that is nothing but its extent tree, and a map of what it should hold.
class TreeTest : public ::testing::Test {
 protected:
  explicit TreeTest(uint64_t size = 1024 * kMiB, bool metadata = false) : image_(size) {
    format::InitExtentNode(root_.data(), format::kInlineExtents, 0);
    owner_ = {.ino = kIno,
              .generation = 7,
              .metadata = metadata,
              .root = root_.data(),
              .blocks = &blocks_,
              .mutex = &mutex_};
  }

  ExtentTree Tree() { return ExtentTree(owner_, image_.cache.get(), image_.blocks.get()); }
  uint32_t depth() const { return format::ExtentHeaderOf(root_.data())->depth; }

  // Allocates at `goal` and inserts; returns the blocks inserted.
  BlockCount Add(FileBlock logical, BlockNumber goal, BlockCount count, bool unwritten = false) {
    ExtentTree tree = Tree();
    Attempt attempt;
    for (;;) {
      const Error error = tree.PrepareInsert(attempt, logical);
      if (error == Error::kOk) break;
      SLUICE_CHECK(WouldBlock(error) && attempt.Wait() == Error::kOk);
    }
    BlockReservation metadata = image_.Reserve(goal, tree.InsertBlocks()).value();
    BlockReservation data = image_.Reserve(goal, count).value();
    Handle handle = image_.Start(tree.InsertCredits() + BlockAllocator::kCreditsPerRun);
    const BlockRun run = image_.blocks->Allocate(handle, data, goal, count);
    tree.Insert(handle, metadata, logical, run, unwritten);
    for (BlockCount i = 0; i < run.length; ++i) model_[logical + i] = {run.start + i, unwritten};
    return run.length;
  }

  // Whether the tree holds what the model does.
  void Compare(FileBlock end) {
    const ExtentTree tree = Tree();
    auto expected = model_.begin();
    for (FileBlock at = 0; at < end;) {
      const Mapping found =
          RunBlocking([&](Attempt& attempt) { return tree.Lookup(attempt, at); }).value();
      ASSERT_EQ(found.logical, at);
      ASSERT_GT(found.length, 0u);
      if (found.physical == kNoBlock) {
        ASSERT_TRUE(expected == model_.end() || expected->first >= at + found.length);
      } else {
        for (BlockCount i = 0; i < found.length; ++i, ++expected) {
          ASSERT_TRUE(expected != model_.end());
          ASSERT_EQ(expected->first, at + i);
          ASSERT_EQ(expected->second.physical, found.physical + i);
          ASSERT_EQ(expected->second.unwritten, found.unwritten);
        }
      }
      at += found.length;
    }
    ASSERT_TRUE(expected == model_.end());
  }

  // Removes in steps; returns their number.
  int RemoveFrom(FileBlock from, int max_credits) {
    ExtentTree tree = Tree();
    for (int steps = 0;; ++steps) {
      const ExtentTree::RemovePlan plan = RunBlocking([&](Attempt& attempt) {
                                            return tree.PrepareRemove(attempt, from, max_credits);
                                          }).value();
      if (plan.empty) return steps;
      EXPECT_LE(plan.credits, max_credits);
      EXPECT_GE(plan.from, from);
      {
        // Another attempt than the plan's would do as well: nothing is evicted in this test.
        Handle handle = image_.Start(plan.credits, plan.revokes);
        EXPECT_EQ(tree.Remove(handle, plan, owner_.metadata), Error::kOk);
      }
      model_.erase(model_.lower_bound(plan.from), model_.end());
      if (plan.last) {
        EXPECT_EQ(plan.from, from);
        return steps + 1;
      }
      if (steps % 16 == 0) Compare(model_.empty() ? 10 : model_.rbegin()->first + 10);
    }
  }

  // Changes what is mapped in [first, end), in as many handles as it takes.
  void Change(FileBlock first, FileBlock end, ExtentTree::Change change) {
    ExtentTree tree = Tree();
    for (FileBlock at = first; at < end;) {
      const Mapping found =
          RunBlocking([&](Attempt& attempt) { return tree.Lookup(attempt, at); }).value();
      if (found.physical == kNoBlock) {
        at += found.length;
        continue;
      }
      Attempt attempt;
      Result<ExtentTree::ChangePlan> plan = Error::kWouldBlock;
      while (WouldBlock(plan = tree.PrepareChange(attempt, at, end, change))) {
        ASSERT_EQ(attempt.Wait(), Error::kOk);
      }
      ASSERT_TRUE(plan.ok());
      BlockReservation blocks;
      if (plan->tree_blocks > 0) blocks = image_.Reserve(0, plan->tree_blocks).value();
      Handle handle = image_.Start(plan->credits, plan->revokes);
      ASSERT_EQ(tree.ApplyChange(handle, blocks, *plan), Error::kOk);
      for (; at < plan->end; ++at) {
        if (change == ExtentTree::Change::kHole) {
          model_.erase(at);
        } else {
          model_[at].unwritten = change == ExtentTree::Change::kUnwritten;
        }
      }
    }
  }

  struct Where {
    BlockNumber physical;
    bool unwritten;
  };

  TestImage image_;
  Mutex mutex_;
  std::array<std::byte, format::kExtentRootSize> root_;
  uint64_t blocks_ = 0;
  ExtentOwner owner_;
  std::map<FileBlock, Where> model_;
};

class MetadataTreeTest : public TreeTest {
 protected:
  MetadataTreeTest() : TreeTest(64 * kMiB, /*metadata=*/true) {}
};

TEST_F(TreeTest, AnEmptyFileIsOneHole) {
  Attempt attempt;
  const Mapping hole = Tree().Lookup(attempt, 5).value();
  EXPECT_EQ(hole.physical, kNoBlock);
  EXPECT_EQ(hole.length, format::kMaxFileBlocks - 5);
  EXPECT_EQ(Tree().Lookup(attempt, format::kMaxFileBlocks).error(), Error::kFileTooLarge);
  EXPECT_TRUE(Tree().PrepareRemove(attempt, 0, 30)->empty);
}

TEST_F(TreeTest, ContiguousInsertionsMergeIntoOneExtent) {
  const BlockNumber base = image_.geometry.GroupStart(3) + 100;
  Add(10, base + 10, 5);
  Add(20, base + 20, 5);  // a hole between
  Add(15, base + 15, 5);  // joins both
  EXPECT_EQ(format::ExtentHeaderOf(root_.data())->entries, 1u);
  Add(5, base + 5, 5);  // joins on the left of the extent
  EXPECT_EQ(format::ExtentHeaderOf(root_.data())->entries, 1u);
  Add(25, base + 25, 5, /*unwritten=*/true);  // another kind: does not join
  EXPECT_EQ(format::ExtentHeaderOf(root_.data())->entries, 2u);
  Compare(40);
  EXPECT_EQ(blocks_, 25u);
}

TEST_F(TreeTest, ExtentsStayWithinTheMaximumLength) {
  BlockNumber goal = image_.geometry.GroupStart(2) + 10;
  for (FileBlock at = 0; at < 3 * format::kMaxExtentLength;) {
    const BlockCount added = Add(at, goal, 10000);
    goal = model_.rbegin()->second.physical + 1;
    at += added;
  }
  Compare(4 * format::kMaxExtentLength);
}

TEST_F(TreeTest, AFileWrittenInOrderHasFullNodes) {
  const BlockNumber base = image_.geometry.GroupStart(3) + 100;
  constexpr int kExtents = 3000;
  for (int i = 0; i < kExtents; ++i) Add(2 * i, base + 2 * i, 1);
  EXPECT_EQ(depth(), 2u);
  // Twelve leaves, their parent.
  EXPECT_EQ(blocks_, kExtents + (kExtents + 251) / 252 + 1u);
  Compare(2 * kExtents + 10);
}

TEST_F(TreeTest, TheNodesSurviveAReopening) {
  const BlockNumber base = image_.geometry.GroupStart(3) + 100;
  for (int i = 0; i < 2000; ++i) Add(10000 - 2 * i, base + 3 * i, 1, i % 3 == 0);
  image_.Reopen();
  Compare(10010);
  EXPECT_EQ(RemoveFrom(9000, 40), 1);
  image_.Reopen();
  Compare(10010);
}

TEST_F(TreeTest, ADamagedNodeIsCorrupt) {
  const BlockNumber base = image_.geometry.GroupStart(3) + 100;
  for (int i = 0; i < 10; ++i) Add(2 * i, base + 2 * i, 1);
  ASSERT_EQ(depth(), 1u);
  const BlockNumber node = format::ExtentIndexesOf(root_.data())[0].child;
  image_.Close();
  image_.Damage(node, 200);
  image_.Open();
  const auto lookup = [&](Attempt& attempt) { return Tree().Lookup(attempt, 0); };
  EXPECT_EQ(RunBlocking(lookup).error(), Error::kCorrupt);
  // Another owner's node does not pass either.
  image_.Close();
  image_.Damage(node, 200);
  image_.Open();
  owner_.generation = 8;
  EXPECT_EQ(RunBlocking(lookup).error(), Error::kCorrupt);
  owner_.generation = 7;
}

TEST_F(TreeTest, StructureIsCheckedBehindARightChecksum) {
  const BlockNumber base = image_.geometry.GroupStart(3) + 100;
  for (int i = 0; i < 10; ++i) Add(2 * i, base + 2 * i, 1);
  const BlockNumber block = format::ExtentIndexesOf(root_.data())[0].child;
  {
    BufferRef node =
        image_.cache
            ->GetBlocking(block,
                          {.kind = format::BlockKind::kExtent, .owner = kIno, .generation = 7})
            .value();
    Handle handle = image_.Start(1);
    BlockEdit edit = handle.Edit(node);
    format::ExtentsOf(edit.data() + format::kExtentNodeOffset)[3].logical = 100;
  }
  image_.Reopen();
  EXPECT_EQ(RunBlocking([&](Attempt& attempt) { return Tree().Lookup(attempt, 0); }).error(),
            Error::kCorrupt);
}

TEST_F(TreeTest, AnExtentOnFixedMetadataIsCorrupt) {
  format::Extent* extent = format::ExtentsOf(root_.data());
  format::ExtentHeaderOf(root_.data())->entries = 1;
  extent->logical = 0;
  extent->length = 1;
  extent->flags = 0;
  extent->physical = image_.geometry.InodeTable(0);
  Attempt attempt;
  EXPECT_EQ(Tree().Lookup(attempt, 0).error(), Error::kCorrupt);
  EXPECT_EQ(Tree().PrepareRemove(attempt, 0, 30).error(), Error::kCorrupt);
}

TEST_F(TreeTest, APartOfAnExtentCanBeRemoved) {
  const BlockNumber base = image_.geometry.GroupStart(3) + 100;
  const BlockCount free = image_.blocks->available(true);
  Add(0, base, 100);
  EXPECT_EQ(RemoveFrom(30, 30), 1);
  Compare(110);
  EXPECT_EQ(blocks_, 30u);
  image_.Commit();
  EXPECT_EQ(image_.blocks->available(true), free - 30);
  EXPECT_EQ(RemoveFrom(30, 30), 0);
}

// Inserts in random order, removals of random tails, reopenings: against the model.
TEST_F(TreeTest, AgreesWithAModel) {
  std::mt19937 random(3);
  const BlockCount free = image_.blocks->available(true);
  for (int round = 0; round < 6; ++round) {
    for (int i = 0; i < 1500; ++i) {
      const FileBlock at = random() % 20000;
      const auto next = model_.lower_bound(at);
      if (next != model_.end() && next->first == at) continue;
      const BlockCount room = next == model_.end() ? 100 : next->first - at;
      Attempt attempt;
      const Mapping hole =
          RunBlocking([&](Attempt& lookup) { return Tree().Lookup(lookup, at); }).value();
      ASSERT_EQ(hole.physical, kNoBlock);
      const BlockNumber goal = image_.geometry.GroupStart(2) + (random() % 4 == 0 ? random() : at);
      Add(at, goal, 1 + random() % std::min({room, hole.length, BlockCount{8}}), random() % 2 == 0);
    }
    Compare(25000);
    RemoveFrom(random() % 20000, 20 + static_cast<int>(random() % 20));
    Compare(25000);
    image_.Reopen();
    Compare(25000);
  }
  RemoveFrom(0, 25);
  EXPECT_EQ(depth(), 0u);
  EXPECT_EQ(blocks_, 0u);
  image_.Commit();
  EXPECT_EQ(image_.blocks->available(true), free);
  EXPECT_EQ(image_.VerifyGroups(), Error::kOk);
}

TEST_F(TreeTest, APartOfAnExtentChangesItsKindAndJoinsItsLike) {
  const BlockNumber base = image_.geometry.GroupStart(3) + 100;
  Add(0, base, 100, /*unwritten=*/true);
  const auto entries = [&] { return uint32_t{format::ExtentHeaderOf(root_.data())->entries}; };
  Change(40, 50, ExtentTree::Change::kWritten);
  EXPECT_EQ(entries(), 3u);
  Change(50, 60, ExtentTree::Change::kWritten);  // joins on its left
  EXPECT_EQ(entries(), 3u);
  Change(30, 40, ExtentTree::Change::kWritten);  // joins on its right
  EXPECT_EQ(entries(), 3u);
  Compare(110);
  Change(0, 30, ExtentTree::Change::kWritten);
  Change(60, 100, ExtentTree::Change::kWritten);
  EXPECT_EQ(entries(), 1u);
  Compare(110);
  EXPECT_EQ(blocks_, 100u);
  Change(10, 20, ExtentTree::Change::kHole);
  EXPECT_EQ(entries(), 2u);
  EXPECT_EQ(blocks_, 90u);
  Compare(110);
}

TEST_F(TreeTest, APunchedTreeGivesItsNodesBack) {
  const BlockNumber base = image_.geometry.GroupStart(3) + 100;
  const BlockCount free = image_.blocks->available(true);
  for (int i = 0; i < 1500; ++i) Add(2 * i, base + 2 * i, 1);
  ASSERT_EQ(depth(), 2u);
  Change(600, 1200, ExtentTree::Change::kHole);  // some leaves go, others lose a part
  Compare(3010);
  image_.Reopen();
  Compare(3010);
  Change(0, 600, ExtentTree::Change::kHole);
  Change(1200, 3000, ExtentTree::Change::kHole);
  EXPECT_EQ(depth(), 0u);
  EXPECT_EQ(blocks_, 0u);
  image_.Commit();
  EXPECT_EQ(image_.blocks->available(true), free);
  EXPECT_EQ(image_.VerifyGroups(), Error::kOk);
}

// Single blocks of long extents change at random, so that nodes of each level split; then
// insertions into the holes; all against the model.
TEST_F(TreeTest, ChangesAgreeWithAModel) {
  std::mt19937 random(11);
  const BlockCount free = image_.blocks->available(true);
  const BlockNumber base = image_.geometry.GroupStart(2) + 100;
  for (FileBlock at = 0; at < 20000;) at += Add(at, base + at, 5000, at % 2 == 0);
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 1500; ++i) {
      const FileBlock at = random() % 20000;
      const FileBlock end = at + 1 + random() % (i % 50 == 0 ? 700 : 3);
      Change(at, end, static_cast<ExtentTree::Change>(random() % 3));
      if (i % 20 == 0) image_.Commit();
    }
    Compare(25000);
    for (int i = 0; i < 300; ++i) {
      const FileBlock at = random() % 20000;
      const Mapping hole =
          RunBlocking([&](Attempt& lookup) { return Tree().Lookup(lookup, at); }).value();
      if (hole.physical == kNoBlock) Add(at, 0, std::min<BlockCount>(hole.length, 3), i % 2 == 0);
    }
    image_.Reopen();
    Compare(25000);
  }
  EXPECT_GE(depth(), 2u);
  Change(0, 25000, ExtentTree::Change::kHole);
  EXPECT_EQ(depth(), 0u);
  EXPECT_EQ(blocks_, 0u);
  image_.Commit();
  EXPECT_EQ(image_.blocks->available(true), free);
  EXPECT_EQ(image_.VerifyGroups(), Error::kOk);
}

// A hundred thousand extents of one block, none next to another, in random order; then all of it
// freed with as few credits as a step needs.
TEST_F(TreeTest, AHundredThousandExtents) {
  constexpr uint32_t kExtents = 100000;
  const BlockCount free = image_.blocks->available(true);
  std::vector<uint32_t> order(kExtents);
  for (uint32_t i = 0; i < kExtents; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(5));
  for (uint32_t i = 0; i < kExtents; ++i) {
    Add(2 * order[i], image_.geometry.GroupStart(2) + i, 1);
    if (i % 5000 == 0) image_.Commit();
  }
  EXPECT_GE(depth(), 2u);
  Compare(2 * kExtents);
  image_.Reopen();
  Compare(2 * kExtents);
  const int steps = RemoveFrom(0, ExtentTree::kMinRemoveCredits);
  EXPECT_GT(steps, 10);
  EXPECT_TRUE(model_.empty());
  EXPECT_EQ(depth(), 0u);
  EXPECT_EQ(blocks_, 0u);
  image_.Commit();
  EXPECT_EQ(image_.blocks->available(true), free);
  EXPECT_EQ(image_.VerifyGroups(), Error::kOk);
}

// Directories' blocks are revoked one by one, so a step takes only a part of a long extent.
TEST_F(MetadataTreeTest, ALongExtentOfMetadataGoesInParts) {
  Add(0, image_.geometry.block_count() - 8000, 5000);
  ASSERT_EQ(format::ExtentHeaderOf(root_.data())->entries, 1u);
  Attempt attempt;
  const ExtentTree::RemovePlan plan = Tree().PrepareRemove(attempt, 0, 30).value();
  EXPECT_FALSE(plan.last);
  EXPECT_GT(plan.from, 0u);
  EXPECT_EQ(static_cast<uint64_t>(plan.revokes), 5000 - plan.from);
  EXPECT_GT(RemoveFrom(0, 30), 2);
  EXPECT_EQ(blocks_, 0u);
}

}  // namespace
}  // namespace sluice
