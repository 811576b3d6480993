// SPDX-License-Identifier: Apache-2.0
#include "tests/fsck/tree_editor.h"

#include <cstring>

#include "base/check.h"
#include "format/bitmap.h"
#include "format/extent.h"

namespace sluice::testing {

namespace {

constexpr uint32_t kEntryBytes = sizeof(format::DirEntry);

std::string_view NameAt(const std::byte* block, uint32_t offset) {
  const auto* entry = format::As<format::DirEntry>(block + offset);
  return {reinterpret_cast<const char*>(block) + offset + kEntryBytes, entry->name_length};
}

// The slot of a name in a leaf; the count if it is not there.
uint32_t SlotOf(const std::byte* block, std::string_view name) {
  const uint32_t count = format::DirNodeOf(block)->count;
  for (uint32_t slot = 0; slot < count; ++slot) {
    if (NameAt(block, format::DirSlotsOf(block)[slot]) == name) return slot;
  }
  return count;
}

}  // namespace

void TreeEditor::MarkBlock(BlockNumber block, bool used) {
  const GroupNumber group = geometry().GroupOfBlock(block);
  const uint32_t bit = static_cast<uint32_t>(block - geometry().GroupStart(group));
  EditBlockBitmap(
      group,
      [&](format::BlockSpan bits) {
        SLUICE_CHECK(format::TestBit(bits, bit) != used);
        used ? format::SetBit(bits, bit) : format::ClearBit(bits, bit);
      },
      Seal::kRight);
  EditGroup(
      group,
      [&](format::GroupDesc* desc) { desc->free_blocks = desc->free_blocks + (used ? -1 : 1); },
      Seal::kRight);
}

BlockNumber TreeEditor::TakeBlock() {
  BlockNumber block = 0;
  EditBlockBitmap(
      0,
      [&](format::BlockSpan bits) {
        uint32_t bit = geometry().GroupBlocks(0) - 1;
        while (format::TestBit(bits, bit)) --bit;
        block = bit;
      },
      Seal::kRight);
  MarkBlock(block, true);
  return block;
}

void TreeEditor::MarkInode(InodeNumber ino, bool used) {
  const GroupNumber group = geometry().GroupOfInode(ino);
  const uint32_t bit = geometry().IndexInGroup(ino);
  EditInodeBitmap(
      group,
      [&](format::BlockSpan bits) {
        SLUICE_CHECK(format::TestBit(bits, bit) != used);
        used ? format::SetBit(bits, bit) : format::ClearBit(bits, bit);
      },
      Seal::kRight);
  EditGroup(
      group,
      [&](format::GroupDesc* desc) { desc->free_inodes = desc->free_inodes + (used ? -1 : 1); },
      Seal::kRight);
}

InodeNumber TreeEditor::FreeInode() {
  for (GroupNumber group = 0; group < geometry().group_count(); ++group) {
    uint32_t mark = 0;
    EditGroup(
        group, [&](format::GroupDesc* desc) { mark = desc->inode_table_used; }, Seal::kRight);
    const InodeNumber first = InodeNumber{group} * geometry().inodes_per_group() + 1;
    for (InodeNumber ino = first; ino < first + mark; ++ino) {
      if (ino >= format::kFirstUserInode && ReadInode(ino).mode == 0) return ino;
    }
  }
  SLUICE_CHECK(false);
  return 0;
}

void TreeEditor::ChangeRoot(InodeNumber ino, const std::function<void(std::byte*)>& change) {
  ChangeInode(ino,
              [&](format::Inode* inode) { change(reinterpret_cast<std::byte*>(inode->root)); });
}

void TreeEditor::ChangeEntry(InodeNumber directory, std::string_view name,
                             const std::function<void(format::DirEntry*)>& change) {
  EditBlock(
      MapBlock(directory, 0),
      [&](format::BlockSpan block) {
        const uint32_t slot = SlotOf(block.data(), name);
        SLUICE_CHECK(slot < format::DirNodeOf(block.data())->count);
        change(format::As<format::DirEntry>(block.data() + format::DirSlotsOf(block.data())[slot]));
      },
      Seal::kRight);
}

void TreeEditor::RemoveEntry(InodeNumber directory, std::string_view name) {
  EditBlock(
      MapBlock(directory, 0),
      [&](format::BlockSpan block) {
        format::DirNodeHeader* node = format::DirNodeOf(block.data());
        const uint32_t slot = SlotOf(block.data(), name);
        SLUICE_CHECK(slot < node->count);
        format::Le16* slots = format::DirSlotsOf(block.data());
        std::memmove(slots + slot, slots + slot + 1, (node->count - slot - 1) * sizeof(*slots));
        node->count = static_cast<uint16_t>(node->count - 1);
        node->garbage = static_cast<uint16_t>(node->garbage + kEntryBytes + name.size());
      },
      Seal::kRight);
  ChangeInode(directory, [](format::Inode* inode) { inode->device = inode->device - 1; });
}

void TreeEditor::MakeLeaf(InodeNumber directory) {
  const BlockNumber block = TakeBlock();
  ChangeInode(directory, [&](format::Inode* inode) {
    std::byte* root = reinterpret_cast<std::byte*>(inode->root);
    format::InitExtentNode(root, format::kInlineExtents, 0);
    format::ExtentHeaderOf(root)->entries = 1;
    format::ExtentsOf(root)[0].length = 1;
    format::ExtentsOf(root)[0].physical = block;
    inode->size = kBlockSize;
    inode->blocks = 1;
  });
  const uint32_t generation = ReadInode(directory).generation;
  EditBlock(
      block,
      [&](format::BlockSpan bytes) {
        std::memset(bytes.data(), 0, bytes.size());
        format::InitHeader(bytes, block, {format::BlockKind::kDirectory, directory, generation});
        format::DirNodeOf(bytes.data())->heap_start = kBlockSize;
      },
      Seal::kRight);
}

void TreeEditor::InsertEntry(InodeNumber directory, std::string_view name, InodeNumber ino,
                             uint8_t type, uint64_t sequence) {
  if (ReadInode(directory).size == 0) MakeLeaf(directory);
  const uint64_t key = format::DirKey(super().fixed.hash_seed, name) + sequence;
  EditBlock(
      MapBlock(directory, 0),
      [&](format::BlockSpan block) {
        format::DirNodeHeader* node = format::DirNodeOf(block.data());
        format::Le16* slots = format::DirSlotsOf(block.data());
        const uint32_t heap = node->heap_start - kEntryBytes - static_cast<uint32_t>(name.size());
        SLUICE_CHECK(node->level == 0);
        SLUICE_CHECK(heap >= format::kDirSlotsOffset + 2u * node->count + 2u);
        auto* entry = format::As<format::DirEntry>(block.data() + heap);
        entry->key = key;
        entry->inode = ino;
        entry->name_length = static_cast<uint8_t>(name.size());
        entry->type = type;
        std::memcpy(block.data() + heap + kEntryBytes, name.data(), name.size());
        uint32_t slot = 0;
        while (slot < node->count &&
               format::As<format::DirEntry>(block.data() + slots[slot])->key < key) {
          ++slot;
        }
        std::memmove(slots + slot + 1, slots + slot, (node->count - slot) * sizeof(*slots));
        slots[slot] = static_cast<uint16_t>(heap);
        node->count = static_cast<uint16_t>(node->count + 1);
        node->heap_start = static_cast<uint16_t>(heap);
      },
      Seal::kRight);
  ChangeInode(directory, [](format::Inode* inode) { inode->device = inode->device + 1; });
}

void TreeEditor::AddOrphan(FileBlock logical, InodeNumber ino) {
  EditBlock(
      MapBlock(format::kOrphanInode, logical),
      [&](format::BlockSpan block) {
        format::OrphanHeaderOf(block.data())->count = 1;
        format::OrphanSlotsOf(block.data())[0] = ino;
      },
      Seal::kRight);
}

}  // namespace sluice::testing
