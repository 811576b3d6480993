// SPDX-License-Identifier: Apache-2.0
#include "alloc/block_allocator.h"

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "alloc/word_bitmap.h"
#include "gtest/gtest.h"
#include "tests/alloc/test_image.h"

namespace sluice {
namespace {

constexpr uint64_t kMiB = TestImage::kMiB;

bool Overlaps(BlockRun a, BlockRun b) {
  return a.start < b.start + b.length && b.start < a.start + a.length;
}

TEST(BlockAllocator, TakesTheGoalAndCountsIt) {
  TestImage image(1024 * kMiB);
  const BlockCount free = image.blocks->available(true);
  const BlockNumber goal = image.geometry.GroupStart(3) + 1000;
  const BlockRun run = image.AllocateRun(goal, 100);
  EXPECT_EQ(run.start, goal);
  EXPECT_EQ(run.length, 100u);
  EXPECT_EQ(image.blocks->available(true), free - 100);
  EXPECT_EQ(image.groups->totals().free_blocks, free - 100);
  // Taken: the same goal gives what lies behind.
  EXPECT_EQ(image.AllocateRun(goal, 10).start, goal + 100);
}

TEST(BlockAllocator, PrefersAWholeRunToTheNearestPieces) {
  TestImage image(1024 * kMiB);
  const BlockNumber base = image.geometry.GroupStart(3) + 1000;
  EXPECT_EQ(image.AllocateRun(base, 200).length, 200u);
  ASSERT_EQ(image.Free({base + 50, 10}), Error::kOk);
  ASSERT_EQ(image.Free({base + 100, 60}), Error::kOk);
  image.Commit();
  EXPECT_EQ(image.AllocateRun(base, 60).start, base + 100);
  EXPECT_EQ(image.AllocateRun(base, 10).start, base + 50);
}

TEST(BlockAllocator, GivesTheLongestWhenNothingIsLongEnough) {
  TestImage image(64 * kMiB);
  const BlockCount free = image.blocks->available(true);
  image.AllocateAll(0, free);
  const BlockNumber base = image.geometry.block_count() - 1000;
  for (const BlockRun hole : {BlockRun{base, 3}, BlockRun{base + 10, 9}, BlockRun{base + 30, 5}}) {
    ASSERT_EQ(image.Free(hole), Error::kOk);
  }
  image.Commit();
  const BlockRun run = image.AllocateRun(base - 10, 17);
  EXPECT_EQ(run.start, base + 10);
  EXPECT_EQ(run.length, 9u);
}

TEST(BlockAllocator, SmallFilesOfAGroupLieOneBehindTheOther) {
  TestImage image(1024 * kMiB);
  BlockNumber expected = 0;
  for (int file = 0; file < 100; ++file) {
    const BlockRun run = image.AllocateRun(image.blocks->GoalForGroup(2), 1 + file % 3);
    if (file > 0) {
      EXPECT_EQ(run.start, expected);
    }
    expected = run.start + run.length;
    EXPECT_EQ(image.geometry.GroupOfBlock(run.start), 2u);
  }
}

TEST(BlockAllocator, CreatesTheBitmapOfAnUninitialisedGroup) {
  TestImage image(1024 * kMiB);
  const GroupNumber group = image.geometry.group_count() - 1;
  ASSERT_NE(image.groups->Get(group).flags & format::kGroupBlockUninit, 0u);
  const BlockRun run = image.AllocateRun(image.geometry.GroupStart(group) + 5, 3);
  EXPECT_EQ(image.geometry.GroupOfBlock(run.start), group);
  EXPECT_EQ(image.groups->Get(group).flags & format::kGroupBlockUninit, 0u);
  EXPECT_EQ(image.VerifyGroups(), Error::kOk);
  image.Reopen();
  EXPECT_EQ(image.VerifyGroups(), Error::kOk);
  EXPECT_FALSE(Overlaps(image.AllocateRun(run.start, 1), run));
}

TEST(BlockAllocator, FreedBlocksAreNotHandedOutBeforeTheCommit) {
  TestImage image(64 * kMiB);
  const BlockCount free = image.blocks->available(true);
  const std::vector<BlockRun> all = image.AllocateAll(0, free);
  image.Commit();
  const BlockRun freed = {all[0].start, 10};
  ASSERT_EQ(image.Free(freed), Error::kOk);
  EXPECT_EQ(image.groups->totals().free_blocks, 10u);
  EXPECT_EQ(image.groups->totals().pending_blocks, 10u);
  EXPECT_EQ(image.blocks->available(true), 0u);
  EXPECT_TRUE(image.blocks->HasPending());
  EXPECT_EQ(image.Reserve(0, 1).error(), Error::kNoSpace);
  EXPECT_EQ(image.VerifyGroups(), Error::kOk);

  image.Commit();
  EXPECT_FALSE(image.blocks->HasPending());
  EXPECT_EQ(image.groups->totals().pending_blocks, 0u);
  EXPECT_EQ(image.blocks->available(true), 10u);
  const BlockRun again = image.AllocateRun(0, 10);
  EXPECT_EQ(again.start, freed.start);
  EXPECT_EQ(again.length, 10u);
}

TEST(BlockAllocator, RefusesToFreeWhatIsFreeOrFixed) {
  TestImage image(1024 * kMiB);
  const BlockRun run = image.AllocateRun(image.geometry.GroupStart(3) + 100, 10);
  const SpaceTotals before = image.groups->totals();
  EXPECT_EQ(image.Free({run.start + 5, 10}), Error::kCorrupt);
  EXPECT_EQ(image.Free({0, 1}), Error::kCorrupt);
  EXPECT_EQ(image.Free({image.geometry.BlockBitmap(2), 1}), Error::kCorrupt);
  EXPECT_EQ(image.Free({image.geometry.block_count() - 1, 5}), Error::kCorrupt);
  EXPECT_EQ(image.Free({image.geometry.GroupStart(6) + 100, 1}), Error::kCorrupt);  // uninitialised
  EXPECT_EQ(image.groups->totals().free_blocks, before.free_blocks);
  ASSERT_EQ(image.Free(run), Error::kOk);
  EXPECT_EQ(image.Free(run), Error::kCorrupt);
}

TEST(BlockAllocator, FreeWithoutAHandleTheCheckAlsoRefusesUnderOne) {
  TestImage image(1024 * kMiB);
  const BlockRun run = image.AllocateRun(image.geometry.GroupStart(3) + 100, 10);
  Handle handle = image.Start(4);
  EXPECT_EQ(image.blocks->Free(handle, {run.start + 5, 10}), Error::kCorrupt);
  EXPECT_EQ(handle.credits_left(), 4);
  EXPECT_EQ(image.blocks->Free(handle, run), Error::kOk);
  EXPECT_EQ(handle.credits_left(), 4);  // both blocks are in this transaction since the allocation
}

TEST(BlockAllocator, FreesARunAcrossGroups) {
  TestImage image(1024 * kMiB);
  const BlockNumber border = image.geometry.GroupStart(6);
  ASSERT_TRUE(image.geometry.IsDataRange(border, 1));
  const BlockRun low = image.AllocateRun(border - 20, 20);
  const BlockRun high = image.AllocateRun(border, 20);
  ASSERT_EQ(low.start + low.length, high.start);
  const BlockCount before = image.groups->totals().free_blocks;
  ASSERT_EQ(image.Free({low.start, 40}), Error::kOk);
  EXPECT_EQ(image.groups->totals().free_blocks, before + 40);
  image.Commit();
  EXPECT_EQ(image.VerifyGroups(), Error::kOk);
}

TEST(BlockAllocator, KeepsTheReserveForThePrivileged) {
  TestImage image(64 * kMiB);
  image.Close();
  image.reserved_blocks = 500;
  image.Open();
  const BlockCount all = image.blocks->available(true);
  EXPECT_EQ(image.blocks->available(false), all - 500);
  EXPECT_EQ(image.Reserve(0, all - 499, false).error(), Error::kNoSpace);
  Result<BlockReservation> user = image.Reserve(0, all - 500, false);
  ASSERT_TRUE(user.ok());
  EXPECT_EQ(image.Reserve(0, 1, false).error(), Error::kNoSpace);
  EXPECT_TRUE(image.Reserve(0, 500, true).ok());
  EXPECT_EQ(image.Reserve(0, 501, true).error(), Error::kNoSpace);
}

TEST(BlockAllocator, AReservationGivesBackWhatItDidNotUse) {
  TestImage image(64 * kMiB);
  const BlockCount free = image.blocks->available(true);
  {
    BlockReservation reservation = image.Reserve(0, free).value();
    EXPECT_EQ(image.blocks->available(true), 0u);
    Handle handle = image.Start(2);
    EXPECT_EQ(image.blocks->Allocate(handle, reservation, 0, 7).length, 7u);
    EXPECT_EQ(reservation.left(), free - 7);
    BlockReservation moved = std::move(reservation);
    EXPECT_EQ(moved.left(), free - 7);
  }
  EXPECT_EQ(image.blocks->available(true), free - 7);
}

TEST(BlockAllocator, EveryLastBlockCanBeAllocated) {
  TestImage image(300 * kMiB);
  const BlockCount free = image.blocks->available(true);
  BlockCount sum = 0;
  for (const BlockRun& run : image.AllocateAll(0, free)) {
    ASSERT_TRUE(image.geometry.IsDataRange(run.start, run.length));
    sum += run.length;
  }
  EXPECT_EQ(sum, free);
  EXPECT_EQ(image.groups->totals().free_blocks, 0u);
  EXPECT_EQ(image.Reserve(0, 1).error(), Error::kNoSpace);
  image.Reopen();
  EXPECT_EQ(image.VerifyGroups(), Error::kOk);
  EXPECT_EQ(image.blocks->available(true), 0u);
}

TEST(BlockAllocator, ABadBitmapCostsItsGroupOnly) {
  TestImage image(1024 * kMiB);
  const BlockRun run = image.AllocateRun(image.geometry.GroupStart(4) + 10, 5);
  image.Close();
  image.Damage(image.geometry.BlockBitmap(4), 4000);
  image.Open();
  std::vector<GroupNumber> reported;
  image.blocks->SetOnCorrupt([&](GroupNumber group) { reported.push_back(group); });
  const BlockCount before = image.blocks->available(true);
  const BlockCount lost = image.groups->Get(4).free_blocks;
  const BlockRun other = image.AllocateRun(run.start, 5);
  EXPECT_NE(image.geometry.GroupOfBlock(other.start), 4u);
  EXPECT_EQ(image.Free(run), Error::kCorrupt);
  EXPECT_EQ(image.blocks->available(true), before - lost - 5);
  EXPECT_EQ(reported, std::vector<GroupNumber>{4});
}

TEST(BlockAllocator, AnUnreadableBitmapCostsItsGroupOnly) {
  TestImage image(1024 * kMiB);
  const BlockRun run = image.AllocateRun(image.geometry.GroupStart(4) + 10, 5);
  image.Close();
  image.Open();
  image.device.FailRange(IoOp::kRead, image.geometry.BlockBitmap(4) * kBlockSize, kBlockSize);
  EXPECT_NE(image.geometry.GroupOfBlock(image.AllocateRun(run.start, 5).start), 4u);
  EXPECT_EQ(image.Free(run), Error::kIo);
  image.device.ClearFaults();
}

TEST(BlockAllocator, ABitmapThatFreesFixedBlocksIsBad) {
  TestImage image(1024 * kMiB);
  // With a right checksum and a right count, so that only the look at the fixed blocks can tell.
  {
    BufferRef bitmap =
        image.cache
            ->GetBlocking(image.geometry.BlockBitmap(0), {.kind = format::BlockKind::kBlockBitmap})
            .value();
    Handle handle = image.Start(2);
    uint64_t checksum;
    {
      BlockEdit edit = handle.Edit(bitmap);
      ClearBits(edit.span(), 0, 1);
      checksum = image.groups->BitmapChecksum(edit.span());
    }
    image.groups->Update(handle, 0, [&](format::GroupDesc& desc) {
      desc.free_blocks = desc.free_blocks + 1;
      desc.block_bitmap_checksum = checksum;
    });
  }
  image.Reopen();
  EXPECT_EQ(RunBlocking([&](Attempt& attempt) { return image.blocks->VerifyGroup(attempt, 0); }),
            Error::kCorrupt);
}

// Allocations and frees against a map of what is in use, with reopenings.
TEST(BlockAllocator, NeverHandsOutABlockTwice) {
  TestImage image(600 * kMiB);
  std::mt19937 random(7);
  std::vector<BlockRun> live;
  std::vector<bool> used(image.geometry.block_count());
  for (int step = 0; step < 6000; ++step) {
    if (random() % 5 < 3 || live.empty()) {
      const BlockCount count = random() % 4 == 0 ? 1 + random() % 3000 : 1 + random() % 20;
      Result<BlockReservation> reservation =
          image.Reserve(random() % image.geometry.block_count(), count);
      if (!reservation.ok()) {
        ASSERT_EQ(reservation.error(), Error::kNoSpace);
        image.Commit();
        continue;
      }
      Handle handle = image.Start(2);
      const BlockRun run = image.blocks->Allocate(handle, *reservation,
                                                  random() % image.geometry.block_count(), count);
      ASSERT_TRUE(image.geometry.IsDataRange(run.start, run.length));
      for (BlockNumber block = run.start; block < run.start + run.length; ++block) {
        ASSERT_FALSE(used[block]) << block;
        used[block] = true;
      }
      live.push_back(run);
    } else {
      std::swap(live[random() % live.size()], live.back());
      const BlockRun run = live.back();
      live.pop_back();
      ASSERT_EQ(image.Free(run), Error::kOk);
      for (BlockNumber block = run.start; block < run.start + run.length; ++block) {
        used[block] = false;
      }
    }
    if (step % 100 == 99) image.Commit();
    if (step % 1000 == 999) {
      ASSERT_EQ(image.VerifyGroups(), Error::kOk);
      image.Reopen();
      ASSERT_EQ(image.VerifyGroups(), Error::kOk);
    }
  }
  for (const BlockRun& run : live) ASSERT_EQ(image.Free(run), Error::kOk);
  image.Commit();
  EXPECT_EQ(image.blocks->available(true), image.groups->totals().free_blocks);
}

// Eight threads on a nearly full image: a claim always turns into blocks, and no block has two
// owners.
TEST(BlockAllocator, ThreadsNeverShareABlockAndClaimsNeverFail) {
  constexpr int kThreads = 8;
  TestImage image(300 * kMiB, {}, /*manual=*/false);
  std::vector<std::atomic<int>> owners(image.geometry.block_count());
  std::atomic<uint64_t> allocated{0};
  std::atomic<bool> failed{false};
  const auto give_back = [&](BlockRun run) {
    for (BlockCount i = 0; i < run.length; ++i) owners[run.start + i] = 0;
    return image.Free(run) == Error::kOk;
  };
  const auto work = [&](int id) {
    std::mt19937 random(static_cast<uint32_t>(id));
    std::vector<BlockRun> live;
    for (int step = 0; step < 400 && !failed; ++step) {
      Result<BlockReservation> reservation =
          image.Reserve(random() % image.geometry.block_count(), 1 + random() % 800);
      while (reservation.ok() && reservation->left() > 0) {
        Handle handle = image.Start(2);
        const BlockRun run = image.blocks->Allocate(
            handle, *reservation, random() % image.geometry.block_count(), reservation->left());
        for (BlockCount i = 0; i < run.length; ++i) {
          if (owners[run.start + i].exchange(id + 1) != 0) failed = true;
        }
        if (run.length == 0) failed = true;
        allocated += run.length;
        live.push_back(run);
      }
      const bool full = !reservation.ok();
      while (!live.empty() && (full || random() % 3 == 0)) {
        if (!give_back(live.back())) failed = true;
        live.pop_back();
      }
      if (step % 50 == 0) image.Commit();
    }
    for (const BlockRun& run : live) {
      if (!give_back(run)) failed = true;
    }
  };
  const BlockCount free = image.blocks->available(true);
  std::vector<std::thread> threads;
  for (int id = 0; id < kThreads; ++id) threads.emplace_back(work, id);
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(failed);
  EXPECT_GT(allocated, free);
  image.Commit();
  EXPECT_EQ(image.blocks->available(true), free);
  EXPECT_EQ(image.VerifyGroups(), Error::kOk);
  image.Reopen();
  EXPECT_EQ(image.VerifyGroups(), Error::kOk);
}

}  // namespace
}  // namespace sluice
