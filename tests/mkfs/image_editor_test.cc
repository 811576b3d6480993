// SPDX-License-Identifier: Apache-2.0
#include "tests/support/image_editor.h"

#include <gtest/gtest.h>

#include "base/aligned_buffer.h"
#include "block/memory_device.h"
#include "format/bitmap.h"
#include "format/directory.h"
#include "mkfs/make_filesystem.h"

namespace sluice::testing {
namespace {

class ImageEditorTest : public ::testing::Test {
 protected:
  ImageEditorTest() : device_(uint64_t{200} << 20) {
    MkfsReport report;
    EXPECT_EQ(MakeFilesystem(&device_, {}, &report), Error::kOk);
  }

  AlignedBuffer Read(BlockNumber block) {
    AlignedBuffer buffer(kBlockSize);
    EXPECT_EQ(device_.Read(block << kBlockShift, buffer.span()), Error::kOk);
    return buffer;
  }
  Error Parse(GroupNumber group, format::Superblock* super) {
    const AlignedBuffer block = Read(BlockNumber{group} * format::kBlocksPerGroup);
    return format::ParseSuperblock(format::ConstBlockSpan(block.data(), kBlockSize), super,
                                   nullptr);
  }
  Error CheckRoot(ImageEditor* editor) {
    return format::CheckInode(editor->seed(), 1, editor->geometry().block_count(),
                              editor->ReadInode(1), nullptr);
  }

  MemoryDevice device_;
};

TEST_F(ImageEditorTest, SuperblocksWithAndWithoutSeal) {
  ImageEditor editor(&device_);
  const auto mounted = [](format::SuperSector0*, format::SuperSector1* state) {
    state->state = format::kStateMounted;
  };
  format::Superblock super;
  editor.EditSuper(mounted, Seal::kRight);
  ASSERT_EQ(Parse(0, &super), Error::kOk);
  EXPECT_FALSE(super.state_was_bad);
  EXPECT_EQ(super.state.state, format::kStateMounted);
  editor.EditSuper(mounted, Seal::kRight, 1);
  ASSERT_EQ(Parse(1, &super), Error::kOk);
  EXPECT_EQ(super.state.state, format::kStateMounted);
  editor.EditSuper([](format::SuperSector0* fixed, format::SuperSector1*) { fixed->label[0] ^= 1; },
                   Seal::kLeave);
  EXPECT_EQ(Parse(0, &super), Error::kCorrupt);
}

TEST_F(ImageEditorTest, InodesWithAndWithoutSeal) {
  ImageEditor editor(&device_);
  editor.EditInode(
      1, [](format::Inode* inode) { inode->links = 3; }, Seal::kRight);
  EXPECT_EQ(CheckRoot(&editor), Error::kOk);
  EXPECT_EQ(editor.ReadInode(1).links, 3u);
  editor.EditInode(
      1, [](format::Inode* inode) { inode->links = 4; }, Seal::kLeave);
  EXPECT_EQ(CheckRoot(&editor), Error::kCorrupt);
}

TEST_F(ImageEditorTest, BitmapsKeepTheirDescriptorInStepWhenSealed) {
  ImageEditor editor(&device_);
  const auto good = [&] {
    const AlignedBuffer table = Read(editor.geometry().DescriptorBlock(0));
    const AlignedBuffer bitmap = Read(editor.geometry().BlockBitmap(0));
    return format::VerifyBlock(editor.seed(), editor.geometry().DescriptorBlock(0),
                               {format::BlockKind::kGroupTable},
                               format::ConstBlockSpan(table.data(), kBlockSize)) == Error::kOk &&
           format::GroupDescAt(table.data(), 0)->block_bitmap_checksum ==
               format::Checksum(editor.seed(), bitmap.span());
  };
  ASSERT_TRUE(good());
  editor.EditBlockBitmap(
      0, [](format::BlockSpan bits) { format::SetBit(bits, 30000); }, Seal::kRight);
  EXPECT_TRUE(good());
  editor.EditBlockBitmap(
      0, [](format::BlockSpan bits) { format::ClearBit(bits, 30000); }, Seal::kLeave);
  EXPECT_FALSE(good());
}

TEST_F(ImageEditorTest, JournalSlotsWithAndWithoutSeal) {
  ImageEditor editor(&device_);
  LogArea log(editor.super());
  ASSERT_EQ(log.ReadState(&device_), Error::kOk);
  const auto error = [](format::JournalSuper* super) { super->error = 5; };
  for (uint32_t slot : {0u, 1u}) editor.EditJournalSuper(slot, error, Seal::kRight);
  ASSERT_EQ(log.ReadState(&device_), Error::kOk);
  EXPECT_EQ(log.state.error, 5u);
  for (uint32_t slot : {0u, 1u}) {
    editor.EditJournalSuper(
        slot, [](format::JournalSuper* s) { s->error = 6; }, Seal::kLeave);
  }
  EXPECT_EQ(log.ReadState(&device_), Error::kCorrupt);
}

TEST_F(ImageEditorTest, FindsBlocksAndFlipsBits) {
  ImageEditor editor(&device_);
  const BlockNumber journal = editor.super().fixed.journal_runs[0].start;
  EXPECT_EQ(editor.MapBlock(format::kJournalInode, 0), journal);
  EXPECT_EQ(editor.MapBlock(format::kJournalInode, 9), journal + 9);
  EXPECT_EQ(editor.MapBlock(format::kRootInode, 0), kNoBlock);
  EXPECT_EQ(editor.FirstExtentBlock(format::kJournalInode), kNoBlock);
  EXPECT_EQ(editor.FindName(format::kRootInode, "missing"), 0u);
  const BlockNumber orphan = editor.MapBlock(format::kOrphanInode, 0);
  const format::BlockIdentity identity = {format::BlockKind::kOrphan, format::kOrphanInode, 1};
  const auto verify = [&] {
    const AlignedBuffer block = Read(orphan);
    return format::VerifyBlock(editor.seed(), orphan, identity,
                               format::ConstBlockSpan(block.data(), kBlockSize));
  };
  EXPECT_EQ(verify(), Error::kOk);
  editor.EditBlock(
      orphan, [](format::BlockSpan block) { format::OrphanHeaderOf(block.data())->count = 1; },
      Seal::kRight);
  EXPECT_EQ(verify(), Error::kOk);
  editor.FlipBit((orphan << kBlockShift) + 100, 3);
  EXPECT_EQ(verify(), Error::kCorrupt);
}

}  // namespace
}  // namespace sluice::testing
