// SPDX-License-Identifier: Apache-2.0
//
// Extended attributes. An inode with any has one block for them, changed under a handle like all
// metadata; the first attribute allocates it, the last one that is removed frees it.
#include "format/xattr.h"

#include <array>
#include <cstring>
#include <utility>

#include "fs/credits.h"
#include "fs/file_data.h"
#include "fs/filesystem.h"
#include "fs/filesystem_impl.h"
#include "fs/space.h"

namespace sluice {
namespace {

using format::XattrName;

struct XattrBytes {
  alignas(8) std::array<std::byte, kBlockSize> bytes;
  format::BlockSpan span() { return format::BlockSpan(bytes); }
};

// The inode's attribute block, checked. The inode's mutex is held, shared at least, and it has one.
Result<BufferRef> Load(Filesystem::Impl* fs, Attempt& attempt, const Inode& inode) {
  const BlockNumber block = inode.fields.xattr_block;
  if (!fs->geometry.IsDataRange(block, 1)) {
    fs->self->ReportCorruption(inode.ino, block, "attribute block on metadata");
    return Error::kCorrupt;
  }
  ASSIGN_OR_RETURN(BufferRef buffer, fs->cache->Get(attempt, block,
                                                    {.kind = format::BlockKind::kXattr,
                                                     .owner = inode.ino,
                                                     .generation = inode.fields.generation}));
  if (buffer->structure_checked()) return buffer;
  const char* reason = nullptr;
  if (format::CheckXattrBlock(std::as_const(*buffer).span(), &reason) != Error::kOk) {
    fs->self->ReportCorruption(inode.ino, block, reason);
    return Error::kCorrupt;
  }
  buffer->set_structure_checked();
  return buffer;
}

// How getxattr(2) and listxattr(2) answer: with no room, the size only.
Error CheckRoom(size_t size, std::span<std::byte> out) {
  return !out.empty() && out.size() < size ? Error::kRange : Error::kOk;
}

// One change of an inode's attributes. The inode's mutex is held throughout.
class XattrChange {
 public:
  XattrChange(Filesystem::Impl* fs, Attempt& attempt, const InodeRef& inode)
      : fs_(fs), attempt_(attempt), inode_(inode) {}

  Error Set(const Caller& caller, const format::XattrView& attribute, XattrSetMode mode);
  Error Remove(const XattrName& name);

 private:
  Error CheckMayChange() const;
  Error Add(const Caller& caller);
  Error Replace(const BufferRef& buffer);
  Error Free(const BufferRef& buffer);
  // The handle's last edit.
  void Finish(Handle& handle);
  void Store(Handle& handle, const BufferRef& buffer);

