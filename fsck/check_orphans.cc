// SPDX-License-Identifier: Apache-2.0
//
// The orphan file: which inodes wait to be finished.
#include <dirent.h>

#include "format/directory.h"
#include "fsck/file_blocks.h"
#include "fsck/inode_scan.h"

namespace sluice {

namespace {

class OrphanCheck {
 public:
  explicit OrphanCheck(CheckState* state) : state_(state), file_(state) {}

  void Run();

 private:
  void CheckHoles();
  void CheckBlock(FileBlock logical, BlockNumber physical, uint32_t generation);
  void CheckSlot(InodeNumber ino);
  void BadSlot(InodeNumber ino, const char* what);

  CheckState* const state_;
  FileBlocks file_;
};

void OrphanCheck::Run() {
  const InodeInfo* info = state_->InfoOfInode(format::kOrphanInode);
  if (info == nullptr || info->type != DT_REG) return;
  format::Inode inode;
  const format::ConstBlockSpan table =
      state_->ReadOne(state_->geometry.InodeBlock(format::kOrphanInode));
  inode =
      *format::As<format::Inode>(table.data() + state_->geometry.InodeOffset(format::kOrphanInode));
  file_.Open(format::kOrphanInode, inode.generation, RootOf(inode), inode.size >> kBlockShift);
  CheckHoles();
  for (const FileBlocks::Run& run : file_.runs()) {
    for (BlockCount i = 0; i < run.count; ++i) {
      CheckBlock(run.logical + i, run.physical + i, inode.generation);
    }
  }
  state_->stats()->orphans = state_->orphans.size();
  if (state_->orphans.empty()) return;
  state_->Report(FindingId::kOrphansPending)->count = state_->orphans.size();
}

void OrphanCheck::CheckHoles() {
  if (file_.damaged()) {
    state_->orphans_unclear = true;
    return;
  }
  for (const format::BlockRange& hole : file_.holes()) {
    state_->orphans_unclear = true;
    Finding* finding = state_->Report(FindingId::kOrphanHole);
    finding->block = hole.start;
    finding->count = hole.count;
  }
}

void OrphanCheck::CheckBlock(FileBlock logical, BlockNumber physical, uint32_t generation) {
  const format::ConstBlockSpan block = file_.Read(logical);
  const format::BlockIdentity identity = {format::BlockKind::kOrphan, format::kOrphanInode,
                                          generation};
  const char* reason = nullptr;
  if (format::VerifyBlock(state_->seed(), physical, identity, block, &reason) != Error::kOk ||
      format::CheckOrphanBlock(block, state_->geometry.inode_count(), &reason) != Error::kOk) {
    state_->orphans_unclear = true;
    Finding* finding = state_->Report(FindingId::kOrphanBlockBad);
    finding->block = physical;
    finding->found = logical;
    finding->text = reason;
    return;
  }
  for (uint32_t i = 0; i < format::kOrphanSlots; ++i) {
    const InodeNumber ino = format::OrphanSlotsOf(block.data())[i];
    if (ino != 0) CheckSlot(ino);
  }
}

void OrphanCheck::BadSlot(InodeNumber ino, const char* what) {
  Finding* finding = state_->Report(FindingId::kOrphanSlotBad);
  finding->ino = ino;
  finding->text = what;
}

void OrphanCheck::CheckSlot(InodeNumber ino) {
  if (ino < format::kFirstUserInode) return BadSlot(ino, "which is reserved");
  const InodeInfo* info = state_->InfoOfInode(ino);
  if (info == nullptr || info->type == InodeInfo::kFree) return BadSlot(ino, "which is free");
  if (!state_->orphans.insert(ino).second) {
    state_->Report(FindingId::kOrphanTwice)->ino = ino;
    return;
  }
  if (info->type == InodeInfo::kDamaged || info->links == 0 || info->type == DT_REG) return;
  BadSlot(ino, "which has links and is not a regular file");
}

}  // namespace

void OrphansPass(CheckState* state) { OrphanCheck(state).Run(); }

}  // namespace sluice
