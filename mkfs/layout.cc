// SPDX-License-Identifier: Apache-2.0
#include "mkfs/layout.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "format/extent.h"
#include "format/group_desc.h"
#include "format/journal_device.h"

namespace sluice {

namespace {

using format::BlockRange;
using format::Geometry;
using format::kBlocksPerGroup;

// A last group shorter than this (or with less than this beside its metadata) is left out.
constexpr uint64_t kMinLastGroupBlocks = 64;

struct Sizes {
  BlockCount blocks = 0;
  uint64_t groups = 0;
  uint32_t inodes_per_group = 0;
  uint32_t flex_shift = 0;
};

uint64_t GroupTableBlocks(uint64_t groups) {
  return (groups + format::kGroupDescsPerBlock - 1) / format::kGroupDescsPerBlock;
}

// 0: so many inodes are not possible.
uint32_t InodesPerGroup(const MkfsOptions& options, BlockCount blocks, uint64_t groups) {
  const uint64_t wanted =
      options.inodes != 0 ? options.inodes : (blocks << kBlockShift) / options.bytes_per_inode;
  const uint64_t per_group = (wanted + groups - 1) / groups;
  const uint64_t rounded = std::max<uint64_t>((per_group + 15) / 16 * 16, 16);
  return rounded > format::kMaxInodesPerGroup ? 0 : static_cast<uint32_t>(rounded);
}

// Blocks of the metadata packed for `groups` groups.
uint64_t PackedBlocks(uint32_t flex_shift, uint64_t groups, uint32_t inodes_per_group) {
  const uint64_t size = uint64_t{1} << flex_shift;
  return 2 * size + std::min(size, groups) * (inodes_per_group / format::kInodesPerBlock);
}

// The largest packing that leaves half of a flexible group's first group free.
uint32_t FlexShift(BlockCount blocks, uint64_t groups, uint32_t inodes_per_group) {
  const uint32_t smallest = groups == 1 ? 0 : 1;
  const uint64_t half = std::min<uint64_t>(blocks, kBlocksPerGroup) / 2;
  uint32_t shift = format::kMaxFlexGroupShift;
  while (shift > smallest && PackedBlocks(shift, groups, inodes_per_group) > half) --shift;
  return shift;
}

bool LastGroupIsTooShort(const Sizes& sizes) {
  if (sizes.groups == 1) return false;
  const uint64_t last = sizes.groups - 1;
  const uint64_t first = last >> sizes.flex_shift << sizes.flex_shift;
  const uint64_t have = sizes.blocks - last * kBlocksPerGroup;
  const uint64_t packed =
      first == last ? PackedBlocks(sizes.flex_shift, 1, sizes.inodes_per_group) : 0;
  return have < packed + kMinLastGroupBlocks;
}

Error Refuse(std::string text, std::string* why) {
  *why = std::move(text);
  return Error::kInvalid;
}

Result<Sizes> PlanSizes(BlockCount blocks, const MkfsOptions& options, std::string* why) {
  if (blocks < format::kMinImageBlocks) {
    return Refuse(absl::StrCat("too small: ", (blocks << kBlockShift) >> 10,
                               " KiB, a filesystem needs at least 16 MiB"),
                  why);
  }
  if (blocks > format::kMaxImageBlocks) return Refuse("too large: more than 4 PiB", why);
  Sizes sizes;
  sizes.blocks = blocks;
  while (true) {
    sizes.groups = (sizes.blocks + kBlocksPerGroup - 1) / kBlocksPerGroup;
    sizes.inodes_per_group = InodesPerGroup(options, sizes.blocks, sizes.groups);
    if (sizes.inodes_per_group == 0) {
      return Refuse(absl::StrCat("too many inodes: ", sizes.groups * format::kMaxInodesPerGroup,
                                 " at most for this size"),
                    why);
    }
    sizes.flex_shift = FlexShift(sizes.blocks, sizes.groups, sizes.inodes_per_group);
    if (!LastGroupIsTooShort(sizes)) return sizes;
    sizes.blocks = (sizes.groups - 1) * kBlocksPerGroup;
  }
}

void FillIdentity(const MkfsOptions& options, format::Superblock* super) {
  format::SuperSector0& fixed = super->fixed;
  fixed.magic = format::kSuperMagic;
  fixed.version = format::kFormatVersion;
  fixed.checksum_seed = options.checksum_seed;
  fixed.hash_seed = options.hash_seed;
  fixed.created = options.time;
  std::memcpy(fixed.uuid, options.uuid.data(), options.uuid.size());
  std::memcpy(fixed.label, options.label.data(), options.label.size());
  super->state.magic = format::kSuperMagic;
  super->state.last_write = options.time;
  super->state.last_check = options.time;
}

format::Superblock MakeSuperblock(const Sizes& sizes, const MkfsOptions& options) {
  format::Superblock super;
  std::memset(&super.fixed, 0, sizeof(super.fixed));
  std::memset(&super.state, 0, sizeof(super.state));
  FillIdentity(options, &super);
  format::SuperSector0& fixed = super.fixed;
  fixed.block_shift = kBlockShift;
  fixed.blocks_per_group = kBlocksPerGroup;
  fixed.inodes_per_group = sizes.inodes_per_group;
  fixed.flex_group_shift = sizes.flex_shift;
  fixed.block_count = sizes.blocks;
  fixed.group_count = sizes.groups;
  fixed.inode_count = sizes.groups * sizes.inodes_per_group;
  fixed.reserved_blocks =
      static_cast<uint64_t>(static_cast<double>(sizes.blocks) * options.reserved_percent / 100.0);
  fixed.group_table_start = format::kGroupTableStart;
  fixed.group_table_blocks = GroupTableBlocks(sizes.groups);
  return super;
}

// Calls `use` for each gap between the fixed metadata, in ascending order, until it returns false.
// Gaps of neighbouring groups are one.
void ForEachGap(const Geometry& geometry, const std::function<bool(BlockRange)>& use) {
  BlockNumber from = 0;
  for (GroupNumber group = 0; group < geometry.group_count(); ++group) {
    const auto fixed = geometry.FixedBlocks(group);
    for (const BlockRange& range : fixed.ranges()) {
      if (range.start > from && !use({from, range.start - from})) return;
      from = range.start + range.count;
    }
  }
  if (from < geometry.block_count()) use({from, geometry.block_count() - from});
}

// The first group without fixed metadata whose start has room for `count` blocks.
BlockRange FindPlainGroup(const Geometry& geometry, BlockCount count) {
  for (GroupNumber group = 0; group < geometry.group_count(); ++group) {
    const BlockNumber start = geometry.GroupStart(group);
    if (geometry.FixedBlocks(group).blocks() == 0 && geometry.GroupBlocks(group) >= count) {
      return {start, count};
    }
  }
  return {};
}

// One contiguous run if there is one, else the largest gaps; empty if four do not do.
std::vector<BlockRange> PlaceJournal(const Geometry& geometry, BlockCount count) {
  if (count > kBlocksPerGroup / 2 && count <= kBlocksPerGroup) {
    const BlockRange plain = FindPlainGroup(geometry, count);
    if (plain.count != 0) return {plain};
  }
  std::vector<BlockRange> gaps;
  ForEachGap(geometry, [&](BlockRange gap) {
    const bool fits = gap.count >= count;
    if (fits) gaps.clear();
    gaps.push_back(gap);
    return !fits;
  });
  std::ranges::stable_sort(gaps, std::greater(), &BlockRange::count);
  if (gaps.size() > format::kMaxJournalRuns) gaps.resize(format::kMaxJournalRuns);
  std::ranges::sort(gaps, {}, &BlockRange::start);
  std::vector<BlockRange> runs;
  for (BlockRange gap : gaps) {
    gap.count = std::min(gap.count, count);
    count -= gap.count;
    if (gap.count != 0) runs.push_back(gap);
  }
  return count == 0 ? runs : std::vector<BlockRange>();
}

// The first place for `count` blocks that is neither fixed nor in `taken`; count 0 if there is
// none.
BlockRange PlaceAround(const Geometry& geometry, BlockCount count, std::vector<BlockRange> taken) {
  std::ranges::sort(taken, {}, &BlockRange::start);
  BlockRange found;
  ForEachGap(geometry, [&](BlockRange gap) {
    BlockNumber from = gap.start;
    const BlockNumber end = gap.start + gap.count;
    for (const BlockRange& range : taken) {
      if (range.start >= end || range.start + range.count <= from) continue;
      if (range.start >= from + count) break;
      from = range.start + range.count;
    }
    if (from + count > end) return true;
    found = {from, count};
    return false;
  });
  return found;
}

BlockCount OrphanFileBlocks(BlockCount block_count) {
  return std::clamp<BlockCount>(block_count >> 16, 2, 32);  // one for each 256 MiB
}

uint64_t ExtentsFor(const std::vector<BlockRange>& runs) {
  uint64_t extents = 0;
  for (const BlockRange& run : runs) {
    extents += (run.count + format::kMaxExtentLength - 1) / format::kMaxExtentLength;
  }
  return extents;
}

void RecordExternalJournal(const MkfsOptions& options, format::SuperSector0* fixed) {
  fixed->feature_incompat = fixed->feature_incompat | format::kFeatureIncompatExternalJournal;
  std::ranges::copy(options.external_journal_uuid, fixed->journal_uuid);
  format::ExternalJournal* external = format::ExternalJournalOf(fixed);
  external->log_blocks = options.external_journal_blocks;
  const std::string& path = options.external_journal_path;
  if (path.size() < sizeof(external->path)) std::ranges::copy(path, external->path);
}

Error PlaceFiles(const MkfsOptions& options, MkfsLayout* layout, std::string* why) {
  const Geometry& geometry = layout->geometry;
  if (options.external_journal_blocks != 0) {
    RecordExternalJournal(options, &layout->super.fixed);
    layout->orphan_file = PlaceAround(geometry, OrphanFileBlocks(geometry.block_count()), {});
    const bool fits =
        layout->orphan_file.count != 0 && layout->free_blocks() >= geometry.block_count() / 8;
    return fits ? Error::kOk
                : Refuse(
                      absl::StrCat("no room for ", geometry.inode_count(), " inodes in this size"),
                      why);
  }
  const uint64_t wanted = options.journal_blocks != 0
                              ? options.journal_blocks
                              : DefaultJournalBlocks(geometry.block_count());
  if (wanted < format::kMinJournalBlocks || wanted > format::kMaxJournalBlocks) {
    return Refuse("a journal has at least 4 MiB and at most 4096 MiB", why);
  }
  layout->journal = PlaceJournal(geometry, wanted);
  const BlockCount orphans = OrphanFileBlocks(geometry.block_count());
  if (!layout->journal.empty()) {
    layout->orphan_file = PlaceAround(geometry, orphans, layout->journal);
    if (ExtentsFor(layout->journal) > format::kInlineExtents) {
      std::vector<BlockRange> taken = layout->journal;
      taken.push_back(layout->orphan_file);
      layout->journal_leaf = PlaceAround(geometry, 1, taken);
    }
  }
  // A filesystem that is mostly journal serves nobody.
  if (layout->journal.empty() || layout->orphan_file.count == 0 ||
      layout->free_blocks() < geometry.block_count() / 8) {
    return Refuse(absl::StrCat("no room for a journal of ", wanted >> 8, " MiB and ",
                               geometry.inode_count(), " inodes in this size"),
                  why);
  }
  layout->super.fixed.journal_run_count = static_cast<uint32_t>(layout->journal.size());
  for (size_t i = 0; i < layout->journal.size(); ++i) {
    layout->super.fixed.journal_runs[i].start = layout->journal[i].start;
    layout->super.fixed.journal_runs[i].length = layout->journal[i].count;
  }
  return Error::kOk;
}

Error CheckOptions(const MkfsOptions& options, std::string* why) {
  if (options.label.size() > sizeof(format::SuperSector0::label)) {
    return Refuse("the label is longer than 64 bytes", why);
  }
  if (options.inodes == 0 && (options.bytes_per_inode < kMinBytesPerInode ||
                              options.bytes_per_inode > kMaxBytesPerInode)) {
    return Refuse("bytes per inode must be between 4096 and 67108864", why);
  }
  if (options.inodes > format::kMaxImageBlocks) return Refuse("too many inodes", why);
  if (!(options.reserved_percent >= 0.0 && options.reserved_percent <= 50.0)) {
    return Refuse("the reserve must be between 0 and 50 percent", why);
  }
  return Error::kOk;
}

}  // namespace

uint64_t MkfsLayout::journal_blocks() const {
  if (format::HasExternalJournal(super.fixed)) {
    return format::ExternalJournalOf(&super.fixed)->log_blocks;
  }
  uint64_t sum = 0;
  for (const BlockRange& run : journal) sum += run.count;
  return sum;
}

std::vector<BlockRange> MkfsLayout::UsedRanges() const {
  std::vector<BlockRange> ranges = journal;
  ranges.push_back(orphan_file);
  if (journal_leaf.count != 0) ranges.push_back(journal_leaf);
  return ranges;
}

BlockCount MkfsLayout::free_blocks() const {
  BlockCount free = geometry.block_count();
  for (GroupNumber group = 0; group < geometry.group_count(); ++group) {
    free -= geometry.FixedBlocks(group).blocks();
  }
  for (const BlockRange& range : UsedRanges()) free -= range.count;
  return free;
}

uint32_t MkfsLayout::UsedDataBlocks(GroupNumber group) const {
  const BlockNumber start = geometry.GroupStart(group);
  const BlockNumber end = start + geometry.GroupBlocks(group);
  BlockCount used = 0;
  for (const BlockRange& range : UsedRanges()) {
    const BlockNumber from = std::max(range.start, start);
    const BlockNumber to = std::min(range.start + range.count, end);
    if (from < to) used += to - from;
  }
  return static_cast<uint32_t>(used);
}

uint64_t DefaultJournalBlocks(BlockCount block_count) {
  constexpr BlockCount kMebiblocks = 256;  // blocks of a MiB
  if (block_count < 128 * kMebiblocks) return format::kMinJournalBlocks;
  if (block_count < 1024 * kMebiblocks) return 16 * kMebiblocks;
  if (block_count < 2048 * kMebiblocks) return 32 * kMebiblocks;
  if (block_count < 16384 * kMebiblocks) return 64 * kMebiblocks;
  return 128 * kMebiblocks;
}

Result<MkfsLayout> PlanLayout(uint64_t device_size, const MkfsOptions& options, std::string* why) {
  RETURN_IF_ERROR(CheckOptions(options, why));
  const uint64_t size = options.size != 0 ? options.size : device_size;
  ASSIGN_OR_RETURN(const Sizes sizes, PlanSizes(size >> kBlockShift, options, why));
  if (size > device_size) return Refuse("larger than the device", why);
  MkfsLayout layout;
  layout.super = MakeSuperblock(sizes, options);
  Result<Geometry> geometry = Geometry::Make(layout.super);
  if (!geometry.ok()) return Refuse("the inode tables or the group table do not fit", why);
  layout.geometry = *geometry;
  layout.dropped_blocks = (size >> kBlockShift) - sizes.blocks;
  RETURN_IF_ERROR(PlaceFiles(options, &layout, why));
  return layout;
}

}  // namespace sluice