  Filesystem::Impl* const fs_;
  Attempt& attempt_;
  const InodeRef& inode_;
  XattrBytes content_;
};

Error XattrChange::CheckMayChange() const {
  constexpr uint32_t kForbidden = format::kInodeImmutable | format::kInodeAppend;
  return (inode_->fields.flags & kForbidden) != 0 ? Error::kNotPermitted : Error::kOk;
}

void XattrChange::Finish(Handle& handle) {
  inode_->mutex.AssertHeld();
  inode_->fields.ctime = fs_->Now();
  inode_->WriteBack(handle, /*data_reachability=*/false);
  if (fs_->options.sync || (inode_->fields.flags & format::kInodeSync) != 0) {
    attempt_.BeforeReply([journal = fs_->journal.get(), tid = handle.tid()] {
      return journal->Commit(tid, CommitReason::kSync);
    });
  }
}

void XattrChange::Store(Handle& handle, const BufferRef& buffer) {
  BlockEdit edit = handle.Edit(buffer);
  std::memcpy(edit.data() + format::kXattrHeaderOffset,
              content_.bytes.data() + format::kXattrHeaderOffset,
              kBlockSize - format::kXattrHeaderOffset);
}

Error XattrChange::Add(const Caller& caller) {
  const BlockNumber goal = fs_->blocks->GoalForGroup(fs_->geometry.GroupOfInode(inode_->ino));
  ASSIGN_OR_RETURN(BlockReservation reservation,
                   ReserveOrWait(fs_, attempt_, goal, 1, caller.privileged()));
  ASSIGN_OR_RETURN(Handle handle,
                   fs_->journal->TryStart(attempt_, OpType::kInode, credits::kNewXattrBlock));
  const BlockNumber block = fs_->blocks->Allocate(handle, reservation, goal, 1).start;
  const BufferRef buffer = fs_->cache->GetNew(block, {.kind = format::BlockKind::kXattr,
                                                      .owner = inode_->ino,
                                                      .generation = inode_->fields.generation});
  Store(handle, buffer);
  buffer->set_structure_checked();
  inode_->fields.xattr_block = block;
  {
    MutexLock lock(&inode_->extent_mutex);
    ++inode_->fields.blocks;
  }
  Finish(handle);
  return Error::kOk;
}

Error XattrChange::Replace(const BufferRef& buffer) {
  ASSIGN_OR_RETURN(Handle handle,
                   fs_->journal->TryStart(attempt_, OpType::kInode, credits::kChangeXattr));
  Store(handle, buffer);
  Finish(handle);
  return Error::kOk;
}

Error XattrChange::Free(const BufferRef& buffer) {
  const BlockRun run = {inode_->fields.xattr_block, 1};
  RETURN_IF_ERROR(fs_->blocks->PrepareFree(attempt_, run));
  ASSIGN_OR_RETURN(Handle handle,
                   fs_->journal->TryStart(attempt_, OpType::kInode, credits::kFreeXattrBlock,
                                          /*revokes=*/1));
  handle.Revoke(buffer);
  const Error error = fs_->blocks->Free(handle, run);
  inode_->fields.xattr_block = 0;
  {
    MutexLock lock(&inode_->extent_mutex);
    if (inode_->fields.blocks > 0) --inode_->fields.blocks;
  }
  Finish(handle);
  return error;
}

Error XattrChange::Set(const Caller& caller, const format::XattrView& attribute,
                       XattrSetMode mode) {
  RETURN_IF_ERROR(CheckMayChange());
  BufferRef buffer;
  XattrBytes empty;
  format::InitXattrBlock(empty.span());
  if (inode_->fields.xattr_block != 0) {
    ASSIGN_OR_RETURN(buffer, Load(fs_, attempt_, *inode_));
  }
  const format::ConstBlockSpan from =
      buffer ? std::as_const(*buffer).span() : format::ConstBlockSpan(empty.bytes);
  const auto found = format::FindXattr(from, attribute.name);
  if (found.ok() && mode == XattrSetMode::kCreate) return Error::kExists;
  if (!found.ok() && mode == XattrSetMode::kReplace) return Error::kNoData;
  RETURN_IF_ERROR(format::PutXattr(from, attribute, content_.span()));
  return buffer ? Replace(buffer) : Add(caller);
}

Error XattrChange::Remove(const XattrName& name) {
  RETURN_IF_ERROR(CheckMayChange());
  if (inode_->fields.xattr_block == 0) return Error::kNoData;
  ASSIGN_OR_RETURN(const BufferRef buffer, Load(fs_, attempt_, *inode_));
  RETURN_IF_ERROR(format::DropXattr(std::as_const(*buffer).span(), name, content_.span()));
  const bool last =
      format::As<format::XattrHeader>(content_.bytes.data() + format::kXattrHeaderOffset)->count ==
      0;
  return last ? Free(buffer) : Replace(buffer);
}

}  // namespace

Result<size_t> Filesystem::GetXattr(Attempt& attempt, const InodeRef& inode, std::string_view name,
                                    std::span<std::byte> out) {
  // First, since most files have none and the kernel asks often.
  ReaderMutexLock lock(&inode->mutex);
  ASSIGN_OR_RETURN(const XattrName wanted, format::ParseXattrName(name));
  if (inode->fields.xattr_block == 0) return Error::kNoData;
  ASSIGN_OR_RETURN(const BufferRef buffer, Load(impl_.get(), attempt, *inode));
  ASSIGN_OR_RETURN(const std::span<const std::byte> value,
                   format::FindXattr(std::as_const(*buffer).span(), wanted));
  RETURN_IF_ERROR(CheckRoom(value.size(), out));
  if (!out.empty() && !value.empty()) std::memcpy(out.data(), value.data(), value.size());
  return value.size();
}

Result<size_t> Filesystem::ListXattr(Attempt& attempt, const Caller& caller, const InodeRef& inode,
                                     std::span<std::byte> out) {
  ReaderMutexLock lock(&inode->mutex);
  if (inode->fields.xattr_block == 0) return size_t{0};
  ASSIGN_OR_RETURN(const BufferRef buffer, Load(impl_.get(), attempt, *inode));
  std::string names;
  format::XattrReader reader(std::as_const(*buffer).span());
  for (format::XattrView attribute; reader.Next(&attribute);) {
    const uint8_t name_space = attribute.name.name_space;
    if (name_space == format::kXattrTrusted && !caller.privileged()) continue;
    names += format::XattrPrefix(name_space);
    names += attribute.name.name;
    names += '\0';
  }
  RETURN_IF_ERROR(CheckRoom(names.size(), out));
  if (!out.empty() && !names.empty()) std::memcpy(out.data(), names.data(), names.size());
  return names.size();
}

Error Filesystem::SetXattr(Attempt& attempt, const Caller& caller, const InodeRef& inode,
                           std::string_view name, std::span<const std::byte> value,
                           XattrSetMode mode) {
  Impl* fs = impl_.get();
  ASSIGN_OR_RETURN(const FreezeGate::Pass pass, fs->BeginChange(attempt));
  ASSIGN_OR_RETURN(const XattrName parsed, format::ParseXattrName(name));
  MutexLock lock(&inode->mutex);
  return XattrChange(fs, attempt, inode).Set(caller, {.name = parsed, .value = value}, mode);
}

Error Filesystem::RemoveXattr(Attempt& attempt, const InodeRef& inode, std::string_view name) {
  Impl* fs = impl_.get();
  ASSIGN_OR_RETURN(const FreezeGate::Pass pass, fs->BeginChange(attempt));
  ASSIGN_OR_RETURN(const XattrName parsed, format::ParseXattrName(name));
  MutexLock lock(&inode->mutex);
  return XattrChange(fs, attempt, inode).Remove(parsed);
}

}  // namespace sluice
