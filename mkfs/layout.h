// SPDX-License-Identifier: Apache-2.0
//
// Decides everything about a new filesystem from the size of its device and the wishes of the
// person, before anything is written. No I/O.
#ifndef SLUICE_MKFS_LAYOUT_H_
#define SLUICE_MKFS_LAYOUT_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "format/geometry.h"
#include "format/superblock.h"

namespace sluice {

// The defaults make the same image each time, which is what a test wants. A program gives its own
// uuid, seeds, incarnation and time: an image whose seeds are known is no less safe against
// accidents, but old log blocks and names chosen to collide are then foreseeable.
struct MkfsOptions {
  uint64_t size = 0;  // bytes to use; 0: the whole device
  std::string label;  // at most 64 bytes
  std::array<uint8_t, 16> uuid = {0x73, 0x6c, 0x75, 0x69, 0x63, 0x65, 0x40, 0,
                                  0x80, 0,    0,    0,    0,    0,    0,    1};
  uint64_t checksum_seed = 0x736c756963656673;
  uint64_t hash_seed = 0x6469726563746f72;
  uint64_t log_incarnation = 1;  // not 0
  Nanoseconds time = 0;          // of creation

  uint64_t inodes = 0;  // at least so many; 0: by bytes_per_inode
  uint64_t bytes_per_inode = 16384;
  uint64_t journal_blocks = 0;  // 0: by the filesystem's size
  // Nonzero: the log of so many blocks is on a device of its own.
  uint64_t external_journal_blocks = 0;
  std::array<uint8_t, 16> external_journal_uuid = {};
  std::string external_journal_path;  // recorded if it fits
  double reserved_percent = 5.0;      // 0 to 50
  uint32_t root_uid = 0;              // owner of the root directory
  uint32_t root_gid = 0;
  bool write_everything = false;  // write zeros over the whole device first
};

inline constexpr uint64_t kMinBytesPerInode = kBlockSize;
inline constexpr uint64_t kMaxBytesPerInode = uint64_t{1} << 26;

// What will be where. Ranges are of data blocks, disjoint, and none of it is fixed metadata.
struct MkfsLayout {
  format::Superblock super;
  format::Geometry geometry;
  std::vector<format::BlockRange> journal;  // the runs, in order
  format::BlockRange journal_leaf;  // extent block of the journal inode; count 0: not needed
  format::BlockRange orphan_file;
  BlockCount dropped_blocks = 0;  // at the end of the device: too few for a group of their own

  uint64_t journal_blocks() const;
  BlockCount free_blocks() const;
  // Blocks in use in `group` besides the fixed metadata.
  uint32_t UsedDataBlocks(GroupNumber group) const;
  // All ranges in use besides the fixed metadata.
  std::vector<format::BlockRange> UsedRanges() const;
};

// Blocks of the journal that a filesystem of `block_count` blocks gets by default: mke2fs's sizes,
// but at most 128 MiB.
uint64_t DefaultJournalBlocks(BlockCount block_count);

// kInvalid: the wishes do not fit together or the device; `*why` says how, in one line for a
// person.
Result<MkfsLayout> PlanLayout(uint64_t device_size, const MkfsOptions& options, std::string* why);

}  // namespace sluice

#endif  // SLUICE_MKFS_LAYOUT_H_
