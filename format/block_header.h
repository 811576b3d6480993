// SPDX-License-Identifier: Apache-2.0
//
// The header that starts every self-describing metadata block, and the checksum over it. A block
// is sealed once, on the copy that is written, and verified once, when it is read. The checksum
// covers the seed of the image, so another image's block never passes; the header carries the
// block's own number and its owner, so a block written to the wrong place, or a freed block's old
// contents, never pass either.
//
// Not self-describing, because they are full of bits or records: block and inode bitmaps (their
// checksums are in the group descriptor), inode table blocks (each inode has its own checksum),
// and data.
#ifndef SLUICE_FORMAT_BLOCK_HEADER_H_
#define SLUICE_FORMAT_BLOCK_HEADER_H_

#include <cstddef>
#include <span>

#include "base/error.h"
#include "base/units.h"
#include "format/endian.h"

namespace sluice::format {

// What a metadata block is. The numbers are on disk (header field `kind`) for those with a
// header; the journal seals in ascending order of these numbers, since descriptors carry the
// bitmaps' checksums.
enum class BlockKind : uint16_t {
  kBlockBitmap = 1,  // no header
  kInodeBitmap = 2,  // no header
  kInodeTable = 3,   // no header; 16 inodes
  kGroupTable = 4,   // group descriptors
  kExtent = 5,       // extent index or leaf
  kDirectory = 6,    // directory index or leaf
  kXattr = 7,
  kOrphan = 8,  // block of the orphan file
  kLogDescriptor = 16,
  kLogRevoke = 17,
  kLogCommit = 18,
};

inline constexpr uint32_t kBlockMagic = 0x43554c53;  // "SLUC" as bytes
inline constexpr uint16_t kBlockVersion = 1;

struct BlockHeader {
  Le32 magic;
  Le16 kind;
  Le16 version;
  Le64 checksum;    // XXH3-64, seeded, over the whole block with this field zero
  Le64 block;       // own block number (log blocks: their index within the log)
  Le64 owner;       // inode that owns it; 0 for the filesystem's own (log blocks: incarnation)
  Le32 generation;  // of the owner inode; 0 where the owner is 0
  Le32 reserved;
};
static_assert(OnDisk<BlockHeader>);
static_assert(sizeof(BlockHeader) == 40);
static_assert(offsetof(BlockHeader, magic) == 0);
static_assert(offsetof(BlockHeader, kind) == 4);
static_assert(offsetof(BlockHeader, version) == 6);
static_assert(offsetof(BlockHeader, checksum) == 8);
static_assert(offsetof(BlockHeader, block) == 16);
static_assert(offsetof(BlockHeader, owner) == 24);
static_assert(offsetof(BlockHeader, generation) == 32);
static_assert(offsetof(BlockHeader, reserved) == 36);

using BlockSpan = std::span<std::byte, kBlockSize>;
using ConstBlockSpan = std::span<const std::byte, kBlockSize>;

// Who a block must belong to for a reader to believe it.
struct BlockIdentity {
  BlockKind kind;
  InodeNumber owner = 0;
  uint32_t generation = 0;
};

// XXH3-64 of `bytes` with the image's checksum seed. A bitmap's checksum is this over its block.
uint64_t Checksum(uint64_t seed, std::span<const std::byte> bytes);
// The same with the 8 bytes at `checksum_offset` taken as zero. For at most a block.
uint64_t ChecksumSkipping(uint64_t seed, std::span<const std::byte> bytes, size_t checksum_offset);

// Whether blocks of this kind begin with a BlockHeader.
bool HasHeader(BlockKind kind);

// Whether a number from disk is a BlockKind that this version knows.
bool IsKnownKind(uint16_t kind);

// Fills the header of a new block (magic, kind, version, block, owner, generation; checksum 0).
void InitHeader(BlockSpan block, BlockNumber number, const BlockIdentity& identity);

// Makes a block that has a header ready to be written: sets the checksum in it. Kinds without a
// header are sealed by who knows their place (SealInodeTable; the bitmaps' checksums go into the
// group table).
void SealBlock(uint64_t seed, BlockSpan copy);

// kCorrupt unless the block is what `identity` says, at `number`, with a right checksum. Kinds
// without a header pass (their checksums are elsewhere). Does not look behind the header:
// structure is checked by the kind's own Check function. With kCorrupt `*reason`, if given, is
// set to a text for a person, without a newline; it lives forever.
Error VerifyBlock(uint64_t seed, BlockNumber number, const BlockIdentity& identity,
                  ConstBlockSpan block, const char** reason = nullptr);

// A typed view of a structure within a block. Offsets are the callers' to keep in range.
template <OnDisk T>
T* As(std::byte* bytes) {
  return reinterpret_cast<T*>(bytes);
}
template <OnDisk T>
const T* As(const std::byte* bytes) {
  return reinterpret_cast<const T*>(bytes);
}

}  // namespace sluice::format

#endif  // SLUICE_FORMAT_BLOCK_HEADER_H_
