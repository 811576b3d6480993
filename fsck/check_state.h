// SPDX-License-Identifier: Apache-2.0
//
// What the passes of one check know and share. The passes, in order:
//
//   open       superblock and its copies, journal (check_open.cc)
//   groups     group table (check_groups.cc)
//   inodes     inode bitmaps, inode records, extents; who owns which block (check_inodes.cc)
//   shared     who else owns a block that was claimed twice (check_shared.cc)
//   orphans    orphan file (check_orphans.cc)
//   names      directories (check_directories.cc)
//   links      reachability and link counts (check_links.cc)
//   bitmaps    block bitmaps against the claims (check_bitmaps.cc)
//
// Damage hides what depends on it: the blocks of an unreadable inode look leaked, the files of an
// unreadable directory look unreferenced. The flags below keep such consequences out of the
// report; a note counts them instead.
#ifndef SLUICE_FSCK_CHECK_STATE_H_
#define SLUICE_FSCK_CHECK_STATE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/aligned_buffer.h"
#include "base/error.h"
#include "block/device.h"
#include "block/overlay_device.h"
#include "format/geometry.h"
#include "format/group_desc.h"
#include "format/inode.h"
#include "fsck/block_map.h"
#include "fsck/check.h"
#include "journal/log_area.h"

namespace sluice {

// What is kept of each inode record below a group's high-water mark.
struct InodeInfo {
  static constexpr uint8_t kFree = 0;
  static constexpr uint8_t kDamaged = 0xff;

  uint32_t links = 0;      // as recorded
  uint32_t names = 0;      // found; not for directories
  uint32_t directory = 0;  // index into CheckState::directories
  uint8_t type = kFree;    // DT_*, or one of the above
};

struct GroupInfo {
  format::GroupDesc desc = {};
  // The descriptor could be read and makes sense. If not, nothing is compared with it.
  bool trusted = true;
  uint32_t directories = 0;
  bool damaged_inodes = false;
  std::vector<InodeInfo> inodes;  // as many as the high-water mark
};

struct DirectoryInfo {
  enum class Reach : uint8_t { kUnknown, kOnTheWay, kReached, kLost };

  InodeNumber ino = 0;
  InodeNumber parent = 0;        // as recorded
  InodeNumber found_parent = 0;  // by name; 0: no name found yet
  uint64_t blocks = 0;           // logical, by its size
  uint64_t entries = 0;          // as recorded
  uint64_t found_entries = 0;
  uint32_t links = 0;
  uint32_t subdirectories = 0;
  uint32_t generation = 0;
  bool damaged = false;  // not all of its names are known
  Reach reach = Reach::kUnknown;
  std::array<std::byte, format::kExtentRootSize> root;
};

class CheckState {
 public:
  CheckState(Device* device, const CheckOptions& options, CheckReport* report)
      : device_(device), options_(options), report_(report), block_(kBlockSize) {}

  Device* device() const { return overlay_ != nullptr ? overlay_.get() : device_; }
  // From now on nothing reaches the image.
  void UseOverlay() { overlay_ = std::make_unique<OverlayDevice>(device_); }

  // Adds a finding. Returns it for more fields to be filled in, until the next call; one that is
  // not kept goes nowhere.
  Finding* Report(FindingId id);

  // Reads whole blocks. Blocks that cannot be read are reported and are zeros.
  void Read(BlockNumber first, std::span<std::byte> data);
  // One block; valid until the next call.
  format::ConstBlockSpan ReadOne(BlockNumber block);

  // kInterrupted if the person has had enough. Tells the progress.
  Error Step(CheckPass pass, uint64_t done, uint64_t total);

  uint64_t seed() const { return report_->super.fixed.checksum_seed; }
  uint64_t hash_seed() const { return report_->super.fixed.hash_seed; }
  const CheckOptions& options() const { return options_; }
  CheckReport* report() const { return report_; }
  CheckStats* stats() const { return &report_->stats; }

  // Null for an inode that does not exist or lies beyond its group's high-water mark.
  InodeInfo* InfoOfInode(InodeNumber ino);

  // Set by the open pass:
  format::Geometry geometry;
  LogArea log;
  bool log_ok = false;          // its superblock could be read
  GroupNumber backup_used = 0;  // group of the backup that stands for the superblock
  std::vector<GroupNumber> bad_backups;
  // By the groups pass and later ones:
  std::vector<GroupInfo> groups;
  std::unique_ptr<BlockMap> map;
  std::vector<DirectoryInfo> directories;
  absl::flat_hash_set<InodeNumber> orphans;
  // Parts that were claimed when they had an owner already, and who came later.
  struct Collision {
    format::BlockRange range;
    InodeNumber ino;
  };
  std::vector<Collision> collisions;
  bool collided = false;

  bool blocks_unclear = false;   // a damaged inode or extent block may own more blocks
  bool names_unclear = false;    // a damaged directory may hold more names
  bool orphans_unclear = false;  // a damaged orphan file may list more inodes

 private:
  Device* const device_;
  const CheckOptions& options_;
  CheckReport* const report_;
  std::unique_ptr<OverlayDevice> overlay_;
  AlignedBuffer block_;
  Finding dropped_;
};

// The passes. Only kInterrupted, and what CheckImage says of opening, ends a check.

struct OpenMode {
  bool replay_for_good = false;
};
// Fills report->super and geometry, replays the journal. *usable: there is something to check.
Error OpenPass(CheckState* state, OpenMode mode, bool* usable);
// The parts of it that a summary needs: superblock (with findings), geometry, log state.
Error OpenSuperblock(CheckState* state, bool* usable);
void OpenLog(CheckState* state);
// Whether both slots of the journal's superblock are good.
bool JournalSlotIsGood(CheckState* state, uint32_t slot);
// Rewrites a slot that a crash has torn. Writes to the image.
Error HealJournalSlots(CheckState* state);

Error GroupsPass(CheckState* state);
Error InodesPass(CheckState* state);
Error SharedPass(CheckState* state);
void OrphansPass(CheckState* state);
Error NamesPass(CheckState* state);
void LinksPass(CheckState* state);
Error BitmapsPass(CheckState* state);
// After all of them: decides what can be repaired, looks for paths.
void MarkRepairable(CheckState* state);
Error PathsPass(CheckState* state);

// All passes.
Error RunPasses(CheckState* state, OpenMode mode);

// The blocks a group's block bitmap should show, as far as the claims tell.
void ExpectedBlockBitmap(const CheckState& state, GroupNumber group, format::BlockSpan bitmap);

// Repairs what is in `accepted`; writes and flushes. `state` has been through the passes with
// replay_for_good.
Error ApplyRepairs(CheckState* state, Device* device, const std::vector<const Finding*>& accepted);
// Notes a good check in the superblock's state sector and marks the filesystem clean.
Error WriteCheckedState(Device* device, const format::Superblock& super, Nanoseconds now,
                        bool checked);

}  // namespace sluice

#endif  // SLUICE_FSCK_CHECK_STATE_H_
