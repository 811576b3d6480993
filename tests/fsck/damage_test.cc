// SPDX-License-Identifier: Apache-2.0
//
// Good images are clean; flipped bits in every kind of block are seen; random damage never makes
// the checker crash, hang or write.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "fsck/check.h"
#include "mkfs/make_filesystem.h"
#include "tests/fsck/sample_tree.h"
#include "tests/fsck/tree_editor.h"
#include "tests/support/fsck_problems.h"

namespace sluice::testing {
namespace {

using testing_support::FsckProblems;

TEST(CleanTest, FreshImages) {
  for (const uint64_t megabytes : {16, 200, 3072}) {
    MemoryDevice device(megabytes << 20);
    MkfsReport made;
    ASSERT_EQ(MakeFilesystem(&device, {}, &made), Error::kOk) << made.problem;
    device.RefuseWrites();
    CheckReport report;
    ASSERT_EQ(CheckImage(&device, {}, &report), Error::kOk);
    EXPECT_TRUE(report.clean()) << megabytes << " MiB: " << FsckProblems(&device);
    EXPECT_TRUE(report.findings.empty());
    EXPECT_EQ(report.stats.inodes, 10u);
    EXPECT_EQ(report.stats.directories, 1u);
  }
}

TEST(CleanTest, CountsWhatIsThere) {
  const auto device = TheSampleTree().image->Clone();
  device->RefuseWrites();
  CheckReport report;
  ASSERT_EQ(CheckImage(device.get(), {}, &report), Error::kOk);
  EXPECT_TRUE(report.clean()) << FsckProblems(device.get());
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(report.stats.directories, 6u);  // /, big, dir, sub, other, inner
  EXPECT_EQ(report.stats.files, 604u);      // 600, file, fragmented, journal, orphan file
  EXPECT_EQ(report.stats.symlinks, 2u);
  EXPECT_EQ(report.stats.special, 1u);
  EXPECT_EQ(report.stats.names, 611u);
  EXPECT_EQ(device->count(IoOp::kWrite), 0u);
}

TEST(OpenTest, RefusesWhatIsNoImage) {
  MemoryDevice zeros(uint64_t{32} << 20, std::byte{0});
  CheckReport report;
  EXPECT_EQ(CheckImage(&zeros, {}, &report), Error::kUnknownFormat);
  EXPECT_NE(report.message, "");
  MemoryDevice poison(uint64_t{32} << 20);
  EXPECT_EQ(CheckImage(&poison, {}, &report), Error::kUnknownFormat);
  MemoryDevice tiny(512);
  EXPECT_EQ(CheckImage(&tiny, {}, &report), Error::kUnknownFormat);
}

TEST(OpenTest, RefusesNewerFormats) {
  for (const bool incompat : {false, true}) {
    const auto device = TheSampleTree().image->Clone();
    TreeEditor(device.get())
        .EditSuper(
            [&](format::SuperSector0* fixed, format::SuperSector1*) {
              (incompat ? fixed->feature_incompat : fixed->feature_ro_compat) = 1u << 30;
            },
            Seal::kRight);
    CheckReport report;
    EXPECT_EQ(CheckImage(device.get(), {}, &report), Error::kNewerFormat);
    EXPECT_NE(report.message, "");
  }
}

TEST(OpenTest, StopsWhenToldTo) {
  CheckReport report;
  CheckOptions options;
  options.cancelled = [] { return true; };
  EXPECT_EQ(CheckImage(TheSampleTree().image.get(), options, &report), Error::kInterrupted);
}

// The metadata blocks of the sample, one or more of each kind.
std::vector<BlockNumber> MetadataBlocks() {
  const SampleTree& tree = TheSampleTree();
  ImageEditor editor(tree.image.get());
  const format::Geometry& geometry = editor.geometry();
  return {0,
          1,
          geometry.BlockBitmap(0),
          geometry.InodeBitmap(0),
          geometry.InodeTable(0),
          geometry.InodeBlock(tree.fifo),
          geometry.InodeBlock(tree.directory),
          editor.FirstExtentBlock(tree.fragmented),
          editor.MapBlock(format::kRootInode, 0),
          editor.MapBlock(tree.big_directory, 0),
          editor.MapBlock(tree.big_directory, 1),
          editor.MapBlock(tree.big_directory, 2),
          editor.MapBlock(format::kOrphanInode, 0),
          geometry.GroupStart(1)};
}

TEST(FlipTest, EveryKindOfBlock) {
  std::mt19937_64 random(1);
  for (const BlockNumber block : MetadataBlocks()) {
    // Behind the sectors of a superblock nothing is used.
    const bool super = block == 0 || block % format::kBlocksPerGroup == 0;
    for (int i = 0; i < 40; ++i) {
      const auto device = TheSampleTree().image->Clone();
      const uint64_t byte = random() % (super ? kSectorSize : kBlockSize);
      ImageEditor(device.get()).FlipBit(block * kBlockSize + byte, random() % 8);
      CheckReport report;
      ASSERT_EQ(CheckImage(device.get(), {}, &report), Error::kOk);
      EXPECT_GT(report.errors, 0u) << "block " << block << " byte " << byte;
    }
  }
}

uint64_t Seeds() {
  const char* text = std::getenv("SLUICE_FSCK_SEEDS");
  return text == nullptr ? 1000 : std::strtoull(text, nullptr, 10);
}

// Random bytes in random metadata, with the checksums made right half of the time.
void DamageAtRandom(Device* device, uint64_t seed, const std::vector<BlockNumber>& blocks) {
  std::mt19937_64 random(seed);
  const SampleTree& tree = TheSampleTree();
  TreeEditor editor(device);
  const auto scribble = [&](std::byte* bytes, size_t from, size_t size) {
    for (uint64_t i = 0; i < 1 + random() % 6; ++i) {
      bytes[from + random() % (size - from)] =
          random() % 2 == 0 ? std::byte(random()) : std::byte(random() % 4);
    }
  };
  const Seal seal = random() % 4 == 0 ? Seal::kLeave : Seal::kRight;
  for (uint64_t i = 0; i < 1 + random() % 3; ++i) {
    const InodeNumber inos[] = {
        1, 2, 3, tree.big_directory, tree.fragmented, tree.sub, tree.file, tree.long_symlink};
    switch (random() % 5) {
      case 0:
        editor.EditInode(
            inos[random() % std::size(inos)],
            [&](format::Inode* inode) {
              scribble(reinterpret_cast<std::byte*>(inode), 8, sizeof(*inode));
            },
            seal);
        break;
      case 1:
        editor.EditGroup(
            static_cast<GroupNumber>(random() % 4),
            [&](format::GroupDesc* desc) {
              scribble(reinterpret_cast<std::byte*>(desc), 0, sizeof(*desc));
            },
            seal);
        break;
      default:
        // Extent, directory and orphan blocks.
        editor.EditBlock(
            blocks[7 + random() % 6],
            [&](format::BlockSpan block) { scribble(block.data(), 40, 41 + random() % 400); },
            seal);
    }
  }
}

TEST(RandomTest, DamageNeverCrashes) {
  const std::vector<BlockNumber> blocks = MetadataBlocks();
  const uint64_t seeds = Seeds();
  uint64_t seen = 0;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(seed);
    const auto device = TheSampleTree().image->Clone();
    DamageAtRandom(device.get(), seed, blocks);
    device->RefuseWrites();
    CheckReport report;
    CheckOptions options;
    options.find_paths = true;
    ASSERT_EQ(CheckImage(device.get(), options, &report), Error::kOk);
    seen += report.errors > 0 ? 1 : 0;
  }
  EXPECT_GT(seen, seeds / 2);
}

TEST(RandomTest, RawBytesAnywhere) {
  const std::vector<BlockNumber> blocks = MetadataBlocks();
  for (uint64_t seed = 0; seed < Seeds() / 2; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto device = TheSampleTree().image->Clone();
    for (int i = 0; i < 3; ++i) {
      std::vector<std::byte> bytes(kSectorSize);
      for (std::byte& byte : bytes) byte = std::byte(random());
      const uint64_t sector = random() % (kBlockSize / kSectorSize);
      ASSERT_EQ(device->Write(blocks[random() % blocks.size()] * kBlockSize + sector * kSectorSize,
                              bytes),
                Error::kOk);
    }
    CheckReport report;
    const Error error = CheckImage(device.get(), {}, &report);
    EXPECT_TRUE(error == Error::kOk || error == Error::kUnknownFormat) << report.message;
  }
}

}  // namespace
}  // namespace sluice::testing
