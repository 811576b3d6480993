// SPDX-License-Identifier: Apache-2.0
#include "format/block_header.h"

#include <xxhash.h>

#include <array>
#include <cstring>

#include "base/check.h"

namespace sluice::format {

uint64_t Checksum(uint64_t seed, std::span<const std::byte> bytes) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

uint64_t ChecksumSkipping(uint64_t seed, std::span<const std::byte> bytes, size_t checksum_offset) {
  // A copy and one call is faster than xxHash's streaming form at these sizes.
  std::array<std::byte, kBlockSize> copy;
  SLUICE_CHECK(bytes.size() <= copy.size() && checksum_offset + 8 <= bytes.size());
  std::memcpy(copy.data(), bytes.data(), bytes.size());
  std::memset(copy.data() + checksum_offset, 0, 8);
  return Checksum(seed, std::span(copy).first(bytes.size()));
}

bool HasHeader(BlockKind kind) {
  return kind != BlockKind::kBlockBitmap && kind != BlockKind::kInodeBitmap &&
         kind != BlockKind::kInodeTable;
}

bool IsKnownKind(uint16_t kind) {
  return (kind >= static_cast<uint16_t>(BlockKind::kBlockBitmap) &&
          kind <= static_cast<uint16_t>(BlockKind::kOrphan)) ||
         (kind >= static_cast<uint16_t>(BlockKind::kLogDescriptor) &&
          kind <= static_cast<uint16_t>(BlockKind::kLogCommit));
}

void InitHeader(BlockSpan block, BlockNumber number, const BlockIdentity& identity) {
  BlockHeader* header = As<BlockHeader>(block.data());
  header->magic = kBlockMagic;
  header->kind = static_cast<uint16_t>(identity.kind);
  header->version = kBlockVersion;
  header->checksum = 0;
  header->block = number;
  header->owner = identity.owner;
  header->generation = identity.generation;
  header->reserved = 0;
}

void SealBlock(uint64_t seed, BlockSpan copy) {
  BlockHeader* header = As<BlockHeader>(copy.data());
  header->checksum = 0;
  header->checksum = Checksum(seed, copy);
}

namespace {

// What is wrong with the header, or null.
const char* HeaderProblem(const BlockHeader& header, BlockNumber number,
                          const BlockIdentity& identity) {
  if (header.magic != kBlockMagic) return "no block magic";
  if (header.version != kBlockVersion) return "unknown block version";
  if (header.kind != static_cast<uint16_t>(identity.kind)) return "block is of another kind";
  if (header.block != number) return "block carries another block number";
  if (header.owner != identity.owner) return "block belongs to another owner";
  if (header.generation != identity.generation) return "block belongs to another generation";
  return nullptr;
}

}  // namespace

Error VerifyBlock(uint64_t seed, BlockNumber number, const BlockIdentity& identity,
                  ConstBlockSpan block, const char** reason) {
  if (!HasHeader(identity.kind)) return Error::kOk;
  const BlockHeader* header = As<BlockHeader>(block.data());
  const char* problem = HeaderProblem(*header, number, identity);
  if (problem == nullptr &&
      header->checksum != ChecksumSkipping(seed, block, offsetof(BlockHeader, checksum))) {
    problem = "wrong block checksum";
  }
  if (problem == nullptr) return Error::kOk;
  if (reason != nullptr) *reason = problem;
  return Error::kCorrupt;
}

}  // namespace sluice::format
