// SPDX-License-Identifier: Apache-2.0
#include "fsck/extent_walk.h"

namespace sluice {

void ExtentWalk::Run(InodeNumber ino, uint32_t generation, const std::byte* root,
                     ExtentVisitor* visitor) {
  ino_ = ino;
  generation_ = generation;
  visitor_ = visitor;
  if (!seen_.empty()) seen_.clear();
  const char* reason = nullptr;
  if (format::CheckExtentNode(root, format::kInlineExtents, -1, 0, format::kMaxFileBlocks,
                              state_->geometry.block_count(), &reason) != Error::kOk) {
    visitor->OnBadNode(0, reason);
    return;
  }
  Visit(root, {0, format::kMaxFileBlocks});
}

void ExtentWalk::Visit(const std::byte* node, Range range) {
  const format::ExtentHeader& header = *format::ExtentHeaderOf(node);
  if (header.depth == 0) {
    for (uint32_t i = 0; i < header.entries; ++i) visitor_->OnExtent(format::ExtentsOf(node)[i]);
    return;
  }
  const format::ExtentIndex* indexes = format::ExtentIndexesOf(node);
  for (uint32_t i = 0; i < header.entries; ++i) {
    const FileBlock end = i + 1 < header.entries ? FileBlock{indexes[i + 1].logical} : range.end;
    Descend(indexes[i].child, header.depth - 1, {indexes[i].logical, end});
  }
}

void ExtentWalk::Descend(BlockNumber block, uint32_t depth, Range range) {
  if (!seen_.insert(block).second) {
    visitor_->OnBadNode(block, "extent block is in the tree twice");
    return;
  }
  if (!visitor_->OnNode(block)) return;
  AlignedBuffer& buffer = buffers_[depth];
  if (buffer.size() == 0) buffer = AlignedBuffer(kBlockSize);
  state_->Read(block, buffer.span());
  const format::BlockIdentity identity = {format::BlockKind::kExtent, ino_, generation_};
  const std::byte* node = buffer.data() + format::kExtentNodeOffset;
  const char* reason = nullptr;
  if (format::VerifyBlock(state_->seed(), block, identity,
                          format::ConstBlockSpan(buffer.data(), kBlockSize),
                          &reason) != Error::kOk ||
      format::CheckExtentNode(node, format::kExtentsPerBlock, static_cast<int>(depth), range.first,
                              range.end, state_->geometry.block_count(), &reason) != Error::kOk) {
    visitor_->OnBadNode(block, reason);
    return;
  }
  Visit(node, range);
}

}  // namespace sluice
