// SPDX-License-Identifier: Apache-2.0
#include "mkfs/layout.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "mkfs/size_text.h"

namespace sluice {
namespace {

using format::BlockRange;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kTiB = uint64_t{1} << 40;

MkfsLayout Plan(uint64_t size, const MkfsOptions& options = {}) {
  std::string why;
  const Result<MkfsLayout> layout = PlanLayout(size, options, &why);
  EXPECT_TRUE(layout.ok()) << size << ": " << why;
  return layout.ok() ? *layout : MkfsLayout();
}

std::string Refusal(uint64_t size, const MkfsOptions& options = {}) {
  std::string why;
  const Result<MkfsLayout> layout = PlanLayout(size, options, &why);
  EXPECT_FALSE(layout.ok());
  EXPECT_FALSE(why.empty());
  return why;
}

// What every plan must keep, whatever was asked for.
void ExpectSound(const MkfsLayout& layout, uint64_t size) {
  std::array<std::byte, kBlockSize> block;
  format::SerializeSuperblock(layout.super, 0, block);
  format::Superblock parsed;
  std::string reason;
  ASSERT_EQ(format::ParseSuperblock(block, &parsed, &reason), Error::kOk) << reason;
  ASSERT_TRUE(format::Geometry::Make(parsed).ok());
  EXPECT_EQ(layout.geometry.block_count() + layout.dropped_blocks, size >> kBlockShift);
  EXPECT_LT(layout.dropped_blocks, format::kBlocksPerGroup);
  std::vector<BlockRange> used = layout.UsedRanges();
  std::ranges::sort(used, {}, &BlockRange::start);
  for (size_t i = 0; i < used.size(); ++i) {
    EXPECT_TRUE(layout.geometry.IsDataRange(used[i].start, used[i].count));
    if (i > 0) {
      EXPECT_GE(used[i].start, used[i - 1].start + used[i - 1].count);
    }
  }
  EXPECT_GE(layout.journal_blocks(), format::kMinJournalBlocks);
  EXPECT_GE(layout.free_blocks(), layout.geometry.block_count() / 8);
}

TEST(LayoutTest, EverySizeFromTheSmallestOnIsSound) {
  for (uint64_t mib = 16; mib < 600; ++mib) ExpectSound(Plan(mib * kMiB), mib * kMiB);
  for (uint64_t blocks = 0; blocks < 600; ++blocks) {
    const uint64_t size = 16 * 128 * kMiB + blocks * kBlockSize;
    ExpectSound(Plan(size), size);
  }
  for (const uint64_t size : {2 * kGiB, 2 * kGiB + 1, 100 * kGiB, kTiB, 15 * kTiB}) {
    ExpectSound(Plan(size), size / kBlockSize * kBlockSize);
  }
}

TEST(LayoutTest, WishesAreKept) {
  for (const uint64_t inodes : {1u, 16u, 5000u, 65536u, 100000u}) {
    MkfsOptions options;
    options.inodes = inodes;
    const MkfsLayout layout = Plan(kGiB, options);
    ExpectSound(layout, kGiB);
    EXPECT_GE(layout.geometry.inode_count(), inodes);
    EXPECT_LT(layout.geometry.inode_count(), inodes + 16 * layout.geometry.group_count());
  }
  MkfsOptions options;
  options.bytes_per_inode = 4096;
  options.journal_blocks = 5000;
  options.reserved_percent = 0.5;
  options.label = std::string(64, 'L');
  const MkfsLayout layout = Plan(kGiB, options);
  ExpectSound(layout, kGiB);
  EXPECT_EQ(layout.geometry.inodes_per_group(), 32768u);
  EXPECT_EQ(layout.journal_blocks(), 5000u);
  EXPECT_EQ(layout.super.fixed.reserved_blocks, 262144u / 200);
}

TEST(LayoutTest, JournalSizesFollowMke2fs) {
  EXPECT_EQ(DefaultJournalBlocks(4096), 1024u);
  EXPECT_EQ(DefaultJournalBlocks(32767), 1024u);
  EXPECT_EQ(DefaultJournalBlocks(32768), 4096u);
  EXPECT_EQ(DefaultJournalBlocks(262144), 8192u);
  EXPECT_EQ(DefaultJournalBlocks(524288), 16384u);
  EXPECT_EQ(DefaultJournalBlocks(4194304), 32768u);
  EXPECT_EQ(DefaultJournalBlocks(uint64_t{1} << 40), 32768u);
}

TEST(LayoutTest, LargeJournalTakesAWholePlainGroup) {
  const MkfsLayout layout = Plan(40 * kGiB);
  ASSERT_EQ(layout.journal.size(), 1u);
  EXPECT_EQ(layout.journal[0].start % format::kBlocksPerGroup, 0u);
  EXPECT_EQ(layout.journal[0].count, 32768u);
}

TEST(LayoutTest, HugeJournalTakesFewRuns) {
  MkfsOptions options;
  options.journal_blocks = format::kMaxJournalBlocks;
  const MkfsLayout layout = Plan(100 * kGiB, options);
  ExpectSound(layout, 100 * kGiB);
  EXPECT_LE(layout.journal.size(), 4u);
  EXPECT_EQ(layout.journal_blocks(), format::kMaxJournalBlocks);
  EXPECT_EQ(layout.journal_leaf.count, 1u);
}

TEST(LayoutTest, InodeTablesLeaveHalfOfTheirGroupFree) {
  MkfsOptions options;
  options.bytes_per_inode = 4096;
  const MkfsLayout layout = Plan(16 * kGiB, options);
  EXPECT_LE(layout.geometry.FixedBlocks(16).blocks(), format::kBlocksPerGroup / 2);
  EXPECT_LT(layout.geometry.groups_per_flex(), 16u);
  EXPECT_EQ(Plan(16 * kGiB).geometry.groups_per_flex(), 16u);
}

TEST(LayoutTest, ATooShortLastGroupIsLeftOut) {
  const MkfsLayout layout = Plan(129 * 128 * kMiB + 10 * kBlockSize);
  EXPECT_EQ(layout.geometry.group_count(), 129u);
  EXPECT_EQ(layout.dropped_blocks, 10u);
  // Group 16 begins a flexible group: 100 blocks have no room for its inode table.
  EXPECT_EQ(Plan(16 * 128 * kMiB + 100 * kBlockSize).dropped_blocks, 100u);
  EXPECT_EQ(Plan(15 * 128 * kMiB + 100 * kBlockSize).dropped_blocks, 0u);
}

TEST(LayoutTest, WhatDoesNotFitIsRefusedWithAReason) {
  EXPECT_NE(Refusal(0).find("at least 16 MiB"), std::string::npos);
  EXPECT_NE(Refusal(16 * kMiB - 1).find("at least 16 MiB"), std::string::npos);
  EXPECT_NE(Refusal(uint64_t{1} << 53).find("4 PiB"), std::string::npos);
  MkfsOptions options;
  options.size = 2 * kGiB;
  EXPECT_NE(Refusal(kGiB, options).find("larger than the device"), std::string::npos);
  const std::vector<void (*)(MkfsOptions*)> wishes = {
      [](MkfsOptions* o) { o->label = std::string(65, 'x'); },
      [](MkfsOptions* o) { o->inodes = 1000000; },
      [](MkfsOptions* o) { o->inodes = ~uint64_t{0}; },
      [](MkfsOptions* o) { o->bytes_per_inode = 4095; },
      [](MkfsOptions* o) { o->bytes_per_inode = 0; },
      [](MkfsOptions* o) { o->bytes_per_inode = kMaxBytesPerInode + 1; },
      [](MkfsOptions* o) { o->journal_blocks = 1023; },
      [](MkfsOptions* o) { o->journal_blocks = format::kMaxJournalBlocks + 1; },
      [](MkfsOptions* o) { o->journal_blocks = 30000; },
      [](MkfsOptions* o) { o->reserved_percent = 51; },
      [](MkfsOptions* o) { o->reserved_percent = -1; },
      [](MkfsOptions* o) { o->reserved_percent = std::numeric_limits<double>::quiet_NaN(); },
  };
  for (const auto wish : wishes) {
    MkfsOptions bad;
    wish(&bad);
    Refusal(128 * kMiB, bad);
  }
}

TEST(SizeTextTest, ReadsWhatPeopleType) {
  EXPECT_EQ(ParseSize("64m", 1), 64 * kMiB);
  EXPECT_EQ(ParseSize("2G", 1), 2 * kGiB);
  EXPECT_EQ(ParseSize("15TiB", 1), 15 * kTiB);
  EXPECT_EQ(ParseSize("8kb", 1), 8192u);
  EXPECT_EQ(ParseSize("100", 1024), 102400u);
  EXPECT_EQ(ParseSize("0", 1024), 0u);
  for (const char* bad : {"", "-5", "m", "5x", "5mm", "1.5g", " 5", "5 ", "+5", "5ki", "0x10",
                          "99999999999999999999", "9223372036854775808", "16384p"}) {
    EXPECT_EQ(ParseSize(bad, 1), std::nullopt) << bad;
  }
}

TEST(SizeTextTest, WritesWhatPeopleRead) {
  EXPECT_EQ(SizeText(100), "100 bytes");
  EXPECT_EQ(SizeText(16 * kMiB), "16 MiB");
  EXPECT_EQ(SizeText(kGiB + kGiB / 2), "1.5 GiB");
  EXPECT_EQ(SizeText(15 * kTiB), "15 TiB");
}

}  // namespace
}  // namespace sluice
