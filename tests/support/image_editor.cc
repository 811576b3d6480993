// SPDX-License-Identifier: Apache-2.0
#include "tests/support/image_editor.h"

#include <cstring>
#include <string>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "format/directory.h"
#include "format/extent.h"

namespace sluice::testing {

using format::BlockSpan;

namespace {

BlockSpan SpanAt(std::byte* bytes) { return BlockSpan(bytes, kBlockSize); }

AlignedBuffer ReadBlock(Device* device, BlockNumber block) {
  AlignedBuffer buffer(kBlockSize);
  SLUICE_CHECK(device->Read(block << kBlockShift, buffer.span()) == Error::kOk);
  return buffer;
}

}  // namespace

ImageEditor::ImageEditor(Device* device) : device_(device) {
  const AlignedBuffer block = ReadBlock(device, 0);
  SLUICE_CHECK(format::ParseSuperblock(format::ConstBlockSpan(block.data(), kBlockSize), &super_,
                                       nullptr) == Error::kOk);
  Result<format::Geometry> geometry = format::Geometry::Make(super_);
  SLUICE_CHECK(geometry.ok());
  geometry_ = *geometry;
}

void ImageEditor::EditRaw(uint64_t offset, const Change& change) {
  const BlockNumber block = offset >> kBlockShift;
  AlignedBuffer buffer = ReadBlock(device_, block);
  change(buffer.data() + offset % kBlockSize);
  SLUICE_CHECK(device_->Write(block << kBlockShift, buffer.span()) == Error::kOk);
}

void ImageEditor::EditSuper(
    const std::function<void(format::SuperSector0*, format::SuperSector1*)>& change, Seal seal,
    GroupNumber group) {
  EditRaw(geometry_.GroupStart(group) << kBlockShift, [&](std::byte* bytes) {
    auto* fixed = format::As<format::SuperSector0>(bytes);
    auto* state = format::As<format::SuperSector1>(bytes + sizeof(*fixed));
    change(fixed, state);
    if (seal == Seal::kLeave) return;
    fixed->checksum = format::ChecksumSkipping(0, {bytes, sizeof(*fixed)},
                                               offsetof(format::SuperSector0, checksum));
    state->checksum =
        format::ChecksumSkipping(fixed->checksum_seed, {bytes + sizeof(*fixed), sizeof(*state)},
                                 offsetof(format::SuperSector1, checksum));
  });
}

void ImageEditor::EditGroup(GroupNumber group,
                            const std::function<void(format::GroupDesc*)>& change, Seal seal) {
  EditBlock(
      geometry_.DescriptorBlock(group),
      [&](BlockSpan block) {
        change(format::GroupDescAt(block.data(), geometry_.DescriptorIndex(group)));
      },
      seal);
}

void ImageEditor::EditBitmap(BlockNumber block, const std::function<void(BlockSpan)>& change,
                             Seal seal, GroupNumber group,
                             format::Le64 format::GroupDesc::*checksum) {
  uint64_t sum = 0;
  EditRaw(block << kBlockShift, [&](std::byte* bytes) {
    change(SpanAt(bytes));
    sum = format::Checksum(seed(), SpanAt(bytes));
  });
  if (seal == Seal::kLeave) return;
  EditGroup(
      group, [&](format::GroupDesc* desc) { desc->*checksum = sum; }, Seal::kRight);
}

void ImageEditor::EditBlockBitmap(GroupNumber group, const std::function<void(BlockSpan)>& change,
                                  Seal seal) {
  EditBitmap(geometry_.BlockBitmap(group), change, seal, group,
             &format::GroupDesc::block_bitmap_checksum);
}

void ImageEditor::EditInodeBitmap(GroupNumber group, const std::function<void(BlockSpan)>& change,
                                  Seal seal) {
  EditBitmap(geometry_.InodeBitmap(group), change, seal, group,
             &format::GroupDesc::inode_bitmap_checksum);
}

void ImageEditor::EditInode(InodeNumber ino, const std::function<void(format::Inode*)>& change,
                            Seal seal) {
  const uint64_t offset = (geometry_.InodeBlock(ino) << kBlockShift) + geometry_.InodeOffset(ino);
  EditRaw(offset, [&](std::byte* bytes) {
    auto* inode = format::As<format::Inode>(bytes);
    change(inode);
    if (seal == Seal::kRight) format::SealInode(seed(), ino, inode);
  });
}

void ImageEditor::EditBlock(BlockNumber block, const std::function<void(BlockSpan)>& change,
                            Seal seal) {
  EditRaw(block << kBlockShift, [&](std::byte* bytes) {
    change(SpanAt(bytes));
    if (seal == Seal::kRight) format::SealBlock(seed(), SpanAt(bytes));
  });
}

void ImageEditor::EditLogBlock(uint64_t index, const std::function<void(BlockSpan)>& change,
                               Seal seal) {
  uint64_t contiguous = 0;
  EditBlock(LogArea(super_).DeviceOffset(index, &contiguous) >> kBlockShift, change, seal);
}

void ImageEditor::EditJournalSuper(uint32_t slot,
                                   const std::function<void(format::JournalSuper*)>& change,
                                   Seal seal) {
  uint64_t contiguous = 0;
  EditRaw(LogArea(super_).DeviceOffset(slot, &contiguous), [&](std::byte* bytes) {
    auto* super = format::As<format::JournalSuper>(bytes);
    change(super);
    if (seal == Seal::kRight) format::SealJournalSuper(seed(), super);
  });
}

void ImageEditor::FlipBit(uint64_t offset, uint32_t bit) {
  EditRaw(offset, [bit](std::byte* byte) { *byte ^= std::byte(1u << bit); });
}

format::Inode ImageEditor::ReadInode(InodeNumber ino) {
  const AlignedBuffer block = ReadBlock(device_, geometry_.InodeBlock(ino));
  return *format::As<format::Inode>(block.data() + geometry_.InodeOffset(ino));
}

BlockNumber ImageEditor::MapBlock(InodeNumber ino, FileBlock logical) {
  const format::Inode inode = ReadInode(ino);
  AlignedBuffer buffer;
  const std::byte* node = reinterpret_cast<const std::byte*>(inode.root);
  for (uint32_t level = 0; level <= format::kMaxExtentDepth; ++level) {
    const uint32_t entries = format::ExtentHeaderOf(node)->entries;
    if (format::ExtentHeaderOf(node)->depth == 0) {
      for (uint32_t i = 0; i < entries; ++i) {
        const format::Extent& extent = format::ExtentsOf(node)[i];
        if (logical >= extent.logical && logical - extent.logical < extent.length) {
          return extent.physical + (logical - extent.logical);
        }
      }
      return kNoBlock;
    }
    BlockNumber child = kNoBlock;
    for (uint32_t i = 0; i < entries; ++i) {
      const format::ExtentIndex& index = format::ExtentIndexesOf(node)[i];
      if (index.logical <= logical) child = index.child;
    }
    if (child == kNoBlock) return kNoBlock;
    buffer = ReadBlock(device_, child);
    node = buffer.data() + format::kExtentNodeOffset;
  }
  return kNoBlock;
}

BlockNumber ImageEditor::FirstExtentBlock(InodeNumber ino) {
  const format::Inode inode = ReadInode(ino);
  const std::byte* root = reinterpret_cast<const std::byte*>(inode.root);
  if (format::ExtentHeaderOf(root)->depth == 0) return kNoBlock;
  return format::ExtentIndexesOf(root)[0].child;
}

InodeNumber ImageEditor::FindName(InodeNumber directory, std::string_view name) {
  const uint64_t blocks = ReadInode(directory).size >> kBlockShift;
  for (FileBlock logical = 0; logical < blocks; ++logical) {
    const BlockNumber number = MapBlock(directory, logical);
    if (number == kNoBlock) continue;
    const AlignedBuffer block = ReadBlock(device_, number);
    if (format::DirNodeOf(block.data())->level != 0) continue;
    for (uint32_t i = 0; i < format::DirNodeOf(block.data())->count; ++i) {
      const uint32_t offset = format::DirSlotsOf(block.data())[i];
      const auto* entry = format::As<format::DirEntry>(block.data() + offset);
      const std::string_view found(reinterpret_cast<const char*>(entry + 1), entry->name_length);
      if (found == name) return entry->inode;
    }
  }
  return 0;
}

}  // namespace sluice::testing
