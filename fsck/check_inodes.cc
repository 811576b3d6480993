// SPDX-License-Identifier: Apache-2.0
//
// Inode bitmaps, inode records, extent trees.
#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "format/bitmap.h"
#include "format/inode.h"
#include "format/journal_device.h"
#include "format/xattr.h"
#include "fsck/extent_walk.h"
#include "fsck/file_blocks.h"
#include "fsck/inode_scan.h"

namespace sluice {

namespace {

using format::BlockRange;
using format::ConstBlockSpan;
using format::Inode;
using format::kFirstUserInode;
using format::kJournalInode;

// Collisions kept; more are known to be there, but not whose they are.
constexpr size_t kMaxCollisions = 10000;

// Where the blocks of the inode at hand go.
class ClaimVisitor final : public ExtentVisitor {
 public:
  explicit ClaimVisitor(CheckState* state) : state_(state) {}

  void Begin(InodeNumber ino) {
    ino_ = ino;
    blocks_ = 0;
    damaged_ = false;
    journal_.clear();
  }
  BlockCount blocks() const { return blocks_; }
  bool damaged() const { return damaged_; }
  const std::vector<format::Extent>& journal() const { return journal_; }

  bool OnNode(BlockNumber block) override {
    ++blocks_;
    ++state_->stats()->extent_blocks;
    if (!state_->geometry.IsDataRange(block, 1)) {
      Finding* finding = state_->Report(FindingId::kExtentBlockOnMetadata);
      finding->ino = ino_;
      finding->block = block;
      damaged_ = true;
      return false;
    }
    Claim({block, 1});
    return true;
  }

  void OnExtent(const format::Extent& extent) override {
    ++state_->stats()->extents;
    blocks_ += extent.length;
    if (ino_ == kJournalInode) {
      // The superblock is the truth about these; they have been claimed by it.
      journal_.push_back(extent);
      return;
    }
    const BlockRange range = {extent.physical, extent.length};
    if (state_->geometry.IsDataRange(range.start, range.count)) return Claim(range);
    Finding* finding = state_->Report(FindingId::kExtentOnMetadata);
    finding->ino = ino_;
    finding->block = range.start;
    finding->count = range.count;
    damaged_ = true;
  }

  void OnBadNode(BlockNumber block, const char* reason) override {
    Finding* finding = state_->Report(FindingId::kExtentBlockBad);
    finding->ino = ino_;
    finding->block = block;
    finding->text = reason;
    damaged_ = true;
  }

  // The block of the inode's extended attributes. False: it cannot be one.
  bool OnXattrBlock(BlockNumber block) {
    ++blocks_;
    if (state_->geometry.IsDataRange(block, 1)) {
      Claim({block, 1});
      return true;
    }
    damaged_ = true;
    return false;
  }

  void Claim(BlockRange range) {
    state_->stats()->used_blocks += range.count;
    state_->map->Claim(range, [this](BlockRange taken) {
      state_->collided = true;
      if (state_->collisions.size() < kMaxCollisions) state_->collisions.push_back({taken, ino_});
    });
  }

 private:
  CheckState* const state_;
  InodeNumber ino_ = 0;
  BlockCount blocks_ = 0;
  bool damaged_ = false;
  std::vector<format::Extent> journal_;
};

class InodeCheck {
 public:
  explicit InodeCheck(CheckState* state)
      : state_(state),
        scan_(state),
        walk_(state),
        claims_(state),
        target_(state),
        bitmap_(kBlockSize) {}

  Error Run();

 private:
  ConstBlockSpan bitmap() const { return ConstBlockSpan(bitmap_.data(), kBlockSize); }
  // A bit that tells something: the bitmap could be believed.
  bool Marked(InodeNumber ino) const {
    return format::TestBit(bitmap(), state_->geometry.IndexInGroup(ino));
  }
  void ClaimJournal();
  void LoadBitmap(GroupNumber group);
  void CheckGroup(GroupNumber group);
  void CheckBeyondMark(GroupNumber group);
  void ReportBeyondMark(GroupNumber group, uint32_t mark, uint32_t per_group);
  void CheckCounts(GroupNumber group);
  void CheckRecord(GroupInfo* group, InodeNumber ino, const Inode& inode);
  void CheckMark(InodeNumber ino, bool used);
  void Damaged(GroupInfo* group, InodeNumber ino, const char* reason);
  void CheckUsed(GroupInfo* group, InodeNumber ino, const Inode& inode);
  void CheckBlocks(InodeNumber ino, const Inode& inode);
  void CheckXattrs(InodeNumber ino, const Inode& inode);
  void CheckJournalExtents(const Inode& inode);
  void CheckTarget(InodeNumber ino, const Inode& inode);
  void AddDirectory(InodeInfo* info, InodeNumber ino, const Inode& inode);
  void Count(uint8_t type);
  void CheckSpecialInodes();
  void CheckSpecial(InodeNumber ino, uint8_t type, const char* what);

