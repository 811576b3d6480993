// SPDX-License-Identifier: Apache-2.0
//
// Which blocks have an owner: a bit for each, in memory only for groups that have any.
#ifndef SLUICE_FSCK_BLOCK_MAP_H_
#define SLUICE_FSCK_BLOCK_MAP_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "format/bitmap.h"
#include "format/geometry.h"

namespace sluice {

// Thread-compatible.
class BlockMap {
 public:
  using Bits = std::array<std::byte, kBlockSize>;

  explicit BlockMap(GroupNumber groups) : groups_(groups) {}

  // Marks the range, which lies inside the image. `taken(range)` is called for each part that was
  // marked before.
  template <typename Taken>
  void Claim(format::BlockRange range, const Taken& taken) {
    while (range.count != 0) {
      const GroupNumber group = static_cast<GroupNumber>(range.start / format::kBlocksPerGroup);
      const uint32_t first = static_cast<uint32_t>(range.start % format::kBlocksPerGroup);
      const uint32_t count =
          static_cast<uint32_t>(std::min<BlockCount>(range.count, format::kBlocksPerGroup - first));
      ClaimInGroup(group, first, count, taken);
      range.start += count;
      range.count -= count;
    }
  }

  // Null: nothing in the group is marked.
  const Bits* Find(GroupNumber group) const { return groups_[group].get(); }

 private:
  template <typename Taken>
  void ClaimInGroup(GroupNumber group, uint32_t first, uint32_t count, const Taken& taken) {
    std::unique_ptr<Bits>& bits = groups_[group];
    if (bits == nullptr) {
      bits = std::make_unique<Bits>();
      bits->fill(std::byte{0});
    }
    const format::BlockSpan span(*bits);
    const BlockNumber base = BlockNumber{group} * format::kBlocksPerGroup;
    if (AnySet(span, first, count)) {
      for (uint32_t bit = first; bit < first + count;) {
        uint32_t end = bit;
        while (end < first + count && format::TestBit(span, end)) ++end;
        if (end > bit) taken(format::BlockRange{base + bit, end - bit});
        bit = end + 1;
      }
    }
    format::SetBits(span, first, count);
  }

  static bool AnySet(format::ConstBlockSpan span, uint32_t first, uint32_t count) {
    uint32_t bit = first;
    const uint32_t end = first + count;
    for (; bit < end && bit % 8 != 0; ++bit) {
      if (format::TestBit(span, bit)) return true;
    }
    for (; bit + 8 <= end; bit += 8) {
      if (span[bit / 8] != std::byte{0}) return true;
    }
    for (; bit < end; ++bit) {
      if (format::TestBit(span, bit)) return true;
    }
    return false;
  }

  std::vector<std::unique_ptr<Bits>> groups_;
};

}  // namespace sluice

#endif  // SLUICE_FSCK_BLOCK_MAP_H_
