// SPDX-License-Identifier: Apache-2.0
#include "block/buffer_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "block/attempt.h"
#include "block/memory_device.h"
#include "tests/support/held_device.h"

namespace sluice {
namespace {

using format::BlockIdentity;
using format::BlockKind;

constexpr uint64_t kSeed = 0x5eed;
constexpr BlockIdentity kBitmap = {BlockKind::kBlockBitmap};

BlockIdentity DirectoryOf(InodeNumber owner, uint32_t generation = 1) {
  return {BlockKind::kDirectory, owner, generation};
}

class TestAttachment final : public BufferAttachment {};

void SetAttachment(Buffer& buffer, std::unique_ptr<BufferAttachment> attachment) {
  MutexLock lock(&buffer.mutex());
  buffer.set_attachment(std::move(attachment));
}

class BufferCacheTest : public testing::Test {
 protected:
  // Writes a sealed directory block whose last byte is `value`.
  void WriteDirectory(BlockNumber block, const BlockIdentity& identity, int value) {
    AlignedBuffer bytes(kBlockSize);
    const format::BlockSpan span(bytes.data(), kBlockSize);
    std::memset(bytes.data(), 0, kBlockSize);
    format::InitHeader(span, block, identity);
    span.back() = static_cast<std::byte>(value);
    format::SealBlock(kSeed, span);
    ASSERT_EQ(memory_.Write(block * kBlockSize, span), Error::kOk);
  }

  MemoryDevice memory_{64 << 20};
  HeldDevice device_{&memory_};
};

TEST_F(BufferCacheTest, AMissSaysWhatToWaitFor) {
  WriteDirectory(7, DirectoryOf(12), 42);
  BufferCache cache(&device_, kSeed, 100);
  Attempt attempt;
  EXPECT_EQ(cache.Get(attempt, 7, DirectoryOf(12)).error(), Error::kWouldBlock);
  EXPECT_EQ(memory_.count(IoOp::kRead), 0u);  // a Get never does I/O itself
  Attempt moved = std::move(attempt);         // as to a worker
  EXPECT_EQ(moved.Wait(), Error::kOk);
  auto buffer = cache.Get(moved, 7, DirectoryOf(12));
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ((*buffer)->span().back(), std::byte{42});
  EXPECT_EQ((*buffer)->block(), 7u);
  EXPECT_EQ(memory_.count(IoOp::kRead), 1u);
  EXPECT_EQ(cache.stats().hits, 1u);
  EXPECT_EQ(cache.stats().misses, 1u);
}

TEST_F(BufferCacheTest, TheAttemptPinsWhatItWaitedFor) {
  BufferCache cache(&device_, kSeed, 1);
  Attempt attempt;
  EXPECT_TRUE(WouldBlock(cache.Get(attempt, 7, kBitmap)));
  ASSERT_EQ(attempt.Wait(), Error::kOk);
  for (BlockNumber block = 100; block < 2000; ++block) {
    ASSERT_TRUE(cache.GetBlocking(block, kBitmap).ok());
  }
  EXPECT_TRUE(cache.Get(attempt, 7, kBitmap).ok());
}

TEST_F(BufferCacheTest, AnAbandonedAttemptLeavesTheBlockReadable) {
  WriteDirectory(7, DirectoryOf(12), 1);
  BufferCache cache(&device_, kSeed, 100);
  {
    Attempt attempt;
    EXPECT_TRUE(WouldBlock(cache.Get(attempt, 7, DirectoryOf(12))));
  }
  EXPECT_TRUE(cache.GetBlocking(7, DirectoryOf(12)).ok());
}

TEST_F(BufferCacheTest, ThreadsThatMissOnOneBlockReadItOnce) {
  WriteDirectory(7, DirectoryOf(12), 9);
  BufferCache cache(&device_, kSeed, 100);
  device_.Hold(IoOp::kRead);
  std::atomic<int> missed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      Attempt attempt;
      EXPECT_TRUE(WouldBlock(cache.Get(attempt, 7, DirectoryOf(12))));
      ++missed;
      EXPECT_EQ(attempt.Wait(), Error::kOk);
      auto buffer = cache.Get(attempt, 7, DirectoryOf(12));
      ASSERT_TRUE(buffer.ok());
      EXPECT_EQ((*buffer)->span().back(), std::byte{9});
    });
  }
  while (missed < 8) std::this_thread::yield();
  device_.WaitForHeld(1);
  EXPECT_EQ(device_.held(), 1u);
  device_.Release();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(memory_.count(IoOp::kRead), 1u);
}

