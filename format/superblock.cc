// SPDX-License-Identifier: Apache-2.0
#include "format/superblock.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "format/group_desc.h"
#include "format/journal_device.h"

namespace sluice::format {

namespace {

std::span<const std::byte> BytesOf(const SuperSector0& sector) {
  return {reinterpret_cast<const std::byte*>(&sector), sizeof(sector)};
}
std::span<const std::byte> BytesOf(const SuperSector1& sector) {
  return {reinterpret_cast<const std::byte*>(&sector), sizeof(sector)};
}

uint64_t ChecksumOf(const SuperSector0& sector) {
  return ChecksumSkipping(0, BytesOf(sector), offsetof(SuperSector0, checksum));
}
uint64_t ChecksumOf(const SuperSector1& sector, uint64_t seed) {
  return ChecksumSkipping(seed, BytesOf(sector), offsetof(SuperSector1, checksum));
}

// The checks return what is wrong, or an empty string.
std::string SizesProblem(const SuperSector0& s) {
  if (s.block_shift != kBlockShift) {
    return absl::StrCat("block size 2^", uint32_t{s.block_shift}, " is not 4096");
  }
  if (s.blocks_per_group != kBlocksPerGroup) {
    return absl::StrCat("impossible blocks per group ", uint32_t{s.blocks_per_group});
  }
  if (s.block_count < kMinImageBlocks || s.block_count > kMaxImageBlocks) {
    return absl::StrCat("impossible block count ", uint64_t{s.block_count});
  }
  const uint64_t groups = (s.block_count + kBlocksPerGroup - 1) / kBlocksPerGroup;
  if (s.group_count != groups) {
    return absl::StrCat("group count ", uint64_t{s.group_count}, " should be ", groups);
  }
  if (s.inodes_per_group < 16 || s.inodes_per_group > kMaxInodesPerGroup ||
      s.inodes_per_group % 16 != 0) {
    return absl::StrCat("impossible inodes per group ", uint32_t{s.inodes_per_group});
  }
  if (s.inode_count != groups * s.inodes_per_group) {
    return absl::StrCat("inode count ", uint64_t{s.inode_count}, " should be ",
                        groups * s.inodes_per_group);
  }
  if (s.reserved_blocks > s.block_count / 2) {
    return absl::StrCat("impossible reserved block count ", uint64_t{s.reserved_blocks});
  }
  return "";
}

std::string LayoutProblem(const SuperSector0& s) {
  // Without packing every group begins with its own bitmaps, and no superblock copy would fit.
  if (s.flex_group_shift > kMaxFlexGroupShift || (s.flex_group_shift == 0 && s.group_count > 1)) {
    return absl::StrCat("impossible flexible group size 2^", uint32_t{s.flex_group_shift});
  }
  if (s.group_table_start != kGroupTableStart) {
    return absl::StrCat("group table at block ", uint64_t{s.group_table_start});
  }
  const uint64_t table = (s.group_count + kGroupDescsPerBlock - 1) / kGroupDescsPerBlock;
  if (s.group_table_blocks != table) {
    return absl::StrCat("group table of ", uint64_t{s.group_table_blocks}, " blocks should have ",
                        table);
  }
  if (s.backup_group != 0 && (!IsBackupGroup(s.backup_group) || s.backup_group >= s.group_count)) {
    return absl::StrCat("impossible backup group ", uint32_t{s.backup_group});
  }
  return "";
}

std::string ExternalJournalProblem(const SuperSector0& s) {
  if (s.journal_run_count != 0) return "an external journal and runs of an internal one";
  const uint64_t blocks = ExternalJournalOf(&s)->log_blocks;
  if (blocks >= kMinJournalBlocks && blocks <= kMaxJournalBlocks) return "";
  return absl::StrCat("impossible size of the external journal of ", blocks, " blocks");
}

std::string JournalProblem(const SuperSector0& s) {
  if (HasExternalJournal(s)) return ExternalJournalProblem(s);
  if (s.journal_run_count < 1 || s.journal_run_count > kMaxJournalRuns) {
    return absl::StrCat("impossible number of journal runs ", uint32_t{s.journal_run_count});
  }
  uint64_t total = 0;
  for (uint32_t i = 0; i < s.journal_run_count; ++i) {
    const uint64_t start = s.journal_runs[i].start;
    const uint64_t length = s.journal_runs[i].length;
    if (start == 0 || start >= s.block_count || length == 0 || length > kMaxJournalBlocks ||
        length > s.block_count - start) {
      return absl::StrCat("journal run ", i, " (", length, " blocks at ", start,
                          ") is not inside the image");
    }
    for (uint32_t j = 0; j < i; ++j) {
      const uint64_t other = s.journal_runs[j].start;
      if (start < other + s.journal_runs[j].length && other < start + length) {
        return absl::StrCat("journal runs ", j, " and ", i, " overlap");
      }
    }
    total += length;
  }
  if (total < kMinJournalBlocks || total > kMaxJournalBlocks) {
    return absl::StrCat("impossible journal size of ", total, " blocks");
  }
  return "";
}

SuperSector1 DefaultState() {
  SuperSector1 state;
  std::memset(&state, 0, sizeof(state));
  state.magic = kSuperMagic;
  state.state = kStateError;
  return state;
}

Error Fail(Error error, std::string text, std::string* reason) {
  if (reason != nullptr) *reason = std::move(text);
  return error;
}

}  // namespace

Error ParseSuperblock(ConstBlockSpan block, Superblock* super, std::string* reason) {
  SuperSector0& fixed = super->fixed;
  std::memcpy(&fixed, block.data(), sizeof(fixed));
  if (fixed.magic != kSuperMagic) {
    return Fail(Error::kUnknownFormat, "no sluicefs superblock", reason);
  }
  if (fixed.checksum != ChecksumOf(fixed)) {
    return Fail(Error::kCorrupt, "wrong superblock checksum", reason);
  }
  std::memcpy(&super->state, block.data() + sizeof(fixed), sizeof(super->state));
  super->state_was_bad = super->state.magic != kSuperMagic ||
                         super->state.checksum != ChecksumOf(super->state, fixed.checksum_seed);
  if (super->state_was_bad) super->state = DefaultState();

  if (fixed.version == 0) return Fail(Error::kCorrupt, "format version 0", reason);
  if (fixed.version > kFormatVersion) {
    return Fail(Error::kNewerFormat, absl::StrCat("format version ", uint32_t{fixed.version}),
                reason);
  }
  const uint32_t unknown = fixed.feature_incompat & ~kKnownIncompat;
  if (unknown != 0) {
    return Fail(Error::kNewerFormat,
                absl::StrCat("unknown incompatible features 0x", absl::Hex(unknown)), reason);
  }
  std::string problem = SizesProblem(fixed);
  if (problem.empty()) problem = LayoutProblem(fixed);
  if (problem.empty()) problem = JournalProblem(fixed);
  if (!problem.empty()) return Fail(Error::kCorrupt, std::move(problem), reason);
  return Error::kOk;
}

void SerializeSuperblock(const Superblock& super, uint32_t backup_group, BlockSpan block) {
  SuperSector0 fixed = super.fixed;
  fixed.magic = kSuperMagic;
  fixed.backup_group = backup_group;
  fixed.checksum = ChecksumOf(fixed);
  SuperSector1 state = super.state;
  state.magic = kSuperMagic;
  state.checksum = ChecksumOf(state, fixed.checksum_seed);
  std::memcpy(block.data(), &fixed, sizeof(fixed));
  std::memcpy(block.data() + sizeof(fixed), &state, sizeof(state));
  const size_t used = sizeof(fixed) + sizeof(state);
  std::memset(block.data() + used, 0, block.size() - used);
}

bool IsBackupGroup(GroupNumber group) {
  if (group == 0) return false;
  return std::ranges::any_of(std::array<GroupNumber, 3>{3, 5, 7}, [group](GroupNumber base) {
    GroupNumber rest = group;
    while (rest % base == 0) rest /= base;
    return rest == 1;
  });
}

}  // namespace sluice::format
