// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a simulated disk: a sparse map of 4 KiB blocks over a poison pattern. Blocks are
// shared between images until one writes, so a copy costs a map and a view of a frozen image costs
// nothing. What was never written reads as poison, never as zeros: code that relies on zeros it
// has not written is found out.
#ifndef SLUICE_BLOCK_MEMORY_IMAGE_H_
#define SLUICE_BLOCK_MEMORY_IMAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "base/units.h"

namespace sluice {

inline constexpr std::byte kPoisonByte{0xd6};

// Thread-compatible. Const use of one image by many threads is safe.
class MemoryImage {
 public:
  using Block = std::array<std::byte, kBlockSize>;

  // Every byte reads as `fill` until it is written.
  explicit MemoryImage(uint64_t size, std::byte fill = kPoisonByte) : size_(size), fill_(fill) {}
  // A view: reads what it does not have itself from `parent`, which nobody changes any more.
  explicit MemoryImage(std::shared_ptr<const MemoryImage> parent)
      : size_(parent->size_), fill_(parent->fill_), parent_(std::move(parent)) {}

  uint64_t size() const { return size_; }
  std::byte fill() const { return fill_; }

  // A second image with the same contents. Both copy a block before they write to it from now on.
  MemoryImage Share();

  // Any alignment; the range lies inside the image.
  void Read(uint64_t offset, std::span<std::byte> data) const;
  void Write(uint64_t offset, std::span<const std::byte> data);
  // Makes the range unwritten again: it reads as the fill byte.
  void Erase(uint64_t offset, uint64_t length);
  // Takes a whole block without copying it; the block must never change again.
  void Adopt(BlockNumber block, std::shared_ptr<const Block> bytes);

  // Null: unwritten, all fill.
  const Block* Find(BlockNumber block) const;

 private:
  struct Slot {
    std::shared_ptr<const Block> bytes;
    bool owned = false;  // nobody else has it: it may be written in place
  };
  std::byte* Writable(BlockNumber block);

  uint64_t size_;
  std::byte fill_;
  std::shared_ptr<const MemoryImage> parent_;
  absl::flat_hash_map<BlockNumber, Slot> blocks_;
};

}  // namespace sluice

#endif  // SLUICE_BLOCK_MEMORY_IMAGE_H_
