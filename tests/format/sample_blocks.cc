// SPDX-License-Identifier: Apache-2.0
#include "tests/format/sample_blocks.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "format/group_desc.h"

namespace sluice::format::testing {

Superblock SampleSuperblock(uint64_t blocks, uint32_t inodes_per_group, uint32_t flex_shift) {
  Superblock super;
  std::memset(&super.fixed, 0, sizeof(super.fixed));
  std::memset(&super.state, 0, sizeof(super.state));
  SuperSector0& s = super.fixed;
  const uint64_t groups = (blocks + kBlocksPerGroup - 1) / kBlocksPerGroup;
  s.magic = kSuperMagic;
  s.version = kFormatVersion;
  s.block_shift = kBlockShift;
  s.blocks_per_group = kBlocksPerGroup;
  s.inodes_per_group = inodes_per_group;
  s.flex_group_shift = flex_shift;
  s.block_count = blocks;
  s.group_count = groups;
  s.inode_count = groups * inodes_per_group;
  s.reserved_blocks = blocks / 20;
  s.checksum_seed = kSeed;
  s.hash_seed = kHashSeed;
  s.group_table_start = kGroupTableStart;
  s.group_table_blocks = (groups + kGroupDescsPerBlock - 1) / kGroupDescsPerBlock;
  s.journal_run_count = 1;
  s.journal_runs[0].start = std::min<uint64_t>(blocks, kBlocksPerGroup) - 1024;
  s.journal_runs[0].length = 1024;
  std::memcpy(s.label, "sample", 6);
  super.state.magic = kSuperMagic;
  super.state.mount_count = 7;
  return super;
}

Inode SampleInode(InodeNumber ino) {
  Inode inode;
  std::memset(&inode, 0, sizeof(inode));
  inode.mode = S_IFREG | 0644;
  inode.links = 1;
  inode.generation = 99;
  inode.size = 20 * kBlockSize - 5;
  inode.blocks = 20;
  std::byte* root = reinterpret_cast<std::byte*>(inode.root);
  InitExtentNode(root, kInlineExtents, 0);
  for (uint32_t i = 0; i < 2; ++i) {
    Extent& extent = ExtentsOf(root)[i];
    extent.logical = i * 10;
    extent.length = 10;
    extent.flags = 0;
    extent.physical = 2000 + 100 * i;
  }
  ExtentHeaderOf(root)->entries = 2;
  SealInode(kSeed, ino, &inode);
  return inode;
}

Block SampleDirLeaf(const std::vector<std::string_view>& names) {
  Block block{};
  InitHeader(block, 100, {BlockKind::kDirectory, 12, 1});
  std::vector<std::string_view> sorted = names;
  std::ranges::sort(sorted, {}, [](std::string_view name) { return DirKey(kHashSeed, name); });
  uint32_t heap = kBlockSize;
  for (size_t i = 0; i < sorted.size(); ++i) {
    heap -= sizeof(DirEntry) + sorted[i].size();
    DirEntry* entry = As<DirEntry>(block.data() + heap);
    entry->key = DirKey(kHashSeed, sorted[i]);
    entry->inode = 20 + i;
    entry->name_length = static_cast<uint8_t>(sorted[i].size());
    entry->type = 8;
    std::memcpy(entry + 1, sorted[i].data(), sorted[i].size());
    DirSlotsOf(block.data())[i] = static_cast<uint16_t>(heap);
  }
  DirNodeOf(block.data())->count = static_cast<uint16_t>(sorted.size());
  DirNodeOf(block.data())->heap_start = static_cast<uint16_t>(heap);
  SealBlock(kSeed, block);
  return block;
}

Block SampleDirIndex(uint32_t children) {
  Block block{};
  InitHeader(block, 100, {BlockKind::kDirectory, 12, 1});
  DirNodeOf(block.data())->level = 1;
  DirNodeOf(block.data())->count = static_cast<uint16_t>(children);
  for (uint32_t i = 0; i < children; ++i) {
    DirIndexesOf(block.data())[i].key = uint64_t{i} << 40;
    DirIndexesOf(block.data())[i].child = i + 1;
  }
  SealBlock(kSeed, block);
  return block;
}

Block SampleExtentLeaf(uint32_t count) {
  Block block{};
  InitHeader(block, 100, {BlockKind::kExtent, 12, 1});
  std::byte* node = block.data() + kExtentNodeOffset;
  InitExtentNode(node, kExtentsPerBlock, 0);
  for (uint32_t i = 0; i < count; ++i) {
    ExtentsOf(node)[i].logical = i * 20;
    ExtentsOf(node)[i].length = 10;
    ExtentsOf(node)[i].physical = 1000 + i * 10;
  }
  ExtentHeaderOf(node)->entries = static_cast<uint16_t>(count);
  SealBlock(kSeed, block);
  return block;
}

JournalSuper SampleJournalSuper() {
  JournalSuper super;
  std::memset(&super, 0, sizeof(super));
  super.generation = 5;
  super.incarnation = 0x1234;
  super.log_blocks = kMinJournalBlocks;
  super.tail_tid = 1;
  SealJournalSuper(kSeed, &super);
  return super;
}

}  // namespace sluice::format::testing
