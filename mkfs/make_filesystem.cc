// SPDX-License-Identifier: Apache-2.0
#include "mkfs/make_filesystem.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "base/aligned_buffer.h"
#include "format/bitmap.h"
#include "format/directory.h"
#include "format/extent.h"
#include "format/group_desc.h"
#include "format/inode.h"
#include "format/journal_device.h"
#include "journal/log_area.h"

namespace sluice {

namespace {

using format::BlockKind;
using format::BlockRange;
using format::BlockSpan;
using format::GroupDesc;

constexpr uint64_t kChunk = uint64_t{4} << 20;  // bytes of one large write
constexpr uint32_t kReservedGeneration = 1;     // of the inodes that mkfs makes

class Writer {
 public:
  Writer(Device* device, const MkfsOptions& options, const MkfsLayout& layout,
         const MkfsProgress& progress)
      : device_(device),
        options_(options),
        layout_(layout),
        geometry_(layout.geometry),
        seed_(layout.super.fixed.checksum_seed),
        progress_(progress),
        zeros_(kChunk) {
    std::memset(zeros_.data(), 0, zeros_.size());
    const bool external = format::HasExternalJournal(layout.super.fixed);
    BlockCount blocks = options.write_everything ? geometry_.block_count() : 0;
    if (external || !options.write_everything) blocks += layout.journal_blocks();
    total_ = blocks << kBlockShift;
  }

  Error Run() {
    RETURN_IF_ERROR(EraseSuperblocks());
    if (options_.write_everything) RETURN_IF_ERROR(WriteZeros({0, geometry_.block_count()}));
    RETURN_IF_ERROR(WriteJournal());
    RETURN_IF_ERROR(WriteOrphanFile());
    RETURN_IF_ERROR(WriteInodes());
    RETURN_IF_ERROR(WriteGroups());
    RETURN_IF_ERROR(device_->Flush());
    return WriteSuperblocks();
  }

 private:
  static BlockSpan SpanOf(AlignedBuffer* block) { return BlockSpan(block->data(), kBlockSize); }

  static AlignedBuffer ZeroBlock() {
    AlignedBuffer block(kBlockSize);
    std::memset(block.data(), 0, kBlockSize);
    return block;
  }

  Error WriteBlock(BlockNumber block, const AlignedBuffer& bytes) {
    return device_->Write(block << kBlockShift, bytes.span());
  }

  Error WriteZeros(BlockRange range) {
    uint64_t offset = range.start << kBlockShift;
    const uint64_t end = (range.start + range.count) << kBlockShift;
    while (offset < end) {
      const uint64_t length = std::min(kChunk, end - offset);
      RETURN_IF_ERROR(device_->Write(offset, zeros_.span().first(length)));
      offset += length;
      done_ += length;
      if (progress_) progress_(done_, total_);
    }
    return Error::kOk;
  }

  // Calls `use(group)` for each group with a superblock, the primary's last.
  template <typename Use>
  Error ForEachSuperblock(const Use& use) {
    for (GroupNumber group = 1; group < geometry_.group_count(); ++group) {
      if (format::IsBackupGroup(group)) RETURN_IF_ERROR(use(group));
    }
    return use(0);
  }

  Error EraseSuperblocks() {
    const AlignedBuffer block = ZeroBlock();
    RETURN_IF_ERROR(ForEachSuperblock(
        [&](GroupNumber group) { return WriteBlock(geometry_.GroupStart(group), block); }));
    return device_->Flush();
  }

  Error WriteSuperblocks() {
    AlignedBuffer block = ZeroBlock();
    RETURN_IF_ERROR(ForEachSuperblock([&](GroupNumber group) -> Error {
      // The primary is the promise that everything else is there.
      if (group == 0) RETURN_IF_ERROR(device_->Flush());
      format::SerializeSuperblock(layout_.super, group, SpanOf(&block));
      return WriteBlock(geometry_.GroupStart(group), block);
    }));
    return device_->Flush();
  }

  // All of the log is written, so that a log write never has to allocate where the image lies.
  Error WriteJournal() {
    if (!options_.write_everything) {
      for (const BlockRange& run : layout_.journal) RETURN_IF_ERROR(WriteZeros(run));
    }
    if (format::HasExternalJournal(layout_.super.fixed)) {
      RETURN_IF_ERROR(WriteZeros({geometry_.block_count(), layout_.journal_blocks()}));
    }
    LogArea log(layout_.super);
    log.state.incarnation = options_.log_incarnation;
    log.state.tail_tid = 1;
    RETURN_IF_ERROR(log.WriteState(device_));
    return log.WriteState(device_);
  }

