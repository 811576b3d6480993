// SPDX-License-Identifier: Apache-2.0
//
// For each finding of the catalogue: makes exactly that damage, with right checksums unless the
// checksum is the point, and sees exactly that finding.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "format/bitmap.h"
#include "fsck/check.h"
#include "mkfs/make_filesystem.h"
#include "tests/fsck/sample_tree.h"
#include "tests/fsck/tree_editor.h"

namespace sluice::testing {

void PrintTo(const FindingId& id, std::ostream* out) { *out << static_cast<int>(id); }

namespace {

using Id = FindingId;

struct Scene {
  MemoryDevice* device;
  TreeEditor editor;
  const SampleTree& tree;
};

struct Case {
  const char* name;
  std::function<void(Scene&)> damage;
  std::set<Id> expected;  // the one that is meant, and what follows from it
};

void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

format::Extent* FirstExtent(std::byte* root) { return format::ExtentsOf(root); }

void FlipHeader(format::BlockSpan block) { block[kBlockSize - 1] ^= std::byte{1}; }

const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>{
      {"Unreadable",
       [](Scene& s) {
         const BlockNumber block = s.editor.MapBlock(format::kOrphanInode, 1);
         s.device->FailRange(IoOp::kRead, block << kBlockShift, kBlockSize);
       },
       {Id::kUnreadable, Id::kOrphanBlockBad}},
      {"SuperblockZeroed",
       [](Scene& s) {
         const std::vector<std::byte> zeros(kBlockSize);
         ASSERT_EQ(s.device->Write(0, zeros), Error::kOk);
       },
       {Id::kSuperblockBad}},
      {"SuperblockFlipped", [](Scene& s) { s.editor.FlipBit(100); }, {Id::kSuperblockBad}},
      {"StateSector", [](Scene& s) { s.editor.FlipBit(kSectorSize + 20); }, {Id::kStateSectorBad}},
      {"BackupFlipped",
       [](Scene& s) { s.editor.FlipBit(s.editor.geometry().GroupStart(1) * kBlockSize + 100); },
       {Id::kBackupBad}},
      {"BackupDiffers",
       [](Scene& s) {
         s.editor.EditSuper(
             [](format::SuperSector0* fixed, format::SuperSector1*) { fixed->label[0] = 'x'; },
             Seal::kRight, 3);
       },
       {Id::kBackupBad}},
      {"Layout",
       [](Scene& s) {
         s.editor.EditSuper([](format::SuperSector0* fixed,
                               format::SuperSector1*) { fixed->journal_runs[0].start = 2; },
                            Seal::kRight);
       },
       {Id::kLayoutImpossible}},
      {"ErrorRecorded",
       [](Scene& s) {
         s.editor.EditSuper([](format::SuperSector0*,
                               format::SuperSector1* state) { state->state = format::kStateError; },
                            Seal::kRight);
       },
       {Id::kErrorRecorded}},
      {"JournalSuperBoth",
       [](Scene& s) {
         const BlockNumber log = s.editor.super().fixed.journal_runs[0].start;
         s.editor.FlipBit(log * kBlockSize + 30);
         s.editor.FlipBit((log + 1) * kBlockSize + 30);
       },
       {Id::kJournalSuperBad}},
      {"JournalSlot",
       [](Scene& s) {
         s.editor.FlipBit(s.editor.super().fixed.journal_runs[0].start * kBlockSize + 30);
       },
       {Id::kJournalSlotBad}},
      {"JournalDamaged",
       [](Scene& s) {
         for (const uint32_t slot : {0, 1}) {
           s.editor.EditJournalSuper(
               slot,
               [](format::JournalSuper* super) {
                 super->tail_block = 3;
                 super->tail_tid = 1;
                 super->incarnation = 77;
               },
               Seal::kRight);
         }
         s.editor.EditLogBlock(
             9,
             [](format::BlockSpan block) {
               std::memset(block.data(), 0, block.size());
               format::InitHeader(block, 9, {format::BlockKind::kLogCommit, 77});
               format::LogCommitOf(block.data())->tid = 5;
             },
             Seal::kRight);
       },
       {Id::kJournalDamaged}},
      {"JournalAborted",
       [](Scene& s) {
         for (const uint32_t slot : {0, 1}) {
           s.editor.EditJournalSuper(
               slot, [](format::JournalSuper* super) { super->error = 5; }, Seal::kRight);
         }
       },
       {Id::kJournalAborted}},
      {"JournalInode",
       [](Scene& s) {
         s.editor.ChangeInode(format::kJournalInode,
                              [](format::Inode* inode) { inode->size = inode->size - 1; });
       },
       {Id::kJournalInodeWrong}},
      {"GroupTable",
       [](Scene& s) { s.editor.EditBlock(1, FlipHeader, Seal::kLeave); },
       {Id::kGroupTableBad}},
      {"GroupDescriptor",
       [](Scene& s) {
         s.editor.EditGroup(
             2, [](format::GroupDesc* desc) { desc->flags = desc->flags | 0x80; }, Seal::kRight);
       },
       {Id::kGroupDescBad}},
      {"BlockBitmapChecksum",
       [](Scene& s) { s.editor.EditBlockBitmap(0, FlipHeader, Seal::kLeave); },
       {Id::kBlockBitmapChecksum}},
      {"InodeBitmapChecksum",
       [](Scene& s) { s.editor.EditInodeBitmap(0, FlipHeader, Seal::kLeave); },
       {Id::kInodeBitmapChecksum}},
      {"InodeBitmapPadding",
       [](Scene& s) { s.editor.EditInodeBitmap(0, FlipHeader, Seal::kRight); },
       {Id::kInodeBitmapPadding}},
      {"MetadataNotMarked",
       [](Scene& s) { s.editor.MarkBlock(1, false); },
       {Id::kMetadataNotMarked}},
      {"BlockNotMarked",
       [](Scene& s) { s.editor.MarkBlock(s.editor.MapBlock(s.tree.file, 2), false); },
       {Id::kBlockNotMarked}},
      {"BlockLeaked", [](Scene& s) { s.editor.TakeBlock(); }, {Id::kBlockLeaked}},
      {"InodeNotMarked",
       [](Scene& s) { s.editor.MarkInode(s.tree.fifo, false); },
       {Id::kInodeNotMarked}},
      {"InodeLeaked",
       [](Scene& s) { s.editor.MarkInode(s.editor.FreeInode(), true); },
       {Id::kInodeLeaked}},
      {"FreeBlocks",
       [](Scene& s) {
         s.editor.EditGroup(
             0, [](format::GroupDesc* desc) { desc->free_blocks = desc->free_blocks - 1; },
             Seal::kRight);
       },
       {Id::kFreeBlocksWrong}},
      {"FreeInodes",
       [](Scene& s) {
         s.editor.EditGroup(
             0, [](format::GroupDesc* desc) { desc->free_inodes = desc->free_inodes + 1; },
             Seal::kRight);
       },
       {Id::kFreeInodesWrong}},
      {"Directories",
       [](Scene& s) {
         s.editor.EditGroup(
             0, [](format::GroupDesc* desc) { desc->directories = desc->directories + 1; },
             Seal::kRight);
       },
       {Id::kDirectoriesWrong}},
      {"InodeBeyondMark",
       [](Scene& s) {
         // One more used than free, so that the descriptor alone makes sense.
         s.editor.MarkInode(s.editor.geometry().inodes_per_group(), true);
         uint32_t mark = 0;
         s.editor.EditGroup(
             0, [&](format::GroupDesc* desc) { mark = desc->inode_table_used; }, Seal::kRight);
         ASSERT_LT(mark, s.editor.geometry().inodes_per_group());
       },
       {Id::kInodeBeyondMark}},
      {"UninitInUse",
       [](Scene& s) {
         const format::Geometry& geometry = s.editor.geometry();
         s.editor.EditGroup(
             0,
             [&](format::GroupDesc* desc) {
               desc->flags = desc->flags | format::kGroupBlockUninit;
               desc->free_blocks = geometry.GroupBlocks(0) - geometry.FixedBlocks(0).blocks();
               desc->block_bitmap_checksum = 0;
             },
             Seal::kRight);
       },
       {Id::kUninitInUse}},
      {"InodeChecksum",
       [](Scene& s) {
         s.editor.EditInode(
             s.tree.fifo, [](format::Inode* inode) { inode->uid = 77; }, Seal::kLeave);
       },
       {Id::kInodeBad}},
      {"InodeImpossible",
       [](Scene& s) { s.editor.ChangeInode(s.tree.fifo, [](format::Inode* i) { i->size = 5; }); },
       {Id::kInodeBad}},
      {"InodeWithBlocks",
       [](Scene& s) { s.editor.ChangeInode(s.tree.file, [](format::Inode* i) { i->flags = 1; }); },
       {Id::kInodeBad, Id::kBlocksUnclear}},
      {"ReservedInUse",
       [](Scene& s) {
         s.editor.ChangeInode(7, [](format::Inode* inode) {
           inode->mode = S_IFIFO | 0600;
           inode->links = 1;
         });
       },
       {Id::kReservedInUse}},
      {"SpecialInode",
       [](Scene& s) {
         s.editor.ChangeInode(format::kOrphanInode, [](format::Inode* inode) {
           inode->mode = S_IFLNK | 0777;
           inode->size = 6;  // of the block's header: "SLUC", 8, 0
           format::ExtentsOf(reinterpret_cast<std::byte*>(inode->root))[0].length = 1;
           inode->blocks = 1;
         });
         s.editor.MarkBlock(s.editor.MapBlock(format::kOrphanInode, 0) + 1, false);
       },
       {Id::kSpecialInodeWrong, Id::kSymlinkBad}},
      {"ExtentBlock",
       [](Scene& s) {
         s.editor.EditBlock(s.editor.FirstExtentBlock(s.tree.fragmented), FlipHeader, Seal::kLeave);
       },
       {Id::kExtentBlockBad, Id::kBlocksUnclear}},
      {"ExtentBlockImpossible",
       [](Scene& s) {
         s.editor.EditBlock(
             s.editor.FirstExtentBlock(s.tree.fragmented),
             [](format::BlockSpan block) {
               std::byte* node = block.data() + format::kExtentNodeOffset;
               format::ExtentsOf(node)[1].logical = 0;
             },
             Seal::kRight);
       },
       {Id::kExtentBlockBad, Id::kBlocksUnclear}},
      {"ExtentOnMetadata",
       [](Scene& s) {
         const BlockNumber table = s.editor.geometry().InodeTable(0);
         s.editor.ChangeRoot(s.tree.file,
                             [&](std::byte* root) { FirstExtent(root)->physical = table; });
       },
       {Id::kExtentOnMetadata, Id::kBlocksUnclear}},
      {"ExtentBlockOnMetadata",
       [](Scene& s) {
         s.editor.ChangeRoot(s.tree.fragmented,
                             [](std::byte* root) { format::ExtentIndexesOf(root)[0].child = 1; });
       },
       {Id::kExtentBlockOnMetadata, Id::kBlocksUnclear}},
      {"BlockCount",
       [](Scene& s) {
         s.editor.ChangeInode(s.tree.file, [](format::Inode* i) { i->blocks = i->blocks + 1; });
       },
       {Id::kBlockCountWrong}},
      {"BlockShared",
       [](Scene& s) {
         const BlockNumber other = s.editor.MapBlock(s.tree.long_symlink, 0);
         const BlockNumber own = s.editor.MapBlock(s.tree.file, 4);
         s.editor.ChangeRoot(s.tree.file, [&](std::byte* root) {
           format::ExtentHeaderOf(root)->entries = 2;
           FirstExtent(root)[0].length = 4;
           FirstExtent(root)[1].logical = 4;
           FirstExtent(root)[1].length = 1;
           FirstExtent(root)[1].physical = other;
         });
         s.editor.MarkBlock(own, false);
       },
       {Id::kBlockShared}},
      {"Xattr",
       [](Scene& s) {
         s.editor.ChangeInode(s.tree.file, [](format::Inode* i) { i->inline_xattrs[3] = 1; });
       },
       {Id::kXattrBad}},
      {"XattrBlock",
       [](Scene& s) {
         // A block of the file's own becomes its attribute block, without being one.
         const BlockNumber own = s.editor.MapBlock(s.tree.file, 4);
         s.editor.ChangeRoot(s.tree.file, [&](std::byte* root) {
           format::ExtentHeaderOf(root)->entries = 1;
           FirstExtent(root)[0].length = 4;
         });
         s.editor.ChangeInode(s.tree.file, [&](format::Inode* i) { i->xattr_block = own; });
       },
       {Id::kXattrBlockBad}},
      {"Symlink",
       [](Scene& s) {
         s.editor.ChangeRoot(s.tree.long_symlink, [](std::byte* root) {
           FirstExtent(root)->flags = format::kExtentUnwritten;
         });
       },
       {Id::kSymlinkBad}},
      {"FileLinks",
       [](Scene& s) { s.editor.ChangeInode(s.tree.file, [](format::Inode* i) { i->links = 3; }); },
       {Id::kLinksWrong}},
      {"DirectoryLinks",
       [](Scene& s) {
         s.editor.ChangeInode(s.tree.directory, [](format::Inode* i) { i->links = 3; });
       },
       {Id::kLinksWrong}},
      {"Unreferenced",
       [](Scene& s) { s.editor.RemoveEntry(format::kRootInode, "fifo"); },
       {Id::kInodeUnreferenced}},
      {"UnlinkedNotOrphan",
       [](Scene& s) {
         s.editor.RemoveEntry(format::kRootInode, "fifo");
         s.editor.ChangeInode(s.tree.fifo, [](format::Inode* i) { i->links = 0; });
       },
       {Id::kUnlinkedNotOrphan}},
      {"DirHole",
       [](Scene& s) {
         s.editor.ChangeRoot(s.tree.big_directory, [](std::byte* root) {
           const uint32_t last = format::ExtentHeaderOf(root)->entries - 1u;
           FirstExtent(root)[last].flags = format::kExtentUnwritten;
         });
       },
       {Id::kDirHole, Id::kNamesUnclear}},
      {"DirBeyondSize",
       [](Scene& s) {
         const BlockNumber block = s.editor.TakeBlock();
         s.editor.ChangeInode(s.tree.inner, [&](format::Inode* inode) {
           std::byte* root = reinterpret_cast<std::byte*>(inode->root);
           format::ExtentHeaderOf(root)->entries = 1;
           FirstExtent(root)->length = 1;
           FirstExtent(root)->physical = block;
           inode->blocks = 1;
         });
       },
       {Id::kDirBeyondSize}},
      {"DirBlock",
       [](Scene& s) {
         s.editor.EditBlock(s.editor.MapBlock(s.tree.big_directory, 1), FlipHeader, Seal::kLeave);
       },
       {Id::kDirBlockBad, Id::kNamesUnclear}},
      {"DirBlockImpossible",
       [](Scene& s) {
         s.editor.EditBlock(
             s.editor.MapBlock(s.tree.big_directory, 1),
             [](format::BlockSpan block) { format::DirNodeOf(block.data())->garbage = 3000; },
             Seal::kRight);
       },
       {Id::kDirBlockBad, Id::kNamesUnclear}},
      {"DirBlockTwice",
       [](Scene& s) {
         s.editor.EditBlock(
             s.editor.MapBlock(s.tree.big_directory, 0),
             [](format::BlockSpan block) {
               ASSERT_EQ(format::DirNodeOf(block.data())->level, 1);
               format::DirIndexEntry* entries = format::DirIndexesOf(block.data());
               entries[1].child = entries[0].child;
             },
             Seal::kRight);
       },
       {Id::kDirBlockTwice, Id::kNamesUnclear}},
      {"DirBlockLost",
       [](Scene& s) {
         s.editor.EditBlock(
             s.editor.MapBlock(s.tree.big_directory, 0),
             [](format::BlockSpan block) {
               format::DirNodeHeader* node = format::DirNodeOf(block.data());
               node->count = static_cast<uint16_t>(node->count - 1);
             },
             Seal::kRight);
       },
       {Id::kDirBlockLost, Id::kNamesUnclear}},
      {"DirEntryCount",
       [](Scene& s) {
         s.editor.ChangeInode(s.tree.directory,
                              [](format::Inode* i) { i->device = i->device + 1; });
       },
       {Id::kDirEntryCount}},
      {"EntryInvalid",
       [](Scene& s) {
         s.editor.InsertEntry(s.tree.inner, "x", s.editor.geometry().inode_count() + 1, DT_REG);
       },
       {Id::kEntryInvalid}},
      {"EntryFree",
       [](Scene& s) { s.editor.InsertEntry(s.tree.inner, "x", s.editor.FreeInode(), DT_REG); },
       {Id::kEntryFree}},
      {"EntryReserved",
       [](Scene& s) { s.editor.InsertEntry(s.tree.inner, "x", format::kJournalInode, DT_REG); },
       {Id::kEntryReserved}},
      {"EntryType",
       [](Scene& s) {
         s.editor.ChangeEntry(format::kRootInode, "fifo",
                              [](format::DirEntry* entry) { entry->type = DT_REG; });
       },
       {Id::kEntryType}},
      {"EntryTwice",
       [](Scene& s) {
         s.editor.InsertEntry(s.tree.directory, "file", s.tree.file, DT_REG, 1);
         s.editor.ChangeInode(s.tree.file, [](format::Inode* i) { i->links = 3; });
       },
       {Id::kEntryTwice}},
      {"DirTwoNames",
       [](Scene& s) { s.editor.InsertEntry(s.tree.sub, "second", s.tree.inner, DT_DIR); },
       {Id::kDirTwoNames}},
      // Met before the name in the parent, which counts all the same.
      {"DirTwoNamesInTheRoot",
       [](Scene& s) { s.editor.InsertEntry(format::kRootInode, "second", s.tree.inner, DT_DIR); },
       {Id::kDirTwoNames}},
      {"NameOfRoot",
       [](Scene& s) { s.editor.InsertEntry(s.tree.other, "root", format::kRootInode, DT_DIR); },
       {Id::kDirTwoNames}},
      {"DirParent",
       [](Scene& s) {
         s.editor.ChangeInode(s.tree.inner,
                              [](format::Inode* i) { i->parent = format::kRootInode; });
       },
       {Id::kDirParentWrong}},
      {"DirUnconnected",
       [](Scene& s) {
         s.editor.RemoveEntry(s.tree.sub, "inner");
         s.editor.ChangeInode(s.tree.sub, [](format::Inode* i) { i->links = 2; });
       },
       {Id::kDirUnconnected}},
      {"DirCycle",
       [](Scene& s) {
         s.editor.RemoveEntry(s.tree.directory, "sub");
         s.editor.ChangeInode(s.tree.directory, [](format::Inode* i) { i->links = 3; });
         s.editor.InsertEntry(s.tree.inner, "sub", s.tree.sub, DT_DIR);
         s.editor.ChangeInode(s.tree.inner, [](format::Inode* i) { i->links = 3; });
         s.editor.ChangeInode(s.tree.sub, [&](format::Inode* i) { i->parent = s.tree.inner; });
       },
       {Id::kDirCycle}},
      {"OrphanBlock",
       [](Scene& s) {
         s.editor.EditBlock(s.editor.MapBlock(format::kOrphanInode, 0), FlipHeader, Seal::kLeave);
       },
       {Id::kOrphanBlockBad}},
      {"OrphanReserved", [](Scene& s) { s.editor.AddOrphan(0, 5); }, {Id::kOrphanSlotBad}},
      {"OrphanFree",
       [](Scene& s) { s.editor.AddOrphan(0, s.editor.FreeInode()); },
       {Id::kOrphanSlotBad}},
      {"OrphanLinked",
       [](Scene& s) { s.editor.AddOrphan(0, s.tree.fifo); },
       {Id::kOrphanSlotBad, Id::kOrphansPending}},
      {"OrphanTwice",
       [](Scene& s) {
         s.editor.AddOrphan(0, s.tree.file);
         s.editor.AddOrphan(1, s.tree.file);
       },
       {Id::kOrphanTwice, Id::kOrphansPending}},
      {"OrphanHole",
       [](Scene& s) {
         s.editor.ChangeRoot(format::kOrphanInode, [](std::byte* root) {
           FirstExtent(root)->flags = format::kExtentUnwritten;
         });
       },
       {Id::kOrphanHole}},
      {"OrphansPending",
       [](Scene& s) { s.editor.AddOrphan(0, s.tree.file); },
       {Id::kOrphansPending}},
  };
  return *cases;
}

std::string Text(const CheckReport& report) {
  std::string text;
  for (const Finding& finding : report.findings) text += Describe(finding) + "\n";
  return text;
}

std::set<Id> IdsOf(const CheckReport& report) {
  std::set<Id> ids;
  for (const Finding& finding : report.findings) ids.insert(finding.id);
  return ids;
}

class FindingTest : public ::testing::TestWithParam<Case> {};

TEST_P(FindingTest, IsFound) {
  const auto device = TheSampleTree().image->Clone();
  {
    Scene scene{device.get(), TreeEditor(device.get()), TheSampleTree()};
    GetParam().damage(scene);
  }
  device->RefuseWrites();
  const uint64_t writes = device->count(IoOp::kWrite);
  CheckReport report;
  CheckOptions options;
  options.find_paths = true;
  ASSERT_EQ(CheckImage(device.get(), options, &report), Error::kOk) << report.message;
  EXPECT_EQ(device->count(IoOp::kWrite), writes);
  EXPECT_EQ(IdsOf(report), GetParam().expected) << Text(report);
  for (const Finding& finding : report.findings) {
    EXPECT_EQ(Describe(finding).find('{'), std::string::npos) << Describe(finding);
    EXPECT_NE(ToJson(finding).find(InfoOf(finding.id).name), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Catalogue, FindingTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return std::string(info.param.name); });

// Two more need images of their own.
TEST(FindingsTest, TruncatedImage) {
  const auto whole = TheSampleTree().image->Clone();
  MemoryDevice part(uint64_t{200} << 20);
  std::vector<std::byte> bytes(1 << 20);
  for (uint64_t offset = 0; offset < part.size(); offset += bytes.size()) {
    ASSERT_EQ(whole->Read(offset, bytes), Error::kOk);
    ASSERT_EQ(part.Write(offset, bytes), Error::kOk);
  }
  CheckReport report;
  ASSERT_EQ(CheckImage(&part, {}, &report), Error::kOk);
  EXPECT_EQ(IdsOf(report), std::set<Id>{Id::kImageTruncated});
  EXPECT_FALSE(report.complete);
  EXPECT_FALSE(report.clean());
}

TEST(FindingsTest, BlockBitmapPadding) {
  MemoryDevice device(uint64_t{100} << 20);
  MkfsReport made;
  ASSERT_EQ(MakeFilesystem(&device, {}, &made), Error::kOk);
  TreeEditor(&device).EditBlockBitmap(0, FlipHeader, Seal::kRight);
  CheckReport report;
  ASSERT_EQ(CheckImage(&device, {}, &report), Error::kOk);
  EXPECT_EQ(IdsOf(report), std::set<Id>{Id::kBlockBitmapPadding}) << Text(report);
}

TEST(FindingsTest, AllOfTheCatalogueIsTested) {
  std::set<Id> tested = {Id::kImageTruncated, Id::kBlockBitmapPadding};
  for (const Case& test : Cases()) tested.insert(test.expected.begin(), test.expected.end());
  std::set<Id> all;
#define SLUICE_FINDING(number, identifier, name, severity, repair, text) all.insert(Id::identifier);
#include "fsck/findings.def"
#undef SLUICE_FINDING
  EXPECT_EQ(tested, all);
}

TEST(FindingsTest, TellThePath) {
  const auto device = TheSampleTree().image->Clone();
  TreeEditor editor(device.get());
  editor.ChangeInode(TheSampleTree().inner, [](format::Inode* inode) { inode->links = 9; });
  editor.ChangeInode(TheSampleTree().file, [](format::Inode* inode) { inode->links = 9; });
  CheckReport report;
  CheckOptions options;
  options.find_paths = true;
  ASSERT_EQ(CheckImage(device.get(), options, &report), Error::kOk);
  ASSERT_EQ(report.findings.size(), 2u) << Text(report);
  std::set<std::string> paths = {report.findings[0].path, report.findings[1].path};
  paths.erase("/dir/again");
  paths.erase("/dir/file");
  EXPECT_EQ(paths, std::set<std::string>{"/dir/sub/inner"});
  EXPECT_EQ(report.findings[0].found, 9u);
}

TEST(FindingsTest, SharedBlockNamesBothOwners) {
  const auto device = TheSampleTree().image->Clone();
  TreeEditor editor(device.get());
  const BlockNumber block = editor.MapBlock(TheSampleTree().long_symlink, 0);
  editor.ChangeRoot(TheSampleTree().file,
                    [&](std::byte* root) { FirstExtent(root)->physical = block; });
  CheckReport report;
  ASSERT_EQ(CheckImage(device.get(), {}, &report), Error::kOk);
  bool found = false;
  for (const Finding& finding : report.findings) {
    if (finding.id != Id::kBlockShared || finding.block != block) continue;
    found = true;
    EXPECT_EQ(finding.ino + finding.other, TheSampleTree().file + TheSampleTree().long_symlink);
    EXPECT_EQ(finding.count, 1u);
  }
  EXPECT_TRUE(found) << Text(report);
}

}  // namespace
}  // namespace sluice::testing
