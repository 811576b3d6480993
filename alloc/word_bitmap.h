// SPDX-License-Identifier: Apache-2.0
//
// A bitmap block in memory as 64-bit words, for fast searches: what the allocators may hand out.
// Bit i is that of format/bitmap.h; set means not available.
#ifndef SLUICE_ALLOC_WORD_BITMAP_H_
#define SLUICE_ALLOC_WORD_BITMAP_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "format/bitmap.h"
#include "format/block_header.h"

namespace sluice {

// Thread-compatible. Bit numbers are below kBits; ranges are half open and lie within kBits.
class WordBitmap {
 public:
  static constexpr uint32_t kBits = format::kBitsPerBlock;

  void CopyFrom(format::ConstBlockSpan block);

  bool Test(uint32_t bit) const { return (words_[bit / 64] >> (bit % 64) & 1) != 0; }
  void Set(uint32_t first, uint32_t count);
  void Clear(uint32_t first, uint32_t count);

  // The first clear / set bit of [from, end); `end` if there is none.
  uint32_t NextClear(uint32_t from, uint32_t end) const { return Next<true>(from, end); }
  uint32_t NextSet(uint32_t from, uint32_t end) const { return Next<false>(from, end); }
  // The first bit of the run of clear bits that ends with `bit` (which is clear).
  uint32_t ClearRunStart(uint32_t bit) const;
  // Clear bits of [0, end).
  uint32_t CountClear(uint32_t end) const;
  // Length of the longest run of clear bits of [0, end).
  uint32_t LongestClear(uint32_t end) const;

 private:
  template <bool kClear>
  uint32_t Next(uint32_t from, uint32_t end) const;

  std::array<uint64_t, kBits / 64> words_ = {};
};

// The same on the bytes of a bitmap block.
bool AllBitsSet(format::ConstBlockSpan bitmap, uint32_t first, uint32_t count);
void ClearBits(format::BlockSpan bitmap, uint32_t first, uint32_t count);

}  // namespace sluice

#endif  // SLUICE_ALLOC_WORD_BITMAP_H_
