// SPDX-License-Identifier: Apache-2.0
#include "format/superblock.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "format/journal_device.h"
#include "tests/format/sample_blocks.h"

namespace sluice::format {
namespace {

using testing::Block;
using testing::SampleSuperblock;

Error ParseAfter(const std::function<void(Superblock*)>& change, std::string* reason,
                 uint64_t blocks = 100000) {
  Superblock super = SampleSuperblock(blocks);
  change(&super);
  Block block;
  SerializeSuperblock(super, super.fixed.backup_group, block);
  Superblock parsed;
  return ParseSuperblock(block, &parsed, reason);
}

TEST(SuperblockTest, RoundTrip) {
  Block block;
  SerializeSuperblock(SampleSuperblock(100000), 3, block);
  Superblock parsed;
  std::string reason;
  ASSERT_EQ(ParseSuperblock(block, &parsed, &reason), Error::kOk) << reason;
  EXPECT_FALSE(parsed.state_was_bad);
  EXPECT_EQ(parsed.fixed.backup_group, 3u);
  EXPECT_EQ(parsed.fixed.block_count, 100000u);
  EXPECT_EQ(parsed.state.mount_count, 7u);
  Block again;
  SerializeSuperblock(parsed, 3, again);
  EXPECT_EQ(block, again);
}

TEST(SuperblockTest, FlippedByteOfSector0IsFound) {
  Block block;
  SerializeSuperblock(SampleSuperblock(100000), 0, block);
  Superblock parsed;
  for (size_t i = 0; i < sizeof(SuperSector0); ++i) {
    block[i] ^= std::byte{1};
    EXPECT_EQ(ParseSuperblock(block, &parsed, nullptr),
              i < 8 ? Error::kUnknownFormat : Error::kCorrupt)
        << "byte " << i;
    block[i] ^= std::byte{1};
  }
}

TEST(SuperblockTest, BadSector1BecomesDefaults) {
  Block block;
  SerializeSuperblock(SampleSuperblock(100000), 0, block);
  for (size_t i = sizeof(SuperSector0); i < 2 * sizeof(SuperSector0); ++i) {
    block[i] ^= std::byte{1};
    Superblock parsed;
    ASSERT_EQ(ParseSuperblock(block, &parsed, nullptr), Error::kOk);
    EXPECT_TRUE(parsed.state_was_bad) << "byte " << i;
    EXPECT_EQ(parsed.state.state, kStateError);
    EXPECT_EQ(parsed.state.mount_count, 0u);
    block[i] ^= std::byte{1};
  }
}

TEST(SuperblockTest, ZeroedAndForeignBlocksAreUnknown) {
  Block block{};
  Superblock parsed;
  std::string reason;
  EXPECT_EQ(ParseSuperblock(block, &parsed, &reason), Error::kUnknownFormat);
  EXPECT_FALSE(reason.empty());
  block.fill(std::byte{0xff});
  EXPECT_EQ(ParseSuperblock(block, &parsed, nullptr), Error::kUnknownFormat);
}

TEST(SuperblockTest, NewerFormatsAreNamed) {
  std::string reason;
  EXPECT_EQ(ParseAfter([](Superblock* s) { s->fixed.version = 2; }, &reason), Error::kNewerFormat);
  EXPECT_NE(reason.find("version 2"), std::string::npos) << reason;
  EXPECT_EQ(ParseAfter([](Superblock* s) { s->fixed.feature_incompat = 0x8000; }, &reason),
            Error::kNewerFormat);
  EXPECT_NE(reason.find("0x8000"), std::string::npos) << reason;
  EXPECT_EQ(ParseAfter([](Superblock* s) { s->fixed.feature_incompat = 2; }, nullptr),
            Error::kNewerFormat);
}

TEST(SuperblockTest, ExternalJournal) {
  const auto external = [](uint32_t runs, uint64_t blocks) {
    return [=](Superblock* s) {
      s->fixed.feature_incompat = kFeatureIncompatExternalJournal;
      s->fixed.journal_run_count = runs;
      ExternalJournalOf(&s->fixed)->log_blocks = blocks;
    };
  };
  std::string reason;
  EXPECT_EQ(ParseAfter(external(0, kMinJournalBlocks), &reason), Error::kOk) << reason;
  EXPECT_EQ(ParseAfter(external(0, kMaxJournalBlocks), &reason), Error::kOk) << reason;
  EXPECT_EQ(ParseAfter(external(1, kMinJournalBlocks), &reason), Error::kCorrupt);
  EXPECT_EQ(ParseAfter(external(0, kMinJournalBlocks - 1), &reason), Error::kCorrupt);
  EXPECT_EQ(ParseAfter(external(0, kMaxJournalBlocks + 1), &reason), Error::kCorrupt);
}

TEST(SuperblockTest, CompatBitsAreNoObstacle) {
  EXPECT_EQ(ParseAfter([](Superblock* s) { s->fixed.feature_compat = ~0u; }, nullptr), Error::kOk);
  Superblock super = SampleSuperblock(100000);
  EXPECT_FALSE(MustBeReadOnly(super));
  super.fixed.feature_ro_compat = 4;
  EXPECT_TRUE(MustBeReadOnly(super));
}

struct BadField {
  const char* name;
  std::function<void(Superblock*)> change;
};

TEST(SuperblockTest, ImpossibleFieldsAreCorruptEvenWithARightChecksum) {
  const BadField fields[] = {
      {"version", [](Superblock* s) { s->fixed.version = 0; }},
      {"block_shift", [](Superblock* s) { s->fixed.block_shift = 10; }},
      {"blocks_per_group", [](Superblock* s) { s->fixed.blocks_per_group = 0; }},
      {"inodes_per_group 0",
       [](Superblock* s) { s->fixed.inodes_per_group = 0, s->fixed.inode_count = 0; }},
      {"inodes_per_group odd",
       [](Superblock* s) { s->fixed.inodes_per_group = 24, s->fixed.inode_count = 24 * 4; }},
      {"inodes_per_group huge",
       [](Superblock* s) { s->fixed.inodes_per_group = 65536, s->fixed.inode_count = 65536 * 4; }},
      {"flex 5", [](Superblock* s) { s->fixed.flex_group_shift = 5; }},
      {"flex 0", [](Superblock* s) { s->fixed.flex_group_shift = 0; }},
      {"flex huge", [](Superblock* s) { s->fixed.flex_group_shift = 64; }},
      {"block_count small", [](Superblock* s) { s->fixed.block_count = 4095; }},
      {"block_count max", [](Superblock* s) { s->fixed.block_count = ~uint64_t{0}; }},
      {"group_count 0", [](Superblock* s) { s->fixed.group_count = 0; }},
      {"group_count huge", [](Superblock* s) { s->fixed.group_count = uint64_t{1} << 32 | 4; }},
      {"inode_count", [](Superblock* s) { s->fixed.inode_count = 1; }},
      {"reserved", [](Superblock* s) { s->fixed.reserved_blocks = 50001; }},
      {"table start", [](Superblock* s) { s->fixed.group_table_start = 2; }},
      {"table blocks", [](Superblock* s) { s->fixed.group_table_blocks = 2; }},
      {"backup 2", [](Superblock* s) { s->fixed.backup_group = 2; }},
      {"backup 9", [](Superblock* s) { s->fixed.backup_group = 9; }},
      {"runs 0", [](Superblock* s) { s->fixed.journal_run_count = 0; }},
      {"runs 5", [](Superblock* s) { s->fixed.journal_run_count = 5; }},
      {"run at 0", [](Superblock* s) { s->fixed.journal_runs[0].start = 0; }},
      {"run outside", [](Superblock* s) { s->fixed.journal_runs[0].start = 99000; }},
      {"run wraps", [](Superblock* s) { s->fixed.journal_runs[0].start = ~uint64_t{0} - 1023; }},
      {"run short", [](Superblock* s) { s->fixed.journal_runs[0].length = 1023; }},
      {"run empty",
       [](Superblock* s) {
         s->fixed.journal_run_count = 2;
         s->fixed.journal_runs[1].start = 90000;
       }},
      {"run long", [](Superblock* s) { s->fixed.journal_runs[0].length = ~uint64_t{0}; }},
      {"runs overlap",
       [](Superblock* s) {
         s->fixed.journal_run_count = 2;
         s->fixed.journal_runs[1].start = s->fixed.journal_runs[0].start + 1023;
         s->fixed.journal_runs[1].length = 1024;
       }},
  };
  for (const BadField& field : fields) {
    std::string reason;
    EXPECT_EQ(ParseAfter(field.change, &reason), Error::kCorrupt) << field.name;
    EXPECT_FALSE(reason.empty()) << field.name;
  }
}

TEST(SuperblockTest, BackupsAreInGroupsOfPowersOf357) {
  std::vector<GroupNumber> found;
  for (GroupNumber group = 0; group < 400; ++group) {
    if (IsBackupGroup(group)) found.push_back(group);
  }
  EXPECT_EQ(found, (std::vector<GroupNumber>{1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343}));
  EXPECT_FALSE(IsBackupGroup(15));
  EXPECT_TRUE(IsBackupGroup(1220703125));
}

}  // namespace
}  // namespace sluice::format
