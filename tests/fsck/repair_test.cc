// SPDX-License-Identifier: Apache-2.0
//
// Repairs: what was repaired is gone, nothing is claimed that was not done, and a second run finds
// nothing to do.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "format/bitmap.h"
#include "fsck/check.h"
#include "tests/fsck/sample_tree.h"
#include "tests/fsck/tree_editor.h"
#include "tests/support/fs_fixture.h"
#include "tests/support/fsck_problems.h"

namespace sluice::testing {
namespace {

using testing_support::FsckProblems;

bool Yes(const Finding&) { return true; }
bool No(const Finding&) { return false; }

struct Damage {
  const char* name;
  std::function<void(TreeEditor&)> make;
};

const std::vector<Damage>& Repairables() {
  static const auto* const all = new std::vector<Damage>{
      {"superblock", [](TreeEditor& e) { e.FlipBit(100); }},
      {"state", [](TreeEditor& e) { e.FlipBit(kSectorSize + 20); }},
      {"backup", [](TreeEditor& e) { e.FlipBit(e.geometry().GroupStart(3) * kBlockSize + 60); }},
      {"journal slot",
       [](TreeEditor& e) {
         // The one that is not in use.
         uint64_t generations[2];
         for (const uint32_t slot : {0, 1}) {
           e.EditJournalSuper(
               slot, [&](format::JournalSuper* super) { generations[slot] = super->generation; },
               Seal::kRight);
         }
         const uint64_t slot = generations[0] < generations[1] ? 0 : 1;
         e.FlipBit((e.super().fixed.journal_runs[0].start + slot) * kBlockSize + 30);
       }},
      {"bitmap checksum",
       [](TreeEditor& e) {
         e.EditBlockBitmap(
             0, [](format::BlockSpan bits) { bits[100] ^= std::byte{8}; }, Seal::kLeave);
       }},
      {"inode bitmap checksum",
       [](TreeEditor& e) {
         e.EditInodeBitmap(
             0, [](format::BlockSpan bits) { bits[1] ^= std::byte{8}; }, Seal::kLeave);
       }},
      {"block not marked",
       [](TreeEditor& e) { e.MarkBlock(e.MapBlock(TheSampleTree().file, 0), false); }},
      {"block leaked", [](TreeEditor& e) { e.TakeBlock(); }},
      {"inode not marked", [](TreeEditor& e) { e.MarkInode(TheSampleTree().fifo, false); }},
      {"inode leaked", [](TreeEditor& e) { e.MarkInode(e.FreeInode(), true); }},
      {"counts",
       [](TreeEditor& e) {
         e.EditGroup(
             0,
             [](format::GroupDesc* desc) {
               desc->free_blocks = desc->free_blocks - 1;
               desc->free_inodes = desc->free_inodes + 1;
             },
             Seal::kRight);
       }},
      {"journal superblock",
       [](TreeEditor& e) {
         for (const uint64_t slot : {0, 1}) {
           e.FlipBit((e.super().fixed.journal_runs[0].start + slot) * kBlockSize + 30);
         }
       }},
      {"beyond the mark",
       [](TreeEditor& e) { e.MarkInode(e.geometry().inodes_per_group(), true); }},
  };
  return *all;
}

TEST(RepairTest, RepairsWhatItSaysItCan) {
  for (const Damage& damage : Repairables()) {
    SCOPED_TRACE(damage.name);
    const auto device = TheSampleTree().image->Clone();
    {
      TreeEditor editor(device.get());
      damage.make(editor);
    }
    EXPECT_NE(FsckProblems(device.get()), "");
    RepairOutcome outcome;
    ASSERT_EQ(CheckAndRepair(device.get(), {}, Yes, 12345, &outcome), Error::kOk);
    EXPECT_TRUE(outcome.wrote_repairs);
    EXPECT_TRUE(outcome.after.clean());
    for (const Finding& finding : outcome.before.findings) EXPECT_TRUE(finding.repaired);
    EXPECT_EQ(FsckProblems(device.get()), "");
    ImageSummary summary;
    ASSERT_EQ(SummarizeImage(device.get(), &summary), Error::kOk);
    EXPECT_EQ(summary.reason, "");
    EXPECT_EQ(summary.super.state.last_check, 12345);
    RepairOutcome again;
    ASSERT_EQ(CheckAndRepair(device.get(), {}, Yes, 12345, &again), Error::kOk);
    EXPECT_FALSE(again.wrote_repairs);
    EXPECT_TRUE(again.before.findings.empty());
  }
}

TEST(RepairTest, LeavesWhatIsNotApproved) {
  for (const Damage& damage : Repairables()) {
    SCOPED_TRACE(damage.name);
    const auto device = TheSampleTree().image->Clone();
    TreeEditor editor(device.get());
    damage.make(editor);
    const std::string before = FsckProblems(device.get());
    RepairOutcome outcome;
    ASSERT_EQ(CheckAndRepair(device.get(), {}, No, 1, &outcome), Error::kOk);
    EXPECT_FALSE(outcome.wrote_repairs);
    EXPECT_FALSE(outcome.after.clean());
    EXPECT_EQ(FsckProblems(device.get()), before);
    for (const Finding& finding : outcome.before.findings) EXPECT_FALSE(finding.repaired);
  }
}

TEST(RepairTest, DoubtForbidsRepair) {
  const auto device = TheSampleTree().image->Clone();
  TreeEditor editor(device.get());
  editor.EditInode(
      TheSampleTree().file, [](format::Inode* inode) { inode->uid = 5; }, Seal::kLeave);
  editor.MarkBlock(editor.MapBlock(TheSampleTree().fragmented, 0), false);
  RepairOutcome outcome;
  ASSERT_EQ(CheckAndRepair(device.get(), {}, Yes, 1, &outcome), Error::kOk);
  EXPECT_FALSE(outcome.wrote_repairs);
  EXPECT_FALSE(outcome.after.clean());
  // The next check does not pass over it.
  ImageSummary summary;
  ASSERT_EQ(SummarizeImage(device.get(), &summary), Error::kOk);
  EXPECT_NE(summary.reason, "");
  EXPECT_FALSE(summary.only_replay);
}

TEST(RepairTest, AGoodCheckIsNoted) {
  const auto device = TheSampleTree().image->Clone();
  TreeEditor(device.get())
      .EditSuper(
          [](format::SuperSector0*, format::SuperSector1* state) {
            state->state = format::kStateError | format::kStateMounted;
            state->error_count = 3;
          },
          Seal::kRight);
  RepairOutcome outcome;
  ASSERT_EQ(CheckAndRepair(device.get(), {}, No, 777, &outcome), Error::kOk);
  EXPECT_TRUE(outcome.after.clean());
  ImageSummary summary;
  ASSERT_EQ(SummarizeImage(device.get(), &summary), Error::kOk);
  EXPECT_EQ(summary.reason, "");
  EXPECT_EQ(summary.super.state.mount_count, 0u);
  EXPECT_EQ(summary.super.state.error_count, 0u);
  EXPECT_EQ(summary.super.state.last_check, 777);
}

class CrashedTest : public testing_support::FsTest {
 protected:
  CrashedTest() { options_.manual = true; }

