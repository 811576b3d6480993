// SPDX-License-Identifier: Apache-2.0
#include "alloc/group_table.h"

#include <algorithm>
#include <atomic>

#include "format/inode.h"

namespace sluice {

using format::GroupDesc;

// The descriptors as last updated, so that readers need no table block's mutex (a commit may be
// copying the block), and the sums over them.
struct GroupTable::State {
  explicit State(const format::Geometry& geometry)
      : descs(geometry.group_count()),
        mutexes(new Mutex[BlockOf(geometry.group_count() - 1) + 1]) {}

  static size_t BlockOf(GroupNumber group) { return group / format::kGroupDescsPerBlock; }

  void Store(GroupNumber group, const GroupDesc& before, const GroupDesc& after) {
    Add(&free_blocks, before.free_blocks, after.free_blocks);
    Add(&free_inodes, before.free_inodes, after.free_inodes);
    Add(&directories, before.directories, after.directories);
    MutexLock lock(&mutexes[BlockOf(group)]);
    descs[group] = after;
  }

  static void Add(std::atomic<uint64_t>* sum, uint32_t before, uint32_t after) {
    if (before == after) return;
    sum->fetch_add(uint64_t{after} - uint64_t{before}, std::memory_order_relaxed);
  }

  // descs[g] is guarded by mutexes[BlockOf(g)].
  std::vector<GroupDesc> descs;
  const std::unique_ptr<Mutex[]> mutexes;
  std::atomic<uint64_t> free_blocks{0};
  std::atomic<uint64_t> pending_blocks{0};
  std::atomic<uint64_t> free_inodes{0};
  std::atomic<uint64_t> directories{0};
};

GroupTable::GroupTable(BufferCache* cache, const format::Geometry& geometry)
    : cache_(cache), geometry_(geometry), state_(new State(geometry)) {}

GroupTable::~GroupTable() = default;

Result<std::unique_ptr<GroupTable>> GroupTable::Load(BufferCache* cache,
                                                     const format::Geometry& geometry) {
  std::unique_ptr<GroupTable> table(new GroupTable(cache, geometry));
  for (GroupNumber first = 0; first < geometry.group_count();
       first += format::kGroupDescsPerBlock) {
    RETURN_IF_ERROR(table->ReadBlock(first));
  }
  return table;
}

Error GroupTable::ReadBlock(GroupNumber first) {
  ASSIGN_OR_RETURN(BufferRef buffer, cache_->GetBlocking(geometry_.DescriptorBlock(first),
                                                         {.kind = format::BlockKind::kGroupTable}));
  const GroupNumber end =
      std::min<GroupNumber>(first + format::kGroupDescsPerBlock, geometry_.group_count());
  {
    ReaderMutexLock lock(&buffer->mutex());
    for (GroupNumber group = first; group < end; ++group) {
      const GroupDesc& desc =
          *format::GroupDescAt(buffer->data(), geometry_.DescriptorIndex(group));
      RETURN_IF_ERROR(format::CheckGroupDesc(geometry_, group, desc, nullptr));
      state_->Store(group, GroupDesc{}, desc);
    }
  }
  blocks_.push_back(std::move(buffer));
  return Error::kOk;
}

void GroupTable::Seal(BlockNumber block, format::BlockKind kind, format::BlockSpan copy) {
  switch (kind) {
    case format::BlockKind::kBlockBitmap:
    case format::BlockKind::kInodeBitmap:
      return;
    case format::BlockKind::kInodeTable: {
      // Tables are packed in the first group of their flexible group, one behind the other.
      const GroupNumber flex =
          geometry_.GroupOfBlock(block) / geometry_.groups_per_flex() * geometry_.groups_per_flex();
      const BlockNumber index = block - geometry_.InodeTable(flex);
      const InodeNumber first =
          InodeNumber{flex} * geometry_.inodes_per_group() + index * format::kInodesPerBlock + 1;
      format::SealInodeTable(cache_->seed(), first, copy);
      return;
    }
    default:
      format::SealBlock(cache_->seed(), copy);
  }
}

SpaceTotals GroupTable::totals() const {
  SpaceTotals totals;
  totals.free_blocks = state_->free_blocks.load(std::memory_order_relaxed);
  totals.pending_blocks = state_->pending_blocks.load(std::memory_order_relaxed);
  totals.free_inodes = state_->free_inodes.load(std::memory_order_relaxed);
  totals.directories = state_->directories.load(std::memory_order_relaxed);
  return totals;
}

GroupDesc GroupTable::Get(GroupNumber group) const {
  ReaderMutexLock lock(&state_->mutexes[State::BlockOf(group)]);
  return state_->descs[group];
}

void GroupTable::Update(Handle& handle, GroupNumber group,
                        const std::function<void(GroupDesc&)>& edit) {
  BlockEdit block = handle.Edit(blocks_[State::BlockOf(group)]);
  GroupDesc* desc = format::GroupDescAt(block.data(), geometry_.DescriptorIndex(group));
  const GroupDesc before = *desc;
  edit(*desc);
  // Within the edit, so that two updates of one descriptor are stored in their order.
  state_->Store(group, before, *desc);
}

uint64_t GroupTable::BitmapChecksum(format::ConstBlockSpan bitmap) const {
  return format::Checksum(cache_->seed(), bitmap);
}

void GroupTable::AddPending(int64_t blocks) {
  state_->pending_blocks.fetch_add(static_cast<uint64_t>(blocks), std::memory_order_relaxed);
}

}  // namespace sluice
