// SPDX-License-Identifier: Apache-2.0
#include "alloc/group_index.h"

#include <bit>

namespace sluice {

namespace {

// The largest order with 2^order <= length.
int FloorOrder(uint32_t length) { return std::bit_width(length) - 1; }
// The smallest order whose groups surely have a run of `length`.
int CeilOrder(uint32_t length) { return std::bit_width(length - 1); }

}  // namespace

void GroupIndex::Set(GroupNumber group, uint32_t longest) {
  const uint8_t order = longest == 0 ? kAbsent : static_cast<uint8_t>(FloorOrder(longest));
  if (order == orders_[group]) return;
  if (orders_[group] != kAbsent) groups_[orders_[group]].erase(group);
  if (order != kAbsent) groups_[order].insert(group);
  orders_[group] = order;
}

bool GroupIndex::Promises(GroupNumber group, uint32_t wanted) const {
  return Contains(group) && orders_[group] >= CeilOrder(wanted);
}

std::optional<GroupNumber> GroupIndex::Nearest(int order, GroupNumber goal) const {
  const absl::btree_set<GroupNumber>& groups = groups_[order];
  if (groups.empty()) return std::nullopt;
  const auto at = groups.lower_bound(goal);
  return at == groups.end() ? *groups.begin() : *at;
}

std::optional<GroupNumber> GroupIndex::Find(GroupNumber goal, uint32_t wanted) const {
  const auto count = static_cast<GroupNumber>(orders_.size());
  std::optional<GroupNumber> best;
  for (int order = CeilOrder(wanted); order < kOrders; ++order) {
    const std::optional<GroupNumber> found = Nearest(order, goal);
    if (!found) continue;
    if (!best || RingDistance(goal, *found, count) < RingDistance(goal, *best, count)) best = found;
  }
  for (int order = CeilOrder(wanted) - 1; !best && order >= 0; --order) best = Nearest(order, goal);
  return best;
}

}  // namespace sluice
