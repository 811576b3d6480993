// SPDX-License-Identifier: Apache-2.0
#include "alloc/inode_allocator.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "format/inode.h"
#include "gtest/gtest.h"
#include "tests/alloc/test_image.h"

namespace sluice {
namespace {

constexpr uint64_t kMiB = TestImage::kMiB;

// Allocates and gives the record a mode, as the inode's first write-back does.
Result<AllocatedInode> Make(TestImage& image, InodeNumber parent, bool directory) {
  ASSIGN_OR_RETURN(InodeReservation reservation, RunBlocking([&](Attempt& attempt) {
                     return image.inodes->Prepare(attempt, parent, directory);
                   }));
  Handle handle = image.Start(InodeAllocator::kCreditsPerInode);
  AllocatedInode made = image.inodes->Allocate(handle, std::move(reservation), directory);
  BlockEdit edit = handle.Edit(made.table_block);
  format::As<format::Inode>(edit.data() + image.geometry.InodeOffset(made.ino))->mode = 0100644;
  return made;
}

Error Remove(TestImage& image, const AllocatedInode& made, bool directory) {
  RETURN_IF_ERROR(
      RunBlocking([&](Attempt& attempt) { return image.inodes->PrepareFree(attempt, made.ino); }));
  Handle handle = image.Start(InodeAllocator::kCreditsPerInode);
  {
    BlockEdit edit = handle.Edit(made.table_block);
    format::As<format::Inode>(edit.data() + image.geometry.InodeOffset(made.ino))->mode = 0;
  }
  return image.inodes->Free(handle, made.ino, directory);
}

bool IsUsed(TestImage& image, InodeNumber ino) {
  return RunBlocking([&](Attempt& attempt) { return image.inodes->IsUsed(attempt, ino); }).value();
}

TEST(InodeAllocator, FilesLieInTheirParentsGroup) {
  TestImage image(1024 * kMiB);
  const InodeNumber parent = 3 * image.geometry.inodes_per_group() + 5;
  std::set<InodeNumber> seen;
  for (int i = 0; i < 100; ++i) {
    const AllocatedInode made = Make(image, parent, false).value();
    EXPECT_EQ(image.geometry.GroupOfInode(made.ino), 3u);
    EXPECT_TRUE(seen.insert(made.ino).second);
    EXPECT_NE(made.generation, 0u);
    EXPECT_TRUE(IsUsed(image, made.ino));
  }
  EXPECT_EQ(image.groups->Get(3).inode_table_used, 112u);  // 100, in whole table blocks
  EXPECT_EQ(image.groups->Get(3).flags & format::kGroupInodeUninit, 0u);
  image.Reopen();
  for (const InodeNumber ino : seen) EXPECT_TRUE(IsUsed(image, ino));
  EXPECT_FALSE(IsUsed(image, *seen.rbegin() + 1));
  EXPECT_FALSE(IsUsed(image, image.geometry.inode_count() + 1));
  EXPECT_FALSE(IsUsed(image, 0));
}

TEST(InodeAllocator, ANumbersNextLifeHasAnotherGeneration) {
  TestImage image(64 * kMiB);
  InodeNumber ino = 0;
  uint32_t generation = 0;
  for (int life = 0; life < 4; ++life) {
    {
      const AllocatedInode made = Make(image, 1, false).value();
      if (life > 0) {
        ASSERT_EQ(made.ino, ino);
        EXPECT_EQ(made.generation, generation + 1);
      }
      ino = made.ino;
      generation = made.generation;
      ASSERT_EQ(Remove(image, made, false), Error::kOk);
    }
    image.Reopen();
  }
}

TEST(InodeAllocator, RecreatedFilesystemsStartWithOtherGenerations) {
  MkfsOptions other;
  other.checksum_seed = 12345;
  TestImage one(64 * kMiB), two(64 * kMiB, other);
  EXPECT_NE(Make(one, 1, false)->generation, Make(two, 1, false)->generation);
}

TEST(InodeAllocator, FreedNumbersWaitForTheCommit) {
  TestImage image(64 * kMiB);
  const AllocatedInode made = Make(image, 1, false).value();
  image.Commit();
  ASSERT_EQ(Remove(image, made, false), Error::kOk);
  EXPECT_FALSE(IsUsed(image, made.ino));
  EXPECT_TRUE(image.inodes->HasPending());
  EXPECT_EQ(Remove(image, made, false), Error::kCorrupt);
  EXPECT_NE(Make(image, 1, false)->ino, made.ino);
  image.Commit();
  EXPECT_FALSE(image.inodes->HasPending());
  EXPECT_EQ(Make(image, 1, false)->ino, made.ino);
}

TEST(InodeAllocator, AnUnusedReservationGivesItsNumberBack) {
  TestImage image(64 * kMiB);
  const auto prepare = [&](Attempt& attempt) { return image.inodes->Prepare(attempt, 1, false); };
  InodeNumber first;
  {
    const InodeReservation one = RunBlocking(prepare).value();
    const InodeReservation two = RunBlocking(prepare).value();
    first = one.ino();
    EXPECT_EQ(two.ino(), first + 1);
  }
  EXPECT_EQ(RunBlocking(prepare)->ino(), first);
}

// The first claim on a fresh table block creates it, whichever it is.
TEST(InodeAllocator, ClaimsInAFreshBlockMayBeUsedInAnyOrder) {
  TestImage image(1024 * kMiB);
  const InodeNumber parent = 4 * image.geometry.inodes_per_group() + 1;
  std::vector<InodeReservation> claims;
  for (uint32_t i = 0; i < format::kInodesPerBlock; ++i) {
    claims.push_back(RunBlocking([&](Attempt& attempt) {
                       return image.inodes->Prepare(attempt, parent, false);
                     }).value());
  }
  // The seventeenth would move the mark by two blocks: it waits.
  Attempt attempt;
  EXPECT_TRUE(WouldBlock(image.inodes->Prepare(attempt, parent, false)));
  std::reverse(claims.begin(), claims.end());
  for (InodeReservation& claim : claims) {
    Handle handle = image.Start(InodeAllocator::kCreditsPerInode);
    image.inodes->Allocate(handle, std::move(claim), false);
  }
  EXPECT_EQ(image.groups->Get(4).inode_table_used, format::kInodesPerBlock);
  EXPECT_EQ(attempt.Wait(), Error::kOk);
  EXPECT_TRUE(image.inodes->Prepare(attempt, parent, false).ok());
}

TEST(InodeAllocator, EveryInodeCanBeHadAndNotOneMore) {
  MkfsOptions options;
  options.bytes_per_inode = 1 << 17;
  TestImage image(300 * kMiB, options);
  const uint64_t free = image.groups->totals().free_inodes;
  std::set<InodeNumber> seen;
  for (uint64_t i = 0; i < free; ++i) {
    const AllocatedInode made = Make(image, 1, i % 2 == 0).value();
    ASSERT_TRUE(image.geometry.ValidInode(made.ino));
    ASSERT_TRUE(seen.insert(made.ino).second);
  }
  EXPECT_EQ(Make(image, 1, false).error(), Error::kNoSpace);
  EXPECT_EQ(Make(image, 1, true).error(), Error::kNoSpace);
  EXPECT_EQ(image.groups->totals().free_inodes, 0u);
  image.Reopen();
  for (const InodeNumber ino : seen) EXPECT_TRUE(IsUsed(image, ino));
  EXPECT_EQ(Make(image, 1, false).error(), Error::kNoSpace);
}

TEST(InodeAllocator, DirectoriesOfTheRootAreSpread) {
  TestImage image(4096 * kMiB);
  std::map<GroupNumber, int> per_group;
  const GroupNumber groups = image.geometry.group_count();
  for (GroupNumber i = 0; i < groups - 1; ++i) {
    ++per_group[image.geometry.GroupOfInode(Make(image, 1, true)->ino)];
  }
  // The root's own group is the one with a directory already; groups that carry more than their
  // share of the packed metadata have less than average room.
  EXPECT_GE(per_group.size(), groups / 2);
  EXPECT_EQ(image.groups->totals().directories, groups);
}

TEST(InodeAllocator, DeepDirectoriesStayNearTheirParent) {
  TestImage image(4096 * kMiB);
  InodeNumber parent = Make(image, 1, true)->ino;
  const GroupNumber home = image.geometry.GroupOfInode(parent);
  for (int depth = 0; depth < 50; ++depth) {
    parent = Make(image, parent, true)->ino;
    EXPECT_EQ(image.geometry.GroupOfInode(parent), home);
  }
}

TEST(InodeAllocator, ABadBitmapCostsItsGroupOnly) {
  TestImage image(1024 * kMiB);
  const InodeNumber parent = 3 * image.geometry.inodes_per_group() + 5;
  const InodeNumber old = Make(image, parent, false)->ino;
  image.Close();
  image.Damage(image.geometry.InodeBitmap(3), 1);
  image.Open();
  std::vector<GroupNumber> reported;
  image.inodes->SetOnCorrupt([&](GroupNumber group) { reported.push_back(group); });
  EXPECT_EQ(image.geometry.GroupOfInode(Make(image, parent, false)->ino), 4u);
  EXPECT_EQ(
      RunBlocking([&](Attempt& attempt) { return image.inodes->IsUsed(attempt, old); }).error(),
      Error::kCorrupt);
  EXPECT_EQ(reported, std::vector<GroupNumber>{3});
}

TEST(InodeAllocator, ANumberWhoseRecordIsInUseIsNotHandedOut) {
  TestImage image(64 * kMiB);
  const AllocatedInode made = Make(image, 1, false).value();
  {
    // Freed in the bitmap, but its record keeps a mode.
    Handle handle = image.Start(InodeAllocator::kCreditsPerInode);
    ASSERT_EQ(image.inodes->Free(handle, made.ino, false), Error::kOk);
  }
  image.Commit();
  EXPECT_EQ(Make(image, 1, false)->ino, made.ino + 1);
}

TEST(InodeAllocator, ThreadsNeverShareANumber) {
  constexpr int kThreads = 8;
  TestImage image(300 * kMiB, {}, /*manual=*/false);
  std::vector<std::atomic<bool>> used(image.geometry.inode_count() + 1);
  std::atomic<bool> failed{false};
  const uint64_t free = image.groups->totals().free_inodes;
  std::vector<std::thread> threads;
  for (int id = 0; id < kThreads; ++id) {
    threads.emplace_back([&, id] {
      std::vector<AllocatedInode> live;
      for (int step = 0; step < 300; ++step) {
        Result<AllocatedInode> made = Make(image, 1, id == 0);
        if (!made.ok() || used[made->ino].exchange(true)) failed = true;
        if (!made.ok()) return;
        live.push_back(std::move(made).value());
        if (step % 3 == 0) {
          used[live.back().ino] = false;
          if (Remove(image, live.back(), id == 0) != Error::kOk) failed = true;
          live.pop_back();
        }
        if (step % 100 == 0) image.Commit();
      }
      for (const AllocatedInode& inode : live) {
        used[inode.ino] = false;
        if (Remove(image, inode, id == 0) != Error::kOk) failed = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(failed);
  EXPECT_EQ(image.groups->totals().free_inodes, free);
  image.Reopen();
  EXPECT_EQ(image.groups->totals().free_inodes, free);
  EXPECT_EQ(image.groups->totals().directories, 1u);
}

}  // namespace
}  // namespace sluice
