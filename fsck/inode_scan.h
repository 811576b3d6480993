// SPDX-License-Identifier: Apache-2.0
//
// Reads the inode tables, as far as they were ever used, in large pieces.
#ifndef SLUICE_FSCK_INODE_SCAN_H_
#define SLUICE_FSCK_INODE_SCAN_H_

#include <algorithm>

#include "base/aligned_buffer.h"
#include "format/inode.h"
#include "fsck/check_state.h"

namespace sluice {

// Thread-compatible; holds the buffer for any number of groups.
class InodeScan {
 public:
  explicit InodeScan(CheckState* state) : state_(state) {}

  // Calls visit(ino, record) for each record of the group below its high-water mark.
  template <typename Visit>
  void Group(GroupNumber group, const Visit& visit) {
    const uint32_t blocks = state_->groups[group].desc.inode_table_used / format::kInodesPerBlock;
    for (uint32_t done = 0; done < blocks; done += kChunkBlocks) {
      const uint32_t count = std::min(kChunkBlocks, blocks - done);
      const uint64_t bytes = uint64_t{count} << kBlockShift;
      if (buffer_.size() < bytes) buffer_ = AlignedBuffer(bytes);
      state_->Read(state_->geometry.InodeTable(group) + done, buffer_.span().first(bytes));
      const InodeNumber first = InodeNumber{group} * state_->geometry.inodes_per_group() + 1 +
                                uint64_t{done} * format::kInodesPerBlock;
      for (uint32_t i = 0; i < count * format::kInodesPerBlock; ++i) {
        visit(first + i, *format::As<format::Inode>(static_cast<const std::byte*>(buffer_.data()) +
                                                    uint64_t{i} * format::kInodeSize));
      }
    }
  }

 private:
  static constexpr uint32_t kChunkBlocks = 256;

  CheckState* const state_;
  AlignedBuffer buffer_;
};

// Whether the record's `root` is the root of an extent tree.
bool HasExtents(const format::Inode& inode);

inline const std::byte* RootOf(const format::Inode& inode) {
  return reinterpret_cast<const std::byte*>(inode.root);
}

}  // namespace sluice

#endif  // SLUICE_FSCK_INODE_SCAN_H_