  Error WriteOrphanFile() {
    AlignedBuffer block = ZeroBlock();
    for (uint64_t i = 0; i < layout_.orphan_file.count; ++i) {
      const BlockNumber number = layout_.orphan_file.start + i;
      format::InitHeader(SpanOf(&block), number,
                         {BlockKind::kOrphan, format::kOrphanInode, kReservedGeneration});
      format::SealBlock(seed_, SpanOf(&block));
      RETURN_IF_ERROR(WriteBlock(number, block));
    }
    return Error::kOk;
  }

  static std::byte* RootOf(format::Inode* inode) {
    return reinterpret_cast<std::byte*>(inode->root);
  }

  void InitInode(uint16_t mode, uint32_t links, format::Inode* inode) {
    inode->mode = mode;
    inode->links = links;
    inode->generation = kReservedGeneration;
    inode->atime = options_.time;
    inode->mtime = options_.time;
    inode->ctime = options_.time;
    inode->btime = options_.time;
    format::InitExtentNode(RootOf(inode), format::kInlineExtents, 0);
  }

  // Fills a leaf with the runs' extents.
  static void FillLeaf(const std::vector<BlockRange>& runs, std::byte* node) {
    uint32_t count = 0;
    FileBlock logical = 0;
    for (BlockRange run : runs) {
      while (run.count != 0) {
        const BlockCount length = std::min<BlockCount>(run.count, format::kMaxExtentLength);
        format::Extent& extent = format::ExtentsOf(node)[count++];
        extent.logical = static_cast<uint32_t>(logical);
        extent.length = static_cast<uint16_t>(length);
        extent.flags = 0;
        extent.physical = run.start;
        run.start += length;
        run.count -= length;
        logical += length;
      }
    }
    format::ExtentHeaderOf(node)->entries = static_cast<uint16_t>(count);
  }

  static void SetSize(const std::vector<BlockRange>& runs, format::Inode* inode) {
    BlockCount blocks = 0;
    for (const BlockRange& run : runs) blocks += run.count;
    inode->size = blocks << kBlockShift;
    inode->blocks = blocks;
  }

  Error WriteInodes() {
    AlignedBuffer block = ZeroBlock();
    const auto inode = [&](InodeNumber ino) {
      return format::As<format::Inode>(block.data() + geometry_.InodeOffset(ino));
    };
    format::Inode* root = inode(format::kRootInode);
    InitInode(S_IFDIR | 0755, 2, root);
    root->parent = format::kRootInode;
    root->uid = options_.root_uid;
    root->gid = options_.root_gid;
    InitInode(S_IFREG | 0600, 1, inode(format::kJournalInode));
    RETURN_IF_ERROR(FillJournalInode(inode(format::kJournalInode)));
    format::Inode* orphans = inode(format::kOrphanInode);
    InitInode(S_IFREG | 0600, 1, orphans);
    SetSize({layout_.orphan_file}, orphans);
    FillLeaf({layout_.orphan_file}, RootOf(orphans));
    format::SealInodeTable(seed_, 1, SpanOf(&block));
    return WriteBlock(geometry_.InodeBlock(format::kRootInode), block);
  }

  GroupDesc MakeDescriptor(GroupNumber group) const {
    GroupDesc desc{};
    const uint32_t used = layout_.UsedDataBlocks(group);
    desc.free_blocks = geometry_.GroupBlocks(group) - geometry_.FixedBlocks(group).blocks() - used;
    desc.free_inodes = geometry_.inodes_per_group();
    uint32_t flags = used == 0 ? format::kGroupBlockUninit : 0;
    if (group == 0) {
      desc.free_inodes = geometry_.inodes_per_group() - (format::kFirstUserInode - 1);
      desc.directories = 1;
      desc.inode_table_used = format::kInodesPerBlock;
    } else {
      flags |= format::kGroupInodeUninit;
    }
    desc.flags = flags;
    return desc;
  }

  Error WriteBlockBitmap(GroupNumber group, GroupDesc* desc) {
    AlignedBuffer bitmap = ZeroBlock();
    geometry_.MarkFixedBlocks(group, SpanOf(&bitmap));
    const BlockNumber start = geometry_.GroupStart(group);
    const BlockNumber end = start + geometry_.GroupBlocks(group);
    for (const BlockRange& range : layout_.UsedRanges()) {
      const BlockNumber from = std::max(range.start, start);
      const BlockNumber to = std::min(range.start + range.count, end);
      if (from >= to) continue;
      format::SetBits(SpanOf(&bitmap), static_cast<uint32_t>(from - start),
                      static_cast<uint32_t>(to - from));
    }
    desc->block_bitmap_checksum = format::Checksum(seed_, bitmap.span());
    return WriteBlock(geometry_.BlockBitmap(group), bitmap);
  }

