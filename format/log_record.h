// SPDX-License-Identifier: Apache-2.0
//
// The journal's log. Log blocks are numbered by their index within the log (superblock:
// journal_runs). Blocks 0 and 1 are the two slots of the journal superblock; 2..n-1 are a ring of
// records. A transaction is a sequence of
//
//   [revoke block]... { [descriptor] [block image]... }... [commit]
//
// Every descriptor, revoke and commit block starts with a BlockHeader whose `block` is the log
// index and whose `owner` is the log incarnation: a number that is changed, durably, by mkfs and
// by every reset or replay of the log. Old log blocks therefore never look valid. The sequence
// number (tid) goes up by one with each transaction and never restarts.
//
// Block images are raw 4 KiB; their checksums are in the tags, so nothing needs escaping.
#ifndef SLUICE_FORMAT_LOG_RECORD_H_
#define SLUICE_FORMAT_LOG_RECORD_H_

#include <cstddef>

#include "base/error.h"
#include "base/units.h"
#include "format/block_header.h"
#include "format/endian.h"

namespace sluice::format {

inline constexpr uint64_t kJournalMagic = 0x4c4e524a49554c53;  // "SLUIJRNL" as bytes
inline constexpr uint64_t kLogFirst = 2;                       // first log block of the ring

// Lies in the first 512 bytes of log blocks 0 and 1. Written alternately; the valid slot with the
// larger generation counts.
struct JournalSuper {
  Le64 magic;
  Le64 checksum;    // XXH3-64 (checksum_seed) over the 512 bytes with this field zero
  Le64 generation;  // +1 at each write
  Le64 incarnation;
  Le64 log_blocks;   // blocks of the log, these two included
  Le64 tail_block;   // log index of the oldest transaction still needed; 0: the log is empty
  Le64 tail_tid;     // its tid; if empty: the tid of the next transaction
  uint8_t uuid[16];  // of the filesystem
  Le32 error;        // nonzero: the journal was aborted
  Le32 reserved0;
  uint8_t reserved[432];
};
static_assert(OnDisk<JournalSuper>);
static_assert(sizeof(JournalSuper) == 512);
static_assert(offsetof(JournalSuper, magic) == 0);
static_assert(offsetof(JournalSuper, checksum) == 8);
static_assert(offsetof(JournalSuper, generation) == 16);
static_assert(offsetof(JournalSuper, incarnation) == 24);
static_assert(offsetof(JournalSuper, log_blocks) == 32);
static_assert(offsetof(JournalSuper, tail_block) == 40);
static_assert(offsetof(JournalSuper, tail_tid) == 48);
static_assert(offsetof(JournalSuper, uuid) == 56);
static_assert(offsetof(JournalSuper, error) == 72);
static_assert(offsetof(JournalSuper, reserved0) == 76);
static_assert(offsetof(JournalSuper, reserved) == 80);

// Follows the BlockHeader of descriptor and revoke blocks.
struct LogRecordHeader {
  Le64 tid;
  Le32 count;  // tags or revoked blocks
  Le32 flags;  // 0
};
static_assert(OnDisk<LogRecordHeader> && sizeof(LogRecordHeader) == 16);
static_assert(offsetof(LogRecordHeader, tid) == 0);
static_assert(offsetof(LogRecordHeader, count) == 8);
static_assert(offsetof(LogRecordHeader, flags) == 12);

inline constexpr uint32_t kLogRecordOffset = sizeof(BlockHeader);
inline constexpr uint32_t kLogPayloadOffset = kLogRecordOffset + sizeof(LogRecordHeader);  // 56

// One block image: they follow the descriptor in the order of its tags.
struct LogTag {
  Le64 block;     // home
  Le64 checksum;  // XXH3-64 (checksum_seed) of the image
  Le16 kind;      // BlockKind
  Le16 flags;     // 0
  Le32 reserved;
};
static_assert(OnDisk<LogTag> && sizeof(LogTag) == 24);
static_assert(offsetof(LogTag, block) == 0);
static_assert(offsetof(LogTag, checksum) == 8);
static_assert(offsetof(LogTag, kind) == 16);
static_assert(offsetof(LogTag, flags) == 18);
static_assert(offsetof(LogTag, reserved) == 20);

inline constexpr uint32_t kTagsPerDescriptor =
    (kBlockSize - kLogPayloadOffset) / sizeof(LogTag);  // 168
inline constexpr uint32_t kRevokesPerBlock =
    (kBlockSize - kLogPayloadOffset) / sizeof(Le64);  // 505

// Follows the BlockHeader of a commit block.
struct LogCommit {
  Le64 tid;
  LeS64 time;                 // ns since the epoch
  Le64 transaction_checksum;  // XXH3-64 (checksum_seed) over the header checksums (8 bytes each,
                              // as on disk) of the transaction's revoke and descriptor blocks,
                              // in log order: with the tags it covers every byte of it
  Le32 log_blocks;            // blocks of the transaction in the log, this one included
  Le32 flags;                 // kCommitSingleFlush
};
static_assert(OnDisk<LogCommit> && sizeof(LogCommit) == 32);
static_assert(offsetof(LogCommit, tid) == 0);
static_assert(offsetof(LogCommit, time) == 8);
static_assert(offsetof(LogCommit, transaction_checksum) == 16);
static_assert(offsetof(LogCommit, log_blocks) == 24);
static_assert(offsetof(LogCommit, flags) == 28);

// The commit block was written together with what it commits, under one flush: a transaction
// whose checksums do not match is incomplete, not corrupt. Reserved for commits that leave out
// the first flush; replay treats every last transaction that way.
inline constexpr uint32_t kCommitSingleFlush = 1u << 0;

inline LogRecordHeader* LogRecordOf(std::byte* block) {
  return As<LogRecordHeader>(block + kLogRecordOffset);
}
inline const LogRecordHeader* LogRecordOf(const std::byte* block) {
  return As<LogRecordHeader>(block + kLogRecordOffset);
}
inline LogTag* LogTagsOf(std::byte* block) { return As<LogTag>(block + kLogPayloadOffset); }
inline const LogTag* LogTagsOf(const std::byte* block) {
  return As<LogTag>(block + kLogPayloadOffset);
}
inline Le64* LogRevokesOf(std::byte* block) { return As<Le64>(block + kLogPayloadOffset); }
inline const Le64* LogRevokesOf(const std::byte* block) {
  return As<Le64>(block + kLogPayloadOffset);
}
inline LogCommit* LogCommitOf(std::byte* block) { return As<LogCommit>(block + kLogRecordOffset); }
inline const LogCommit* LogCommitOf(const std::byte* block) {
  return As<LogCommit>(block + kLogRecordOffset);
}

// Seals / checks the 512-byte journal superblock. Check: magic, checksum, log_blocks within the
// format's limits and equal to `expected_blocks`, tail inside the ring.
void SealJournalSuper(uint64_t seed, JournalSuper* super);
Error CheckJournalSuper(uint64_t seed, const JournalSuper& super, uint64_t expected_blocks);

}  // namespace sluice::format

#endif  // SLUICE_FORMAT_LOG_RECORD_H_
