// SPDX-License-Identifier: Apache-2.0
//
// Which groups have free blocks, by the order of magnitude of their longest free run, so that a
// search never walks over all groups of a large image.
#ifndef SLUICE_ALLOC_GROUP_INDEX_H_
#define SLUICE_ALLOC_GROUP_INDEX_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/btree_set.h"
#include "base/units.h"

namespace sluice {

// Distance from group `from` forward to group `to` of `count` groups in a ring.
inline GroupNumber RingDistance(GroupNumber from, GroupNumber to, GroupNumber count) {
  return to >= from ? to - from : to + (count - from);
}

// Thread-compatible.
class GroupIndex {
 public:
  explicit GroupIndex(GroupNumber groups) : orders_(groups, kAbsent) {}

  // Notes a group with an upper bound of its longest free run; 0 takes it out.
  void Set(GroupNumber group, uint32_t longest);
  bool Contains(GroupNumber group) const { return orders_[group] != kAbsent; }
  // Whether the group may have a run of `wanted` blocks, as far as the orders tell.
  bool Promises(GroupNumber group, uint32_t wanted) const;

  // The group nearest to `goal` (forward, around) that promises `wanted`; if there is none, the
  // nearest of those with the longest runs.
  std::optional<GroupNumber> Find(GroupNumber goal, uint32_t wanted) const;

 private:
  static constexpr uint8_t kAbsent = 0xff;
  static constexpr int kOrders = 16;  // runs of 2^order blocks and more; a group has 2^15

  std::optional<GroupNumber> Nearest(int order, GroupNumber goal) const;

  std::vector<uint8_t> orders_;
  std::array<absl::btree_set<GroupNumber>, kOrders> groups_;
};

}  // namespace sluice

#endif  // SLUICE_ALLOC_GROUP_INDEX_H_
