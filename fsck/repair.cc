// SPDX-License-Identifier: Apache-2.0
//
// The repairs of this version: those where the image itself says beyond doubt what is right.
// Superblocks from each other, the journal's superblock, damaged attribute blocks (emptied), and a
// group's bitmaps, counts and checksums from the inodes, if no inode and no extent block is
// damaged.
#include <algorithm>
#include <cstring>
#include <set>

#include "format/bitmap.h"
#include "format/xattr.h"
#include "fsck/check_state.h"

namespace sluice {

namespace {

using format::BlockSpan;

enum class RepairKind { kNone, kSuperblock, kJournal, kNewJournal, kBlocks, kInodes, kXattr };

RepairKind KindOf(FindingId id) {
  switch (id) {
    case FindingId::kSuperblockBad:
    case FindingId::kStateSectorBad:
    case FindingId::kBackupBad:
      return RepairKind::kSuperblock;
    case FindingId::kJournalSlotBad:
      return RepairKind::kJournal;
    case FindingId::kXattrBlockBad:
      return RepairKind::kXattr;
    case FindingId::kJournalSuperBad:
    case FindingId::kJournalDamaged:
      return RepairKind::kNewJournal;
    case FindingId::kBlockBitmapChecksum:
    case FindingId::kBlockBitmapPadding:
    case FindingId::kMetadataNotMarked:
    case FindingId::kBlockNotMarked:
    case FindingId::kBlockLeaked:
    case FindingId::kFreeBlocksWrong:
    case FindingId::kUninitInUse:
      return RepairKind::kBlocks;
    case FindingId::kInodeBitmapChecksum:
    case FindingId::kInodeBitmapPadding:
    case FindingId::kInodeNotMarked:
    case FindingId::kInodeLeaked:
    case FindingId::kFreeInodesWrong:
    case FindingId::kDirectoriesWrong:
    case FindingId::kInodeBeyondMark:
      return RepairKind::kInodes;
    default:
      return RepairKind::kNone;
  }
}

bool CanRepair(const CheckState& state, const Finding& finding) {
  switch (KindOf(finding.id)) {
    case RepairKind::kNone:
      return false;
    case RepairKind::kSuperblock:
    case RepairKind::kJournal:
    case RepairKind::kNewJournal:
      return true;
    case RepairKind::kXattr:
      return !state.collided;  // else it may be somebody's data
    case RepairKind::kBlocks:
      return state.groups[finding.group].trusted && !state.blocks_unclear && !state.collided;
    case RepairKind::kInodes:
      return state.groups[finding.group].trusted && !state.groups[finding.group].damaged_inodes;
  }
  return false;
}

class Repairing {
 public:
  Repairing(CheckState* state, Device* device) : state_(state), device_(device) {}

  Error Run(const std::vector<const Finding*>& accepted);

 private:
  // The groups of which everything of this kind was accepted.
  std::set<GroupNumber> GroupsFor(RepairKind kind, const std::vector<const Finding*>& accepted);
  Error WriteSuperblock(GroupNumber group);
  Error RewriteJournalSuper();
  Error ClearXattrs(const Finding& finding);
  Error MakeNewJournal();
  Error RebuildBlocks(GroupNumber group, format::GroupDesc* desc);
  Error RebuildInodes(GroupNumber group, format::GroupDesc* desc);
  Error RebuildGroup(GroupNumber group, bool blocks, bool inodes);
  Error WriteBlock(BlockNumber block, const AlignedBuffer& bytes) {
    return device_->Write(block << kBlockShift, bytes.span());
  }

