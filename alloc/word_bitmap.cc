// SPDX-License-Identifier: Apache-2.0
#include "alloc/word_bitmap.h"

#include <algorithm>
#include <bit>

#include "format/endian.h"

namespace sluice {

namespace {

// Bits [from, to) of a word; 0 <= from < to <= 64.
uint64_t Mask(uint32_t from, uint32_t to) { return (~uint64_t{0} >> (64 - (to - from))) << from; }

// Calls `visit(word index, mask)` for each word that [first, first + count) touches.
template <typename Visit>
void ForEachWord(uint32_t first, uint32_t count, Visit visit) {
  const uint32_t end = first + count;
  while (first < end) {
    const uint32_t word_end = std::min(end, (first / 64 + 1) * 64);
    visit(first / 64, Mask(first % 64, word_end - first / 64 * 64));
    first = word_end;
  }
}

}  // namespace

void WordBitmap::CopyFrom(format::ConstBlockSpan block) {
  for (size_t i = 0; i < words_.size(); ++i) {
    words_[i] = *format::As<format::Le64>(block.data() + i * sizeof(uint64_t));
  }
}

void WordBitmap::Set(uint32_t first, uint32_t count) {
  ForEachWord(first, count, [this](uint32_t word, uint64_t mask) { words_[word] |= mask; });
}

void WordBitmap::Clear(uint32_t first, uint32_t count) {
  ForEachWord(first, count, [this](uint32_t word, uint64_t mask) { words_[word] &= ~mask; });
}

template <bool kClear>
uint32_t WordBitmap::Next(uint32_t from, uint32_t end) const {
  if (from >= end) return end;
  uint32_t word = from / 64;
  const uint32_t last = (end - 1) / 64;
  uint64_t wanted = (kClear ? ~words_[word] : words_[word]) & (~uint64_t{0} << (from % 64));
  while (wanted == 0) {
    if (++word > last) return end;
    wanted = kClear ? ~words_[word] : words_[word];
  }
  return std::min(end, word * 64 + static_cast<uint32_t>(std::countr_zero(wanted)));
}

template uint32_t WordBitmap::Next<true>(uint32_t, uint32_t) const;
template uint32_t WordBitmap::Next<false>(uint32_t, uint32_t) const;

uint32_t WordBitmap::ClearRunStart(uint32_t bit) const {
  uint32_t word = bit / 64;
  uint64_t set = words_[word] & Mask(0, bit % 64 + 1);
  while (set == 0) {
    if (word == 0) return 0;
    set = words_[--word];
  }
  return word * 64 + 64 - static_cast<uint32_t>(std::countl_zero(set));
}

uint32_t WordBitmap::CountClear(uint32_t end) const {
  uint32_t set = 0;
  ForEachWord(0, end, [&](uint32_t word, uint64_t mask) {
    set += static_cast<uint32_t>(std::popcount(words_[word] & mask));
  });
  return end - set;
}

uint32_t WordBitmap::LongestClear(uint32_t end) const {
  uint32_t longest = 0;
  for (uint32_t start = NextClear(0, end); start < end;) {
    const uint32_t stop = NextSet(start, end);
    longest = std::max(longest, stop - start);
    start = NextClear(stop, end);
  }
  return longest;
}

bool AllBitsSet(format::ConstBlockSpan bitmap, uint32_t first, uint32_t count) {
  uint32_t bit = first;
  const uint32_t end = first + count;
  for (; bit < end && bit % 8 != 0; ++bit) {
    if (!format::TestBit(bitmap, bit)) return false;
  }
  for (; bit + 8 <= end; bit += 8) {
    if (bitmap[bit / 8] != std::byte{0xff}) return false;
  }
  for (; bit < end; ++bit) {
    if (!format::TestBit(bitmap, bit)) return false;
  }
  return true;
}

void ClearBits(format::BlockSpan bitmap, uint32_t first, uint32_t count) {
  const auto clear = [&](uint32_t bit) {
    bitmap[bit / 8] &= ~std::byte{static_cast<uint8_t>(1u << (bit % 8))};
  };
  uint32_t bit = first;
  const uint32_t end = first + count;
  for (; bit < end && bit % 8 != 0; ++bit) clear(bit);
  for (; bit + 8 <= end; bit += 8) bitmap[bit / 8] = std::byte{0};
  for (; bit < end; ++bit) clear(bit);
}

}  // namespace sluice