TEST_F(BufferCacheTest, WrongBlocksAreCorruptAndAskedAgain) {
  BufferCache cache(&device_, kSeed, 100);
  EXPECT_EQ(cache.GetBlocking(7, DirectoryOf(12)).error(), Error::kCorrupt);  // poison
  WriteDirectory(7, DirectoryOf(12), 1);
  EXPECT_EQ(cache.GetBlocking(7, DirectoryOf(13)).error(), Error::kCorrupt);
  EXPECT_EQ(cache.GetBlocking(7, DirectoryOf(12, 2)).error(), Error::kCorrupt);
  ASSERT_TRUE(cache.GetBlocking(7, DirectoryOf(12)).ok());
  // In memory now, and still not anybody's.
  EXPECT_EQ(cache.GetBlocking(7, DirectoryOf(13)).error(), Error::kCorrupt);
  EXPECT_EQ(cache.GetBlocking(7, DirectoryOf(12, 2)).error(), Error::kCorrupt);
  EXPECT_EQ(cache.GetBlocking(7, {BlockKind::kExtent, 12, 1}).error(), Error::kCorrupt);
  EXPECT_TRUE(cache.GetBlocking(7, DirectoryOf(12)).ok());
}

TEST_F(BufferCacheTest, AWrongReaderDoesNotSpoilARightOne) {
  WriteDirectory(7, DirectoryOf(12), 1);
  BufferCache cache(&device_, kSeed, 100);
  Attempt wrong, right;
  EXPECT_TRUE(WouldBlock(cache.Get(wrong, 7, DirectoryOf(13))));
  EXPECT_TRUE(WouldBlock(cache.Get(right, 7, DirectoryOf(12))));
  EXPECT_EQ(right.Wait(), Error::kOk);
  EXPECT_TRUE(WouldBlock(cache.Get(right, 7, DirectoryOf(12))));
  EXPECT_EQ(right.Wait(), Error::kOk);
  EXPECT_TRUE(cache.Get(right, 7, DirectoryOf(12)).ok());
  EXPECT_EQ(wrong.Wait(), Error::kCorrupt);
}

TEST_F(BufferCacheTest, BlocksOutsideTheDeviceAreCorrupt) {
  BufferCache cache(&device_, kSeed, 100);
  EXPECT_EQ(cache.GetBlocking(device_.size() / kBlockSize, kBitmap).error(), Error::kCorrupt);
  EXPECT_EQ(cache.GetBlocking(~BlockNumber{0}, kBitmap).error(), Error::kCorrupt);
  EXPECT_EQ(cache.GetBlocking(BlockNumber{1} << 52, kBitmap).error(), Error::kCorrupt);
}

TEST_F(BufferCacheTest, AReadErrorIsReportedAndNotKept) {
  BufferCache cache(&device_, kSeed, 100);
  memory_.FailNth(IoOp::kRead, 1);
  EXPECT_EQ(cache.GetBlocking(7, kBitmap).error(), Error::kIo);
  EXPECT_TRUE(cache.GetBlocking(7, kBitmap).ok());
}

TEST_F(BufferCacheTest, MemoryStaysBounded) {
  BufferCache cache(&device_, kSeed, 1000);
  for (BlockNumber block = 0; block < 10000; ++block) {
    ASSERT_TRUE(cache.GetBlocking(block, kBitmap).ok());
  }
  EXPECT_LE(cache.stats().blocks, 1000u);
  EXPECT_GE(cache.stats().blocks, 900u);
  EXPECT_EQ(cache.stats().evictions + cache.stats().blocks, 10000u);
}

TEST_F(BufferCacheTest, UsedBlocksGetASecondChance) {
  BufferCache cache(&device_, kSeed, 1000);
  for (BlockNumber block = 0; block < 5000; ++block) {
    ASSERT_TRUE(cache.GetBlocking(block, kBitmap).ok());
    ASSERT_TRUE(cache.GetBlocking(3, kBitmap).ok());  // used all the time
  }
  const uint64_t misses = cache.stats().misses;
  ASSERT_TRUE(cache.GetBlocking(3, kBitmap).ok());
  EXPECT_EQ(cache.stats().misses, misses);
}

