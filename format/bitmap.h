// SPDX-License-Identifier: Apache-2.0
//
// Bits of a bitmap block: bit i is bit i % 8 (0 is the lowest) of byte i / 8. Set means in use.
#ifndef SLUICE_FORMAT_BITMAP_H_
#define SLUICE_FORMAT_BITMAP_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "format/block_header.h"

namespace sluice::format {

inline constexpr uint32_t kBitsPerBlock = kBlockSize * 8;

// Requires bit < kBitsPerBlock.
inline bool TestBit(ConstBlockSpan bitmap, uint32_t bit) {
  return (std::to_integer<uint32_t>(bitmap[bit / 8]) >> (bit % 8) & 1) != 0;
}
inline void SetBit(BlockSpan bitmap, uint32_t bit) {
  bitmap[bit / 8] |= std::byte{static_cast<uint8_t>(1u << (bit % 8))};
}
inline void ClearBit(BlockSpan bitmap, uint32_t bit) {
  bitmap[bit / 8] &= ~std::byte{static_cast<uint8_t>(1u << (bit % 8))};
}

// Sets bits [first, first + count). Requires first + count <= kBitsPerBlock.
inline void SetBits(BlockSpan bitmap, uint32_t first, uint32_t count) {
  uint32_t bit = first;
  const uint32_t end = first + count;
  for (; bit < end && bit % 8 != 0; ++bit) SetBit(bitmap, bit);
  for (; bit + 8 <= end; bit += 8) bitmap[bit / 8] = std::byte{0xff};
  for (; bit < end; ++bit) SetBit(bitmap, bit);
}

// How many of the first `bits` bits are set. Requires bits <= kBitsPerBlock.
inline uint32_t CountSetBits(ConstBlockSpan bitmap, uint32_t bits) {
  uint32_t set = 0;
  for (uint32_t byte = 0; byte < bits / 8; ++byte) {
    set += std::popcount(std::to_integer<uint8_t>(bitmap[byte]));
  }
  for (uint32_t bit = bits / 8 * 8; bit < bits; ++bit) set += TestBit(bitmap, bit) ? 1 : 0;
  return set;
}

}  // namespace sluice::format

#endif  // SLUICE_FORMAT_BITMAP_H_