  CheckState* const state_;
  InodeScan scan_;
  ExtentWalk walk_;
  ClaimVisitor claims_;
  FileBlocks target_;  // of a long symbolic link
  AlignedBuffer bitmap_;
  bool bitmap_good_ = false;
};

Error InodeCheck::Run() {
  ClaimJournal();
  const GroupNumber count = state_->geometry.group_count();
  for (GroupNumber group = 0; group < count; ++group) {
    CheckGroup(group);
    RETURN_IF_ERROR(state_->Step(CheckPass::kInodes, group + 1, count));
  }
  CheckSpecialInodes();
  return Error::kOk;
}

void InodeCheck::ClaimJournal() {
  const format::SuperSector0& fixed = state_->report()->super.fixed;
  claims_.Begin(kJournalInode);
  for (uint32_t i = 0; i < fixed.journal_run_count; ++i) {
    claims_.Claim({fixed.journal_runs[i].start, fixed.journal_runs[i].length});
  }
}

void InodeCheck::LoadBitmap(GroupNumber group) {
  const GroupInfo& info = state_->groups[group];
  const BlockNumber block = state_->geometry.InodeBitmap(group);
  bitmap_good_ = true;
  if ((info.desc.flags & format::kGroupInodeUninit) != 0) {
    std::memset(bitmap_.data(), 0, kBlockSize);
    state_->geometry.MarkInodePadding(format::BlockSpan(bitmap_.data(), kBlockSize));
    return;
  }
  state_->Read(block, bitmap_.span());
  if (!info.trusted) return;
  bitmap_good_ = format::Checksum(state_->seed(), bitmap()) == info.desc.inode_bitmap_checksum;
  if (bitmap_good_) return;
  Finding* finding = state_->Report(FindingId::kInodeBitmapChecksum);
  finding->group = group;
  finding->block = block;
}

void InodeCheck::CheckGroup(GroupNumber group) {
  GroupInfo& info = state_->groups[group];
  // Most groups of a large filesystem; the descriptor says all and has been checked.
  if (info.trusted && (info.desc.flags & format::kGroupInodeUninit) != 0) return;
  LoadBitmap(group);
  info.inodes.resize(info.desc.inode_table_used);
  scan_.Group(group, [&](InodeNumber ino, const Inode& inode) { CheckRecord(&info, ino, inode); });
  CheckBeyondMark(group);
  CheckCounts(group);
}

// Groups and high-water marks are multiples of 16 inodes, so whole bytes are looked at first.
void InodeCheck::CheckBeyondMark(GroupNumber group) {
  if (!bitmap_good_) return;
  const uint32_t per_group = state_->geometry.inodes_per_group();
  const uint32_t mark = state_->groups[group].desc.inode_table_used;
  const auto bytes = [&](uint32_t from, uint32_t to) {
    return bitmap_.span().subspan(from / 8, (to - from) / 8);
  };
  const auto is = [](std::byte value) { return [value](std::byte b) { return b == value; }; };
  if (!std::ranges::all_of(bytes(mark, per_group), is(std::byte{0}))) {
    ReportBeyondMark(group, mark, per_group);
  }
  if (!std::ranges::all_of(bytes(per_group, format::kBitsPerBlock), is(std::byte{0xff}))) {
    state_->Report(FindingId::kInodeBitmapPadding)->group = group;
  }
}

void InodeCheck::ReportBeyondMark(GroupNumber group, uint32_t mark, uint32_t per_group) {
  for (uint32_t bit = mark; bit < per_group;) {
    uint32_t end = bit;
    while (end < per_group && format::TestBit(bitmap(), end)) ++end;
    if (end > bit) {
      Finding* finding = state_->Report(FindingId::kInodeBeyondMark);
      finding->group = group;
      finding->ino = InodeNumber{group} * per_group + 1 + bit;
      finding->count = end - bit;
      finding->expected = mark;
    }
    bit = end + 1;
  }
}

void InodeCheck::CheckCounts(GroupNumber group) {
  GroupInfo& info = state_->groups[group];
  const uint32_t per_group = state_->geometry.inodes_per_group();
  if (!info.trusted) return;
  const uint32_t free = per_group - format::CountSetBits(bitmap(), per_group);
  if (bitmap_good_ && info.desc.free_inodes != free) {
    Finding* finding = state_->Report(FindingId::kFreeInodesWrong);
    finding->group = group;
    finding->found = info.desc.free_inodes;
    finding->expected = free;
  }
  if (!info.damaged_inodes && info.desc.directories != info.directories) {
    Finding* finding = state_->Report(FindingId::kDirectoriesWrong);
    finding->group = group;
    finding->found = info.desc.directories;
    finding->expected = info.directories;
  }
}

void InodeCheck::CheckRecord(GroupInfo* group, InodeNumber ino, const Inode& inode) {
  const char* reason = nullptr;
  if (format::CheckInode(state_->seed(), ino, state_->geometry.block_count(), inode, &reason) !=
      Error::kOk) {
    return Damaged(group, ino, reason);
  }
  const bool used = inode.mode != 0;
  CheckMark(ino, used);
  if (used || ino < kFirstUserInode) ++state_->stats()->inodes;
  if (used) CheckUsed(group, ino, inode);
}

void InodeCheck::CheckMark(InodeNumber ino, bool used) {
  if (!bitmap_good_ || Marked(ino) == (used || ino < kFirstUserInode)) return;
  const bool leaked = Marked(ino);
  Finding* finding = state_->Report(leaked ? FindingId::kInodeLeaked : FindingId::kInodeNotMarked);
  finding->ino = ino;
  finding->group = state_->geometry.GroupOfInode(ino);
}

void InodeCheck::Damaged(GroupInfo* group, InodeNumber ino, const char* reason) {
  Finding* finding = state_->Report(FindingId::kInodeBad);
  finding->ino = ino;
  finding->text = reason;
  InodeInfo* info = state_->InfoOfInode(ino);
  info->type = InodeInfo::kDamaged;
  group->damaged_inodes = true;
  // A free record that was hit owns nothing.
  if (bitmap_good_ && !Marked(ino)) return;
  state_->blocks_unclear = true;
  state_->names_unclear = true;
  if (ino == format::kOrphanInode) state_->orphans_unclear = true;
}

void InodeCheck::CheckUsed(GroupInfo* group, InodeNumber ino, const Inode& inode) {
  if (ino < kFirstUserInode && ino > format::kOrphanInode) {
    state_->Report(FindingId::kReservedInUse)->ino = ino;
  }
  InodeInfo* info = state_->InfoOfInode(ino);
  info->type = static_cast<uint8_t>(IFTODT(inode.mode));
  info->links = inode.links;
  Count(info->type);
  if (info->type == DT_DIR) {
    ++group->directories;
    AddDirectory(info, ino, inode);
  }
  CheckBlocks(ino, inode);
  if (S_ISLNK(inode.mode) && HasExtents(inode) && !claims_.damaged()) CheckTarget(ino, inode);
}

void InodeCheck::CheckTarget(InodeNumber ino, const Inode& inode) {
  target_.Open(ino, inode.generation, RootOf(inode), 1);
  const char* problem = nullptr;
  if (!target_.holes().empty()) {
    problem = "the block of its target is missing";
  } else if (target_.beyond()) {
    problem = "blocks behind its target";
  } else {
    const ConstBlockSpan block = target_.Read(0);
    const auto end = block.begin() + static_cast<std::ptrdiff_t>(inode.size);
    if (std::find(block.begin(), end, std::byte{0}) != end) problem = "NUL in its target";
  }
  if (problem == nullptr) return;
  Finding* finding = state_->Report(FindingId::kSymlinkBad);
  finding->ino = ino;
  finding->text = problem;
}

void InodeCheck::Count(uint8_t type) {
  CheckStats* stats = state_->stats();
  switch (type) {
    case DT_DIR:
      ++stats->directories;
      break;
    case DT_REG:
      ++stats->files;
      break;
    case DT_LNK:
      ++stats->symlinks;
      break;
    default:
      ++stats->special;
  }
}

void InodeCheck::AddDirectory(InodeInfo* info, InodeNumber ino, const Inode& inode) {
  info->directory = static_cast<uint32_t>(state_->directories.size());
  DirectoryInfo& directory = state_->directories.emplace_back();
  directory.ino = ino;
  directory.parent = inode.parent;
  directory.blocks = inode.size >> kBlockShift;
  directory.entries = inode.device;
  directory.links = inode.links;
  directory.generation = inode.generation;
  std::memcpy(directory.root.data(), inode.root, directory.root.size());
}

void InodeCheck::CheckBlocks(InodeNumber ino, const Inode& inode) {
  claims_.Begin(ino);
  if (HasExtents(inode)) walk_.Run(ino, inode.generation, RootOf(inode), &claims_);
  CheckXattrs(ino, inode);
  if (claims_.damaged()) {
    state_->blocks_unclear = true;
    return;
  }
  const BlockCount blocks = claims_.blocks();
  if (inode.blocks != blocks) {
    Finding* finding = state_->Report(FindingId::kBlockCountWrong);
    finding->ino = ino;
    finding->found = inode.blocks;
    finding->expected = blocks;
  }
  if (ino == kJournalInode) CheckJournalExtents(inode);
}

void InodeCheck::CheckXattrs(InodeNumber ino, const Inode& inode) {
  static constexpr uint8_t kNone[sizeof(inode.inline_xattrs)] = {};
  if (std::memcmp(inode.inline_xattrs, kNone, sizeof(kNone)) != 0) {
    Finding* finding = state_->Report(FindingId::kXattrBad);
    finding->ino = ino;
    finding->text = "in the inode, where this version of the format has none";
  }
  const BlockNumber block = inode.xattr_block;
  if (block == 0) return;
  if (!claims_.OnXattrBlock(block)) {
    Finding* finding = state_->Report(FindingId::kXattrBad);
    finding->ino = ino;
    finding->text = "their block is one of the filesystem's own metadata";
    return;
  }
  const format::BlockIdentity identity = {
      .kind = format::BlockKind::kXattr, .owner = ino, .generation = inode.generation};
  const ConstBlockSpan bytes = state_->ReadOne(block);
  const char* reason = nullptr;
  if (format::VerifyBlock(state_->seed(), block, identity, bytes, &reason) == Error::kOk &&
      format::CheckXattrBlock(bytes, &reason) == Error::kOk) {
    return;
  }
  Finding* finding = state_->Report(FindingId::kXattrBlockBad);
  finding->ino = ino;
  finding->block = block;
  finding->found = inode.generation;
  finding->text = reason;
}

void InodeCheck::CheckJournalExtents(const Inode& inode) {
  const format::SuperSector0& fixed = state_->report()->super.fixed;
  std::vector<BlockRange> runs;
  FileBlock next = 0;
  // Of an external journal the inode has nothing.
  const BlockCount blocks = format::HasExternalJournal(fixed) ? 0 : state_->log.blocks();
  bool same = inode.size == blocks << kBlockShift;
  for (const format::Extent& extent : claims_.journal()) {
    same = same && extent.logical == next && extent.flags == 0;
    next = extent.logical + FileBlock{extent.length};
    const bool joins = !runs.empty() && runs.back().start + runs.back().count == extent.physical;
    if (joins) {
      runs.back().count += extent.length;
    } else {
      runs.push_back({extent.physical, extent.length});
    }
  }
  // Neighbouring runs of the superblock are one here.
  std::vector<BlockRange> expected;
  for (uint32_t i = 0; i < fixed.journal_run_count; ++i) {
    const format::JournalRun& run = fixed.journal_runs[i];
    if (!expected.empty() && expected.back().start + expected.back().count == run.start) {
      expected.back().count += run.length;
    } else {
      expected.push_back({run.start, run.length});
    }
  }
  same = same && std::ranges::equal(runs, expected, [](const BlockRange& a, const BlockRange& b) {
           return a.start == b.start && a.count == b.count;
         });
  if (!same) state_->Report(FindingId::kJournalInodeWrong)->ino = kJournalInode;
}

void InodeCheck::CheckSpecialInodes() {
  CheckSpecial(format::kRootInode, DT_DIR, "the root directory is not a directory");
  CheckSpecial(kJournalInode, DT_REG, "the journal's inode is not a regular file");
  CheckSpecial(format::kOrphanInode, DT_REG, "the orphan file is not a regular file");
}

void InodeCheck::CheckSpecial(InodeNumber ino, uint8_t type, const char* what) {
  const InodeInfo* info = state_->InfoOfInode(ino);
  if (info != nullptr && (info->type == type || info->type == InodeInfo::kDamaged)) return;
  Finding* finding = state_->Report(FindingId::kSpecialInodeWrong);
  finding->ino = ino;
  finding->text = what;
  // What hangs on it is not lost twice.
  if (ino == format::kRootInode) state_->names_unclear = true;
  if (ino == format::kOrphanInode) state_->orphans_unclear = true;
}

}  // namespace

bool HasExtents(const Inode& inode) {
  const uint32_t type = inode.mode & S_IFMT;
  return type == S_IFREG || type == S_IFDIR ||
         (type == S_IFLNK && (inode.flags & format::kInodeInlineSymlink) == 0);
}

Error InodesPass(CheckState* state) { return InodeCheck(state).Run(); }

}  // namespace sluice
