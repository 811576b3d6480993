// SPDX-License-Identifier: Apache-2.0
#include "fs/orphan_file.h"

#include <utility>

#include "base/check.h"
#include "format/directory.h"
#include "format/superblock.h"

namespace sluice {

using format::kOrphanSlots;
using format::OrphanHeaderOf;
using format::OrphanSlotsOf;

OrphanFile::Claim::Claim(Claim&& other) noexcept
    : file_(std::exchange(other.file_, nullptr)), slot_(std::exchange(other.slot_, 0)) {}

OrphanFile::Claim& OrphanFile::Claim::operator=(Claim&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(slot_, other.slot_);
  return *this;
}

OrphanFile::Claim::~Claim() {
  if (file_ != nullptr) file_->GiveBack(slot_ - 1);
}

Result<std::unique_ptr<OrphanFile>> OrphanFile::Load(BufferCache* cache, uint32_t generation,
                                                     const std::vector<BlockNumber>& blocks,
                                                     uint64_t inode_count) {
  std::unique_ptr<OrphanFile> file(new OrphanFile());
  const format::BlockIdentity identity = {format::BlockKind::kOrphan, format::kOrphanInode,
                                          generation};
  for (const BlockNumber block : blocks) {
    ASSIGN_OR_RETURN(BufferRef buffer, cache->GetBlocking(block, identity));
    RETURN_IF_ERROR(format::CheckOrphanBlock(buffer->span(), inode_count, nullptr));
    file->blocks_.push_back(std::move(buffer));
  }
  MutexLock lock(&file->mutex_);
  for (uint64_t slot = file->blocks_.size() * kOrphanSlots; slot-- > 0;) {
    const std::byte* block = file->blocks_[slot / kOrphanSlots]->data();
    if (OrphanSlotsOf(block)[slot % kOrphanSlots] == 0) file->free_.push_back(slot);
  }
  return file;
}

std::vector<OrphanFile::Entry> OrphanFile::entries() const {
  std::vector<Entry> entries;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    ReaderMutexLock lock(&blocks_[i]->mutex());
    for (uint32_t slot = 0; slot < kOrphanSlots; ++slot) {
      const InodeNumber ino = OrphanSlotsOf(blocks_[i]->data())[slot];
      if (ino != 0) entries.push_back({ino, i * kOrphanSlots + slot + 1});
    }
  }
  return entries;
}

Result<OrphanFile::Claim> OrphanFile::Prepare() {
  MutexLock lock(&mutex_);
  if (free_.empty()) return Error::kNoSpace;
  Claim claim;
  claim.file_ = this;
  claim.slot_ = free_.back() + 1;
  free_.pop_back();
  return claim;
}

void OrphanFile::GiveBack(uint64_t slot) {
  MutexLock lock(&mutex_);
  free_.push_back(slot);
}

void OrphanFile::Add(Handle& handle, Inode* inode, Claim claim) {
  SLUICE_CHECK(claim.file_ == this && inode->orphan_slot == 0);
  const uint64_t slot = claim.slot_ - 1;
  {
    BlockEdit edit = handle.Edit(blocks_[slot / kOrphanSlots]);
    OrphanSlotsOf(edit.data())[slot % kOrphanSlots] = inode->ino;
    format::OrphanHeader* header = OrphanHeaderOf(edit.data());
    header->count = header->count + 1;
  }
  inode->orphan_slot = claim.slot_;
  claim.file_ = nullptr;
}

void OrphanFile::Remove(Handle& handle, Inode* inode) {
  SLUICE_CHECK(inode->orphan_slot != 0);
  const uint64_t slot = inode->orphan_slot - 1;
  {
    BlockEdit edit = handle.Edit(blocks_[slot / kOrphanSlots]);
    OrphanSlotsOf(edit.data())[slot % kOrphanSlots] = 0;
    format::OrphanHeader* header = OrphanHeaderOf(edit.data());
    header->count = header->count - 1;
  }
  inode->orphan_slot = 0;
  GiveBack(slot);
}

}  // namespace sluice
