// SPDX-License-Identifier: Apache-2.0
//
// The superblock: block 0 and the first block of each backup group. Two 512-byte sectors, each
// with its own checksum: sector 0 never changes while the image is mounted and holds all that is
// needed to find the journal; sector 1 holds what changes. A torn write can hurt only the sector
// that was being written; a bad sector 1 is replaced by defaults ("needs check"), a bad sector 0
// by a backup's.
#ifndef SLUICE_FORMAT_SUPERBLOCK_H_
#define SLUICE_FORMAT_SUPERBLOCK_H_

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "format/block_header.h"
#include "format/endian.h"

namespace sluice::format {

inline constexpr uint64_t kSuperMagic = 0x5346454349554c53;  // "SLUICEFS" as bytes
inline constexpr uint32_t kFormatVersion = 1;

inline constexpr InodeNumber kRootInode = 1;  // also FUSE's root node id
inline constexpr InodeNumber kJournalInode = 2;
inline constexpr InodeNumber kOrphanInode = 3;
inline constexpr InodeNumber kFirstUserInode = 11;

// Feature words follow ext4's rules for unknown bits: compat, ignore; ro_compat, mount read-only
// only; incompat, refuse.
inline constexpr uint32_t kFeatureIncompatExternalJournal = 1u << 0;
inline constexpr uint32_t kKnownCompat = 0;
inline constexpr uint32_t kKnownRoCompat = 0;
inline constexpr uint32_t kKnownIncompat = kFeatureIncompatExternalJournal;

inline constexpr uint32_t kMaxJournalRuns = 4;

struct JournalRun {
  Le64 start;   // physical block
  Le64 length;  // blocks
};
static_assert(OnDisk<JournalRun> && sizeof(JournalRun) == 16);
static_assert(offsetof(JournalRun, start) == 0);
static_assert(offsetof(JournalRun, length) == 8);

struct SuperSector0 {
  Le64 magic;
  Le64 checksum;  // XXH3-64 (seed 0) over the 512 bytes with this field zero
  Le32 version;
  Le32 feature_compat;
  Le32 feature_ro_compat;
  Le32 feature_incompat;
  Le32 block_shift;       // 12
  Le32 blocks_per_group;  // 32768
  Le32 inodes_per_group;
  Le32 flex_group_shift;  // log2 of the groups whose metadata are packed together
  Le64 block_count;
  Le64 group_count;
  Le64 inode_count;        // group_count * inodes_per_group
  Le64 reserved_blocks;    // for root
  Le64 checksum_seed;      // of every other checksum; its own field, so the UUID can change
  Le64 hash_seed;          // of directory hashes
  Le64 group_table_start;  // first block of the group descriptors
  Le64 group_table_blocks;
  LeS64 created;  // ns since the epoch
  uint8_t uuid[16];
  char label[64];          // NUL-padded UTF-8
  Le32 journal_run_count;  // 1..4; 0: the journal is external (format/journal_device.h)
  Le32 backup_group;       // group this copy lies in; 0 for the primary
  JournalRun journal_runs[kMaxJournalRuns];
  uint8_t journal_uuid[16];  // of an external journal; zero if internal
  uint8_t reserved[224];     // starts with an ExternalJournal if there is one
};
static_assert(OnDisk<SuperSector0>);
static_assert(sizeof(SuperSector0) == 512);
static_assert(offsetof(SuperSector0, magic) == 0);
static_assert(offsetof(SuperSector0, checksum) == 8);
static_assert(offsetof(SuperSector0, version) == 16);
static_assert(offsetof(SuperSector0, feature_compat) == 20);
static_assert(offsetof(SuperSector0, feature_ro_compat) == 24);
static_assert(offsetof(SuperSector0, feature_incompat) == 28);
static_assert(offsetof(SuperSector0, block_shift) == 32);
static_assert(offsetof(SuperSector0, blocks_per_group) == 36);
static_assert(offsetof(SuperSector0, inodes_per_group) == 40);
static_assert(offsetof(SuperSector0, flex_group_shift) == 44);
static_assert(offsetof(SuperSector0, block_count) == 48);
static_assert(offsetof(SuperSector0, group_count) == 56);
static_assert(offsetof(SuperSector0, inode_count) == 64);
static_assert(offsetof(SuperSector0, reserved_blocks) == 72);
static_assert(offsetof(SuperSector0, checksum_seed) == 80);
static_assert(offsetof(SuperSector0, hash_seed) == 88);
static_assert(offsetof(SuperSector0, group_table_start) == 96);
static_assert(offsetof(SuperSector0, group_table_blocks) == 104);
static_assert(offsetof(SuperSector0, created) == 112);
static_assert(offsetof(SuperSector0, uuid) == 120);
static_assert(offsetof(SuperSector0, label) == 136);
static_assert(offsetof(SuperSector0, journal_run_count) == 200);
static_assert(offsetof(SuperSector0, backup_group) == 204);
static_assert(offsetof(SuperSector0, journal_runs) == 208);
static_assert(offsetof(SuperSector0, journal_uuid) == 272);
static_assert(offsetof(SuperSector0, reserved) == 288);

// state bits
inline constexpr uint32_t kStateMounted = 1u << 0;  // mounted for writing, or not cleanly unmounted
inline constexpr uint32_t kStateError = 1u << 1;    // an error was seen: check before use

struct SuperSector1 {
  Le64 magic;
  Le64 checksum;  // XXH3-64 (checksum_seed) over the 512 bytes with this field zero
  Le32 state;
  Le32 mount_count;      // since the last check
  LeS64 last_mount;      // ns
  LeS64 last_write;      // ns, of this sector
  LeS64 last_check;      // ns
  Le64 lifetime_writes;  // KiB written over the life of the image, updated at unmount
  Le32 error_count;
  Le32 reserved0;
  LeS64 first_error_time;
  LeS64 last_error_time;
  Le64 last_error_inode;
  Le64 last_error_block;
  char last_error_text[64];
  char last_mountpoint[128];
  uint8_t reserved[224];
};
static_assert(OnDisk<SuperSector1>);
static_assert(sizeof(SuperSector1) == 512);
static_assert(offsetof(SuperSector1, magic) == 0);
static_assert(offsetof(SuperSector1, checksum) == 8);
static_assert(offsetof(SuperSector1, state) == 16);
static_assert(offsetof(SuperSector1, mount_count) == 20);
static_assert(offsetof(SuperSector1, last_mount) == 24);
static_assert(offsetof(SuperSector1, last_write) == 32);
static_assert(offsetof(SuperSector1, last_check) == 40);
static_assert(offsetof(SuperSector1, lifetime_writes) == 48);
static_assert(offsetof(SuperSector1, error_count) == 56);
static_assert(offsetof(SuperSector1, reserved0) == 60);
static_assert(offsetof(SuperSector1, first_error_time) == 64);
static_assert(offsetof(SuperSector1, last_error_time) == 72);
static_assert(offsetof(SuperSector1, last_error_inode) == 80);
static_assert(offsetof(SuperSector1, last_error_block) == 88);
static_assert(offsetof(SuperSector1, last_error_text) == 96);
static_assert(offsetof(SuperSector1, last_mountpoint) == 160);
static_assert(offsetof(SuperSector1, reserved) == 288);

// Native form of what the code works with. Thread-compatible.
struct Superblock {
  SuperSector0 fixed;
  SuperSector1 state;
  bool state_was_bad = false;  // sector 1 did not verify and was replaced by defaults
};

// Checks magic, checksum, and every field of sector 0 against each other and the limits below, so
// that later arithmetic cannot overflow or leave the image. kUnknownFormat: no magic. kCorrupt:
// bad checksum or impossible values. kNewerFormat: unknown version or incompat bits (then `*super`
// is filled as far as it is understood). `reason`, if not null, gets a text for a person.
Error ParseSuperblock(ConstBlockSpan block, Superblock* super, std::string* reason);

// Lays the superblock into `block` (4 KiB, zero behind the sectors) and seals both sectors.
// `backup_group` is stored in the copy. Sector 1 of a backup is not kept up to date: who falls back
// to a backup treats the filesystem as not cleanly unmounted.
void SerializeSuperblock(const Superblock& super, uint32_t backup_group, BlockSpan block);

// Whether group `group` begins with a backup superblock: 1 and the powers of 3, 5 and 7.
bool IsBackupGroup(GroupNumber group);

// Whether ro_compat features that this version does not know forbid writing.
inline bool MustBeReadOnly(const Superblock& super) {
  return (super.fixed.feature_ro_compat & ~kKnownRoCompat) != 0;
}

// Limits that ParseSuperblock enforces and mkfs keeps.
inline constexpr uint32_t kBlocksPerGroup = 32768;
inline constexpr uint64_t kMinImageBlocks = 4096;               // 16 MiB
inline constexpr uint64_t kMaxImageBlocks = uint64_t{1} << 40;  // 4 PiB
inline constexpr uint64_t kMinJournalBlocks = 1024;             // 4 MiB
inline constexpr uint64_t kMaxJournalBlocks = uint64_t{1} << 20;
inline constexpr uint32_t kMaxInodesPerGroup = 32768;  // bits of one bitmap block
inline constexpr uint32_t kMaxFlexGroupShift = 4;
inline constexpr BlockNumber kGroupTableStart = 1;

}  // namespace sluice::format

#endif  // SLUICE_FORMAT_SUPERBLOCK_H_
