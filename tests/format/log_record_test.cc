// SPDX-License-Identifier: Apache-2.0
#include "format/log_record.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "format/superblock.h"
#include "tests/format/sample_blocks.h"

namespace sluice::format {
namespace {

using testing::kSeed;
using testing::SampleJournalSuper;

TEST(JournalSuperTest, SealedIsGood) {
  EXPECT_EQ(CheckJournalSuper(kSeed, SampleJournalSuper(), kMinJournalBlocks), Error::kOk);
  EXPECT_EQ(CheckJournalSuper(kSeed, SampleJournalSuper(), kMinJournalBlocks + 1), Error::kCorrupt);
  EXPECT_EQ(CheckJournalSuper(kSeed + 1, SampleJournalSuper(), kMinJournalBlocks), Error::kCorrupt);
}

TEST(JournalSuperTest, EveryFlippedByteIsFound) {
  JournalSuper super = SampleJournalSuper();
  std::byte* bytes = reinterpret_cast<std::byte*>(&super);
  for (size_t i = 0; i < sizeof(super); ++i) {
    bytes[i] ^= std::byte{4};
    EXPECT_EQ(CheckJournalSuper(kSeed, super, kMinJournalBlocks), Error::kCorrupt) << i;
    bytes[i] ^= std::byte{4};
  }
}

TEST(JournalSuperTest, ImpossibleFieldsAreCorruptEvenWithARightChecksum) {
  const std::vector<std::pair<Error, std::function<void(JournalSuper*)>>> changes = {
      {Error::kOk, [](JournalSuper* s) { s->tail_block = 2; }},
      {Error::kOk, [](JournalSuper* s) { s->tail_block = kMinJournalBlocks - 1; }},
      {Error::kCorrupt, [](JournalSuper* s) { s->tail_block = 1; }},
      {Error::kCorrupt, [](JournalSuper* s) { s->tail_block = kMinJournalBlocks; }},
      {Error::kCorrupt, [](JournalSuper* s) { s->log_blocks = kMinJournalBlocks - 1; }},
      {Error::kCorrupt, [](JournalSuper* s) { s->log_blocks = kMaxJournalBlocks + 1; }},
  };
  for (const auto& [expected, change] : changes) {
    JournalSuper super = SampleJournalSuper();
    change(&super);
    SealJournalSuper(kSeed, &super);
    EXPECT_EQ(CheckJournalSuper(kSeed, super, kMinJournalBlocks), expected);
  }
  JournalSuper super = SampleJournalSuper();
  super.log_blocks = 7;
  SealJournalSuper(kSeed, &super);
  EXPECT_EQ(CheckJournalSuper(kSeed, super, 7), Error::kCorrupt) << "below the format's limit";
}

TEST(LogLayoutTest, PayloadsFillTheBlock) {
  static_assert(kTagsPerDescriptor == 168);
  static_assert(kRevokesPerBlock == 505);
  static_assert(kLogPayloadOffset == 56);
  static_assert(kLogRecordOffset + sizeof(LogCommit) <= kBlockSize);
}

}  // namespace
}  // namespace sluice::format