  CheckState* const state_;
  Device* const device_;
};

std::set<GroupNumber> Repairing::GroupsFor(RepairKind kind,
                                           const std::vector<const Finding*>& accepted) {
  std::set<GroupNumber> groups;
  for (const Finding* finding : accepted) {
    if (KindOf(finding->id) == kind) groups.insert(finding->group);
  }
  for (const Finding& finding : state_->report()->findings) {
    if (KindOf(finding.id) != kind) continue;
    if (std::ranges::find(accepted, &finding) == accepted.end()) groups.erase(finding.group);
  }
  return groups;
}

Error Repairing::Run(const std::vector<const Finding*>& accepted) {
  for (const Finding* finding : accepted) {
    const RepairKind kind = KindOf(finding->id);
    const bool backup = finding->id == FindingId::kBackupBad;
    if (kind == RepairKind::kSuperblock) {
      RETURN_IF_ERROR(WriteSuperblock(backup ? finding->group : 0));
    }
    if (kind == RepairKind::kJournal) RETURN_IF_ERROR(RewriteJournalSuper());
    if (kind == RepairKind::kXattr) RETURN_IF_ERROR(ClearXattrs(*finding));
    if (kind == RepairKind::kNewJournal) RETURN_IF_ERROR(MakeNewJournal());
  }
  const std::set<GroupNumber> blocks = GroupsFor(RepairKind::kBlocks, accepted);
  const std::set<GroupNumber> inodes = GroupsFor(RepairKind::kInodes, accepted);
  std::set<GroupNumber> groups = blocks;
  groups.insert(inodes.begin(), inodes.end());
  for (const GroupNumber group : groups) {
    RETURN_IF_ERROR(RebuildGroup(group, blocks.contains(group), inodes.contains(group)));
  }
  return device_->Flush();
}

Error Repairing::WriteSuperblock(GroupNumber group) {
  format::Superblock super = state_->report()->super;
  // The primary's state is put right when a check has found nothing more.
  if (group == 0) super.state.state = super.state.state | format::kStateError;
  AlignedBuffer block(kBlockSize);
  format::SerializeSuperblock(super, group, BlockSpan(block.data(), kBlockSize));
  return WriteBlock(state_->geometry.GroupStart(group), block);
}

Error Repairing::RewriteJournalSuper() {
  RETURN_IF_ERROR(state_->log.WriteState(device_));
  return device_->Flush();
}

// The inode keeps the block, without any attribute in it: nothing else needs to change.
Error Repairing::ClearXattrs(const Finding& finding) {
  AlignedBuffer block(kBlockSize);
  const BlockSpan bytes(block.data(), kBlockSize);
  format::InitHeader(bytes, finding.block,
                     {.kind = format::BlockKind::kXattr,
                      .owner = finding.ino,
                      .generation = static_cast<uint32_t>(finding.found)});
  format::InitXattrBlock(bytes);
  format::SealBlock(state_->seed(), bytes);
  return WriteBlock(finding.block, block);
}

// An empty log. Nothing of the old one can pass for part of it, since its incarnation is new; tids
// go on behind any that the old one can hold, as far as that is known.
Error Repairing::MakeNewJournal() {
  LogArea& log = state_->log;
  log.state.incarnation = LogArea::NewIncarnation(log.state.incarnation);
  log.state.tail_tid = log.state.tail_tid + log.blocks();
  log.state.tail_block = 0;
  log.state.error = 0;
  for (uint32_t slot = 0; slot < format::kLogFirst; ++slot) RETURN_IF_ERROR(RewriteJournalSuper());
  state_->log_ok = true;
  return Error::kOk;
}

Error Repairing::RebuildBlocks(GroupNumber group, format::GroupDesc* desc) {
  AlignedBuffer bitmap(kBlockSize);
  const BlockSpan bits(bitmap.data(), kBlockSize);
  ExpectedBlockBitmap(*state_, group, bits);
  const uint32_t blocks = state_->geometry.GroupBlocks(group);
  desc->flags = desc->flags & ~format::kGroupBlockUninit;
  desc->free_blocks = blocks - format::CountSetBits(bits, blocks);
  desc->block_bitmap_checksum = format::Checksum(state_->seed(), bits);
  return WriteBlock(state_->geometry.BlockBitmap(group), bitmap);
}

Error Repairing::RebuildInodes(GroupNumber group, format::GroupDesc* desc) {
  const GroupInfo& info = state_->groups[group];
  AlignedBuffer bitmap(kBlockSize);
  std::memset(bitmap.data(), 0, kBlockSize);
  const BlockSpan bits(bitmap.data(), kBlockSize);
  state_->geometry.MarkInodePadding(bits);
  for (uint32_t i = 0; i < info.inodes.size(); ++i) {
    const bool reserved = group == 0 && i < format::kFirstUserInode - 1;
    if (reserved || info.inodes[i].type != InodeInfo::kFree) format::SetBit(bits, i);
  }
  const uint32_t inodes = state_->geometry.inodes_per_group();
  desc->flags = desc->flags & ~format::kGroupInodeUninit;
  desc->free_inodes = inodes - format::CountSetBits(bits, inodes);
  desc->directories = info.directories;
  desc->inode_bitmap_checksum = format::Checksum(state_->seed(), bits);
  return WriteBlock(state_->geometry.InodeBitmap(group), bitmap);
}

Error Repairing::RebuildGroup(GroupNumber group, bool blocks, bool inodes) {
  const BlockNumber number = state_->geometry.DescriptorBlock(group);
  AlignedBuffer table(kBlockSize);
  RETURN_IF_ERROR(device_->Read(number << kBlockShift, table.span()));
  format::GroupDesc* desc =
      format::GroupDescAt(table.data(), state_->geometry.DescriptorIndex(group));
  if (blocks) RETURN_IF_ERROR(RebuildBlocks(group, desc));
  if (inodes) RETURN_IF_ERROR(RebuildInodes(group, desc));
  format::SealBlock(state_->seed(), BlockSpan(table.data(), kBlockSize));
  return WriteBlock(number, table);
}

}  // namespace

void MarkRepairable(CheckState* state) {
  for (Finding& finding : state->report()->findings) {
    finding.repairable = CanRepair(*state, finding);
  }
}

Error ApplyRepairs(CheckState* state, Device* device, const std::vector<const Finding*>& accepted) {
  return Repairing(state, device).Run(accepted);
}

Error WriteCheckedState(Device* device, const format::Superblock& super, Nanoseconds now,
                        bool checked) {
  format::Superblock updated = super;
  format::SuperSector1& state = updated.state;
  state.state = state.state & ~format::kStateMounted;
  state.last_write = now;
  if (checked) {
    state.state = state.state & ~format::kStateError;
    state.mount_count = 0;
    state.last_check = now;
    state.error_count = 0;
    state.first_error_time = 0;
    state.last_error_time = 0;
    state.last_error_inode = 0;
    state.last_error_block = 0;
    std::memset(state.last_error_text, 0, sizeof(state.last_error_text));
  }
  AlignedBuffer block(kBlockSize);
  format::SerializeSuperblock(updated, 0, BlockSpan(block.data(), kBlockSize));
  RETURN_IF_ERROR(device->Write(kSectorSize, block.span().subspan(kSectorSize, kSectorSize)));
  return device->Flush();
}

}  // namespace sluice
