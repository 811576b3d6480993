// SPDX-License-Identifier: Apache-2.0
#include "fs/inode.h"

#include <cstring>
#include <utility>

#include "fs/filesystem.h"
#include "fs/filesystem_impl.h"

namespace sluice {
namespace {

InodeFields FieldsOf(const format::Inode& record) {
  InodeFields fields;
  fields.mode = record.mode;
  fields.flags = record.flags;
  fields.uid = record.uid;
  fields.gid = record.gid;
  fields.links = record.links;
  fields.generation = record.generation;
  fields.size = record.size;
  fields.blocks = record.blocks;
  fields.atime = record.atime;
  fields.mtime = record.mtime;
  fields.ctime = record.ctime;
  fields.btime = record.btime;
  fields.parent = record.parent;
  fields.device = record.device;
  fields.xattr_block = record.xattr_block;
  fields.project = record.project;
  return fields;
}

void StoreFields(const InodeFields& fields, format::Inode* record) {
  record->mode = fields.mode;
  record->flags = fields.flags;
  record->uid = fields.uid;
  record->gid = fields.gid;
  record->links = fields.links;
  record->generation = fields.generation;
  record->size = fields.size;
  record->blocks = fields.blocks;
  record->atime = fields.atime;
  record->mtime = fields.mtime;
  record->ctime = fields.ctime;
  record->btime = fields.btime;
  record->parent = fields.parent;
  record->device = fields.device;
  record->xattr_block = fields.xattr_block;
  record->project = fields.project;
}

}  // namespace

Inode::Inode(Filesystem* fs, InodeNumber number, BufferRef table_block, uint32_t table_offset,
             const format::Inode& record)
    : ino(number),
      fields(FieldsOf(record)),
      pages(fs->impl()->device, fs->impl()->budget.get(),
            [this] { fs_->impl()->flusher->Add(shared_from_this()); }),
      fs_(fs),
      table_block_(std::move(table_block)),
      table_offset_(table_offset) {
  static_assert(sizeof(record.root) == format::kExtentRootSize);
  std::memcpy(root.data(), record.root, sizeof(record.root));
  set_type(fields.mode);
}

Inode::~Inode() = default;

void Inode::WriteBack(Handle& handle, bool data_reachability) {
  {
    BlockEdit edit = handle.Edit(table_block_);
    format::Inode* record = format::As<format::Inode>(edit.data() + table_offset_);
    StoreFields(fields, record);
    std::memcpy(record->root, root.data(), sizeof(record->root));
    // Sealed here, not only on the copy that is written: the record is checked again when this
    // object has been evicted and the block is still in memory.
    format::SealInode(fs_->impl()->cache->seed(), ino, record);
  }
  lazy_dirty = false;
  sync_tid.store(handle.tid(), std::memory_order_release);
  if (data_reachability) datasync_tid.store(handle.tid(), std::memory_order_release);
}

void Inode::StartOrderedWrite() {
  pages.StartWriteout(0, format::kMaxFileBlocks, IoKind::kJournal, 0, shared_from_this());
}

void Inode::WaitOrderedWrite() {
  // The pages remember the error for this file's next fsync; the commit goes on.
  IgnoreError(pages.WaitWritten(0, format::kMaxFileBlocks));
}

size_t Inode::StartWriteback(size_t max_pages, IoKind kind) {
  return pages.StartWriteout(0, format::kMaxFileBlocks, kind, 0, shared_from_this(), max_pages);
}

void Inode::WaitWriteback(IoKind kind) {
  // As above: fsync reports it.
  IgnoreError(pages.WaitWritten(0, format::kMaxFileBlocks, kind));
}

uint64_t Inode::WriteErrors() { return pages.error_sequence(); }

size_t Inode::DirtyPages() { return pages.dirty_pages(); }

}  // namespace sluice
