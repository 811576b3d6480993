// SPDX-License-Identifier: Apache-2.0
#include "fsck/directory_walk.h"

namespace sluice {

void DirectoryWalk::Run(const DirectoryInfo& directory, DirectoryVisitor* visitor) {
  directory_ = &directory;
  visitor_ = visitor;
  seen_.clear();
  file_.Open(directory.ino, directory.generation, directory.root.data(), directory.blocks);
  Visit(0, -1, {0, format::kEndDirKey});
}

void DirectoryWalk::Visit(FileBlock logical, int level, Range range) {
  const BlockNumber physical = file_.Physical(logical);
  // Holes are for those who look at file().
  if (physical == 0) return;
  if (!seen_.insert(logical).second) return visitor_->OnSeenBlock(logical);
  const format::ConstBlockSpan block = file_.Read(logical);
  const format::BlockIdentity identity = {format::BlockKind::kDirectory, directory_->ino,
                                          directory_->generation};
  const char* reason = nullptr;
  if (format::VerifyBlock(state_->seed(), physical, identity, block, &reason) != Error::kOk ||
      format::CheckDirBlock(state_->hash_seed(), block, level, range.first, range.end,
                            directory_->blocks, &reason) != Error::kOk) {
    return visitor_->OnBadBlock(logical, physical, reason);
  }
  if (format::DirNodeOf(block.data())->level == 0) return VisitLeaf(block);
  VisitIndex(block, range);
}

void DirectoryWalk::VisitLeaf(format::ConstBlockSpan block) {
  const uint32_t count = format::DirNodeOf(block.data())->count;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t offset = format::DirSlotsOf(block.data())[i];
    const auto* entry = format::As<format::DirEntry>(block.data() + offset);
    const char* name =
        reinterpret_cast<const char*>(block.data()) + offset + sizeof(format::DirEntry);
    visitor_->OnEntry(*entry, std::string_view(name, entry->name_length));
  }
}

void DirectoryWalk::VisitIndex(format::ConstBlockSpan block, Range range) {
  const format::DirNodeHeader* node = format::DirNodeOf(block.data());
  const int below = node->level - 1;
  // The block's memory is used again for its children.
  const format::DirIndexEntry* first = format::DirIndexesOf(block.data());
  const std::vector<format::DirIndexEntry> entries(first, first + node->count);
  for (size_t i = 0; i < entries.size(); ++i) {
    const uint64_t end = i + 1 < entries.size() ? uint64_t{entries[i + 1].key} : range.end;
    Visit(entries[i].child, below, {entries[i].key, end});
  }
}

}  // namespace sluice