  // A committed transaction in the log that nobody has checkpointed, and an open orphan.
  void MakeCrashed() {
    {
      const InodeRef root = files().Root();
      ASSERT_TRUE(files().Create(root, "kept").ok());
      const InodeRef gone = *files().Create(root, "gone");
      gone->lookups.fetch_add(1);
      ASSERT_EQ(files().Write(gone, 0, "data"), Error::kOk);
      ASSERT_EQ(files().Unlink(root, "gone"), Error::kOk);
      ASSERT_EQ(fs_->Sync(), Error::kOk);
    }
    Crash();
  }
};

TEST_F(CrashedTest, IsCleanAfterReplayInMemory) {
  MakeCrashed();
  device_->set_read_only(true);
  CheckReport report;
  ASSERT_EQ(CheckImage(device_.get(), {}, &report), Error::kOk);
  EXPECT_TRUE(report.clean()) << FsckProblems(device_.get());
  EXPECT_TRUE(report.replay.needed);
  EXPECT_EQ(report.stats.orphans, 1u);
  device_->set_read_only(false);
  Mount();
  EXPECT_TRUE(files().Lookup(files().Root(), "kept").ok());
}

TEST_F(CrashedTest, ReplayOnlyMakesItClean) {
  MakeCrashed();
  ImageSummary summary;
  ASSERT_EQ(SummarizeImage(device_.get(), &summary), Error::kOk);
  EXPECT_TRUE(summary.only_replay);
  ReplayReport replay;
  std::string problem;
  ASSERT_EQ(ReplayOnly(device_.get(), 1, &replay, &problem), Error::kOk) << problem;
  EXPECT_TRUE(replay.needed);
  ASSERT_EQ(SummarizeImage(device_.get(), &summary), Error::kOk);
  EXPECT_EQ(summary.reason, "");
  EXPECT_TRUE(summary.log_empty);
  EXPECT_EQ(FsckProblems(device_.get()), "");
  Mount();
  EXPECT_TRUE(files().Lookup(files().Root(), "kept").ok());
}

}  // namespace
}  // namespace sluice::testing