TEST_F(BufferCacheTest, PinnedAndAttachedBuffersStay) {
  BufferCache cache(&device_, kSeed, 64);
  std::vector<BufferRef> pins;
  std::vector<Buffer*> attached;
  for (BlockNumber block = 0; block < 1000; ++block) {
    auto buffer = cache.GetBlocking(block, kBitmap);
    ASSERT_TRUE(buffer.ok());
    if (block % 2 == 0) {
      pins.push_back(*buffer);
    } else {
      SetAttachment(**buffer, std::make_unique<TestAttachment>());
      attached.push_back(buffer->get());
    }
  }
  EXPECT_EQ(cache.stats().evictions, 0u);
  EXPECT_EQ(cache.stats().blocks, 1000u);
  for (size_t i = 0; i < pins.size(); ++i) EXPECT_EQ(pins[i]->block(), i * 2);
  pins.clear();
  for (Buffer* buffer : attached) {
    BufferRef pin(buffer);
    SetAttachment(*buffer, nullptr);
  }
  for (BlockNumber block = 2000; block < 4000; ++block) {
    ASSERT_TRUE(cache.GetBlocking(block, kBitmap).ok());
  }
  EXPECT_LE(cache.stats().blocks, 256u);  // a shard holds 8 at least
}

TEST_F(BufferCacheTest, NewBuffersAreZeroWithAHeaderAndNeverRead) {
  BufferCache cache(&device_, kSeed, 100);
  BufferRef directory = cache.GetNew(7, DirectoryOf(12, 3));
  const auto* header = format::As<format::BlockHeader>(directory->data());
  EXPECT_EQ(header->block, 7u);
  EXPECT_EQ(header->owner, 12u);
  EXPECT_EQ(header->generation, 3u);
  EXPECT_EQ(directory->span().back(), std::byte{0});
  BufferRef bitmap = cache.GetNew(8, kBitmap);
  for (std::byte b : bitmap->span()) ASSERT_EQ(b, std::byte{0});
  Attempt attempt;
  auto again = cache.Get(attempt, 7, DirectoryOf(12, 3));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->get(), directory.get());
  EXPECT_EQ(memory_.count(IoOp::kRead), 0u);
}

TEST_F(BufferCacheTest, ForgottenBuffersAreNotFoundAgain) {
  WriteDirectory(7, DirectoryOf(12), 1);
  BufferCache cache(&device_, kSeed, 100);
  auto old = cache.GetBlocking(7, DirectoryOf(12));
  ASSERT_TRUE(old.ok());
  SetAttachment(**old, std::make_unique<TestAttachment>());
  cache.Forget(7);
  cache.Forget(7);
  WriteDirectory(7, DirectoryOf(13), 2);
  auto fresh = cache.GetBlocking(7, DirectoryOf(13));
  ASSERT_TRUE(fresh.ok());
  EXPECT_NE(fresh->get(), old->get());
  EXPECT_EQ((*old)->span().back(), std::byte{1});  // whoever still has it may look at it
  BufferRef newest = cache.GetNew(7, DirectoryOf(14));
  EXPECT_NE(newest.get(), fresh->get());
  EXPECT_EQ((*fresh)->span().back(), std::byte{2});
  SetAttachment(**old, nullptr);
}

TEST_F(BufferCacheTest, ForgettingABlockThatIsBeingReadIsSafe) {
  WriteDirectory(7, DirectoryOf(12), 1);
  BufferCache cache(&device_, kSeed, 100);
  device_.Hold(IoOp::kRead);
  std::thread reader([&] {
    auto buffer = cache.GetBlocking(7, DirectoryOf(12));
    EXPECT_EQ(buffer.ok() ? Error::kOk : buffer.error(), Error::kCorrupt);
  });
  device_.WaitForHeld(1);
  BufferRef fresh = cache.GetNew(7, DirectoryOf(13));
  device_.Release();
  reader.join();
  Attempt attempt;
  auto found = cache.Get(attempt, 7, DirectoryOf(13));
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->get(), fresh.get());
}

TEST_F(BufferCacheTest, ManyThreadsInASmallCache) {
  constexpr int kThreads = 4;
  for (BlockNumber block = 0; block < 600; ++block) {
    WriteDirectory(block, DirectoryOf(block + 2), static_cast<int>(block % 251));
  }
  BufferCache cache(&device_, kSeed, 256);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      uint64_t state = static_cast<uint64_t>(t) + 1;
      for (int i = 0; i < 5000; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const BlockNumber block = (state >> 33) % 600;
        auto buffer = cache.GetBlocking(block, DirectoryOf(block + 2));
        ASSERT_TRUE(buffer.ok());
        ASSERT_EQ((*buffer)->span().back(), static_cast<std::byte>(block % 251));
        if (i % 7 == 0) {
          // As the journal does, under a pin.
          SetAttachment(**buffer, std::make_unique<TestAttachment>());
          SetAttachment(**buffer, nullptr);
        }
        if (i % 97 == 0) cache.Forget(block);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_LE(cache.stats().blocks, 256u);
}

}  // namespace
}  // namespace sluice