  Error WriteInodeBitmap(GroupNumber group, GroupDesc* desc) {
    AlignedBuffer bitmap = ZeroBlock();
    geometry_.MarkInodePadding(SpanOf(&bitmap));
    format::SetBits(SpanOf(&bitmap), 0, format::kFirstUserInode - 1);
    desc->inode_bitmap_checksum = format::Checksum(seed_, bitmap.span());
    return WriteBlock(geometry_.InodeBitmap(group), bitmap);
  }

  // The group table, in large pieces, and the bitmaps that are not left for later.
  Error WriteGroups() {
    const uint64_t table_blocks = layout_.super.fixed.group_table_blocks;
    const uint64_t chunk = std::min<uint64_t>(table_blocks, kChunk >> kBlockShift);
    AlignedBuffer blocks(chunk << kBlockShift);
    for (uint64_t first = 0; first < table_blocks; first += chunk) {
      const uint64_t count = std::min(chunk, table_blocks - first);
      std::memset(blocks.data(), 0, blocks.size());
      for (uint64_t i = 0; i < count; ++i) {
        RETURN_IF_ERROR(FillGroupTableBlock(
            first + i, BlockSpan(blocks.data() + (i << kBlockShift), kBlockSize)));
      }
      const uint64_t offset = (layout_.super.fixed.group_table_start + first) << kBlockShift;
      RETURN_IF_ERROR(device_->Write(offset, blocks.span().first(count << kBlockShift)));
    }
    return Error::kOk;
  }

  Error FillGroupTableBlock(uint64_t index, BlockSpan block) {
    format::InitHeader(block, layout_.super.fixed.group_table_start + index,
                       {BlockKind::kGroupTable});
    const uint64_t first = index * format::kGroupDescsPerBlock;
    const uint64_t end =
        std::min<uint64_t>(first + format::kGroupDescsPerBlock, geometry_.group_count());
    for (uint64_t g = first; g < end; ++g) {
      const GroupNumber group = static_cast<GroupNumber>(g);
      GroupDesc desc = MakeDescriptor(group);
      if ((desc.flags & format::kGroupBlockUninit) == 0) {
        RETURN_IF_ERROR(WriteBlockBitmap(group, &desc));
      }
      if ((desc.flags & format::kGroupInodeUninit) == 0) {
        RETURN_IF_ERROR(WriteInodeBitmap(group, &desc));
      }
      *format::GroupDescAt(block.data(), geometry_.DescriptorIndex(group)) = desc;
    }
    format::SealBlock(seed_, block);
    return Error::kOk;
  }

  // The journal inode has a leaf of its own when its extents are too many for the inode.
  Error FillJournalInode(format::Inode* inode) {
    SetSize(layout_.journal, inode);
    if (layout_.journal_leaf.count == 0) {
      FillLeaf(layout_.journal, RootOf(inode));
      return Error::kOk;
    }
    const BlockNumber number = layout_.journal_leaf.start;
    AlignedBuffer block = ZeroBlock();
    format::InitHeader(SpanOf(&block), number,
                       {BlockKind::kExtent, format::kJournalInode, kReservedGeneration});
    std::byte* node = block.data() + format::kExtentNodeOffset;
    format::InitExtentNode(node, format::kExtentsPerBlock, 0);
    FillLeaf(layout_.journal, node);
    format::SealBlock(seed_, SpanOf(&block));

    std::byte* root = RootOf(inode);
    format::InitExtentNode(root, format::kInlineExtents, 1);
    format::ExtentHeaderOf(root)->entries = 1;
    format::ExtentIndexesOf(root)[0].logical = 0;
    format::ExtentIndexesOf(root)[0].child = number;
    inode->blocks = inode->blocks + 1;
    return WriteBlock(number, block);
  }

  Device* const device_;
  const MkfsOptions& options_;
  const MkfsLayout& layout_;
  const format::Geometry& geometry_;
  const uint64_t seed_;
  const MkfsProgress& progress_;
  AlignedBuffer zeros_;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
};

}  // namespace

Error WriteFilesystem(Device* device, const MkfsOptions& options, const MkfsLayout& layout,
                      const MkfsProgress& progress) {
  return Writer(device, options, layout, progress).Run();
}

Error MakeFilesystem(Device* device, const MkfsOptions& options, MkfsReport* report) {
  Result<MkfsLayout> layout = PlanLayout(device->size(), options, &report->problem);
  if (!layout.ok()) return layout.error();
  report->layout = *std::move(layout);
  return WriteFilesystem(device, options, report->layout, {});
}

}  // namespace sluice
