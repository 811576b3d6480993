// SPDX-License-Identifier: Apache-2.0
#include "alloc/inode_group.h"

#include <algorithm>
#include <array>
#include <utility>

namespace sluice {

Result<std::unique_ptr<InodeGroup>> InodeGroup::Make(const format::Geometry& geometry,
                                                     const format::GroupDesc& desc, uint64_t seed,
                                                     BufferRef bitmap) {
  const uint32_t inodes = geometry.inodes_per_group();
  std::unique_ptr<InodeGroup> made(new InodeGroup(inodes));
  MutexLock lock(&made->mutex);
  {
    ReaderMutexLock buffer_lock(&bitmap->mutex());
    const format::ConstBlockSpan bytes = std::as_const(*bitmap).span();
    if (format::Checksum(seed, bytes) != desc.inode_bitmap_checksum) return Error::kCorrupt;
    if (!AllBitsSet(bytes, inodes, format::kBitsPerBlock - inodes)) return Error::kCorrupt;
    made->busy_.CopyFrom(bytes);
  }
  made->available_ = made->busy_.CountClear(inodes);
  if (made->available_ != desc.free_inodes) return Error::kCorrupt;
  if (made->busy_.NextSet(desc.inode_table_used, inodes) != inodes) return Error::kCorrupt;
  made->bitmap = std::move(bitmap);
  return made;
}

std::unique_ptr<InodeGroup> InodeGroup::MakeUninit(const format::Geometry& geometry) {
  std::array<std::byte, kBlockSize> bytes = {};
  geometry.MarkInodePadding(format::BlockSpan(bytes));
  std::unique_ptr<InodeGroup> made(new InodeGroup(geometry.inodes_per_group()));
  MutexLock lock(&made->mutex);
  made->busy_.CopyFrom(format::ConstBlockSpan(bytes));
  made->available_ = geometry.inodes_per_group();
  return made;
}

std::optional<uint32_t> InodeGroup::TakeLowest() {
  const uint32_t index = busy_.NextClear(lowest_, inodes_);
  lowest_ = index;
  if (index == inodes_) return std::nullopt;
  busy_.Set(index, 1);
  --available_;
  return index;
}

void InodeGroup::Release(uint32_t index) {
  busy_.Clear(index, 1);
  ++available_;
  lowest_ = std::min(lowest_, index);
}

}  // namespace sluice
