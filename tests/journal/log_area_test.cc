// SPDX-License-Identifier: Apache-2.0
#include "journal/log_area.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/aligned_buffer.h"
#include "block/memory_device.h"
#include "tests/journal/journal_fixture.h"

namespace sluice {
namespace {

void Damage(MemoryDevice* device, const LogArea& log, uint64_t index, uint64_t byte) {
  AlignedBuffer block(kBlockSize);
  uint64_t contiguous = 0;
  const uint64_t offset = log.DeviceOffset(index, &contiguous);
  ASSERT_EQ(device->Read(offset, block.span()), Error::kOk);
  block.data()[byte] ^= std::byte{1};
  ASSERT_EQ(device->Write(offset, block.span()), Error::kOk);
}

TEST(LogAreaTest, MapsBothRuns) {
  const LogArea log = TestLog();
  uint64_t contiguous = 0;
  EXPECT_EQ(log.blocks(), 1024u);
  EXPECT_EQ(log.DeviceOffset(0, &contiguous), 2000u * kBlockSize);
  EXPECT_EQ(contiguous, 601u);
  EXPECT_EQ(log.DeviceOffset(600, &contiguous), 2600u * kBlockSize);
  EXPECT_EQ(contiguous, 1u);
  EXPECT_EQ(log.DeviceOffset(601, &contiguous), 1000u * kBlockSize);
  EXPECT_TRUE(log.Contains(1000));
  EXPECT_TRUE(log.Contains(2600));
  EXPECT_FALSE(log.Contains(2601));
  EXPECT_FALSE(log.Contains(999));
}

TEST(LogAreaTest, WritesSlotsInTurnAndSurvivesDamageToTheNewer) {
  MemoryDevice device(kTestBlocks * kBlockSize);
  EXPECT_EQ(TestLog().ReadState(&device), Error::kCorrupt);
  FormatLog(&device, 5);
  for (Tid tid = 6; tid < 10; ++tid) {
    LogArea log = TestLog();
    ASSERT_EQ(log.ReadState(&device), Error::kOk);
    const uint64_t generation = log.state.generation;
    EXPECT_EQ(log.state.tail_tid, tid - 1);
    log.state.tail_tid = tid;
    ASSERT_EQ(log.WriteState(&device), Error::kOk);
    EXPECT_EQ(log.state.generation, generation + 1);
  }
  // Generations 3..6 went to slots 0, 1, 0, 1.
  Damage(&device, TestLog(), 1, 48);
  LogArea log = TestLog();
  ASSERT_EQ(log.ReadState(&device), Error::kOk);
  EXPECT_EQ(log.state.tail_tid, 8u);
  log.state.tail_tid = 20;
  ASSERT_EQ(log.WriteState(&device), Error::kOk);
  Damage(&device, TestLog(), 0, 48);
  LogArea again = TestLog();
  ASSERT_EQ(again.ReadState(&device), Error::kOk);
  EXPECT_EQ(again.state.tail_tid, 20u) << "the good slot must not have been overwritten";
  Damage(&device, TestLog(), 1, 48);
  EXPECT_EQ(again.ReadState(&device), Error::kCorrupt);
}

TEST(LogAreaTest, ReadsAndWritesAcrossRunsAndTheRingsEnd) {
  MemoryDevice device(kTestBlocks * kBlockSize);
  const LogArea log = TestLog();
  for (const uint64_t start : {2u, 598u, 1020u}) {
    AlignedBuffer out(8 * kBlockSize), in(8 * kBlockSize);
    for (size_t i = 0; i < out.size(); ++i) out.data()[i] = static_cast<std::byte>(i / 512 + start);
    ASSERT_EQ(log.WriteBlocks(&device, start, out.span()), Error::kOk);
    ASSERT_EQ(log.ReadBlocks(&device, start, in.span()), Error::kOk);
    EXPECT_EQ(std::memcmp(out.data(), in.data(), out.size()), 0);
    for (uint64_t i = 0; i < 8; ++i) {
      ASSERT_EQ(log.ReadBlocks(&device, log.Advance(start, i), in.span().first(kBlockSize)),
                Error::kOk);
      EXPECT_EQ(std::memcmp(out.data() + i * kBlockSize, in.data(), kBlockSize), 0);
    }
  }
}

TEST(LogAreaTest, IncarnationsDiffer) {
  uint64_t old = 0;
  for (int i = 0; i < 100; ++i) {
    const uint64_t fresh = LogArea::NewIncarnation(old);
    EXPECT_NE(fresh, old);
    EXPECT_NE(fresh, 0u);
    old = fresh;
  }
}

}  // namespace
}  // namespace sluice
