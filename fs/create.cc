// SPDX-License-Identifier: Apache-2.0
//
// New inodes: Create, Symlink, CreateTemporary; and Readlink.
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "fs/credits.h"
#include "fs/directory.h"
#include "fs/extent_tree.h"
#include "fs/filesystem.h"
#include "fs/filesystem_impl.h"
#include "fs/inode_cache.h"
#include "fs/inode_locks.h"
#include "fs/namespace.h"
#include "fs/orphan_file.h"
#include "fs/space.h"

namespace sluice {
namespace {

// A long symlink's block, and the one that ExtentTree::Insert wants to see reserved.
constexpr BlockCount kTargetBlocks = 2;

// What a new inode takes over from its directory's flags, as ext4's EXT4_FL_INHERITED.
uint32_t InheritedFlags(uint32_t flags, uint16_t mode) {
  uint32_t inherited = flags & (format::kInodeNoDump | format::kInodeNoAtime);
  if (S_ISREG(mode) || S_ISDIR(mode)) inherited |= flags & format::kInodeSync;
  if (S_ISDIR(mode)) inherited |= flags & format::kInodeDirSync;
  return inherited;
}

// Owner, group and mode of a child of `parent`, whose mutex is held: a set-group-id directory gives
// its group to what is made in it, and the bit to directories. A program must not become
// set-group-id of a group that its maker is not in.
InodeFields NewFields(const Caller& caller, const Inode& parent, uint16_t mode, Nanoseconds now) {
  InodeFields fields;
  fields.mode = mode;
  fields.uid = caller.uid;
  fields.gid = caller.gid;
  fields.flags = InheritedFlags(parent.fields.flags, mode);
  if ((parent.fields.mode & S_ISGID) != 0) {
    fields.gid = parent.fields.gid;
    constexpr uint16_t kProgram = S_ISGID | S_IXGRP;
    if (S_ISDIR(mode)) {
      fields.mode |= S_ISGID;
    } else if ((mode & kProgram) == kProgram && !caller.privileged() && caller.gid != fields.gid) {
      fields.mode = static_cast<uint16_t>(fields.mode & ~S_ISGID);
    }
  }
  fields.project = parent.fields.project;
  fields.atime = fields.mtime = fields.ctime = fields.btime = now;
  return fields;
}

// Takes the reserved number under the handle and makes the inode's object, its mutex held by
// `locks`. The caller writes it back.
InodeRef MakeInode(Filesystem::Impl* fs, Handle& handle, InodeReservation reservation,
                   InodeFields fields, InodeLocks* locks) {
  const bool directory = S_ISDIR(fields.mode);
  AllocatedInode allocated = fs->inode_numbers->Allocate(handle, std::move(reservation), directory);
  InodeRef inode =
      fs->inodes->AddNew(allocated.ino, std::move(allocated.table_block),
                         fs->geometry.InodeOffset(allocated.ino), allocated.generation);
  locks->Lock(inode);
  inode->set_type(fields.mode);
  fields.generation = allocated.generation;
  inode->fields = fields;
  return inode;
}

bool IsNodeType(uint16_t mode) {
  return S_ISREG(mode) || S_ISDIR(mode) || S_ISCHR(mode) || S_ISBLK(mode) || S_ISFIFO(mode) ||
         S_ISSOCK(mode);
}

// What Create and Symlink do alike: everything that must be known before the handle.
struct Preparation {
  InodeReservation number;
  DirectoryInsert insert;
  BlockReservation blocks;
};

Result<Preparation> Prepare(Filesystem::Impl* fs, Attempt& attempt, const Caller& caller,
                            const InodeRef& parent, Directory& directory, std::string_view name,
                            uint16_t mode, BlockCount data_blocks) {
  RETURN_IF_ERROR(CheckMayAdd(*parent));
  if (IsDots(name)) return Error::kExists;
  const Result<DirectoryEntry> existing = directory.Lookup(attempt, name);
  if (existing.ok()) return Error::kExists;
  if (existing.error() != Error::kNotFound) return existing.error();
  if (S_ISDIR(mode) && parent->fields.links >= format::kMaxLinks) return Error::kTooManyLinks;
  Preparation prepared;
  ASSIGN_OR_RETURN(prepared.insert, directory.PrepareInsert(attempt, name));
  ASSIGN_OR_RETURN(prepared.number, ReserveInode(fs, attempt, parent->ino, S_ISDIR(mode)));
  ASSIGN_OR_RETURN(prepared.blocks,
                   ReserveOrWait(fs, attempt, prepared.insert.goal,
                                 prepared.insert.blocks + data_blocks, caller.privileged()));
  return prepared;
}

// Enters the finished inode into its directory.
void Enter(Filesystem::Impl* fs, Attempt& attempt, Handle& handle, const InodeRef& parent,
           Directory& directory, Preparation& prepared, std::string_view name, Inode* child) {
  WriteBackLocked(handle, child, true);
  directory.Insert(handle, prepared.insert, prepared.blocks, name, child->ino,
                   EntryType(child->fields.mode));
  if (child->is_directory()) ++parent->fields.links;
  DirectoryChanged(handle, parent.get(), child->fields.btime, 1);
  SyncIfAsked(fs, attempt, *parent, handle.tid());
}

// Puts a long target into a block of its own, as the file's data: it is written before the
// transaction commits.
void StoreTarget(Filesystem::Impl* fs, Handle& handle, BlockReservation& blocks, Inode* inode,
                 std::string_view target) {
  const BlockNumber goal = fs->blocks->GoalForGroup(fs->geometry.GroupOfInode(inode->ino));
  const BlockRun run = fs->blocks->Allocate(handle, blocks, goal, 1);
  ExtentTree(inode, fs->cache.get(), fs->blocks.get()).Insert(handle, blocks, 0, run, false);
  inode->pages.Write(0, 0, std::as_bytes(std::span(target.data(), target.size())), run.start);
  handle.AddOrdered(inode->shared_from_this());
}

}  // namespace

Result<InodeRef> Filesystem::Create(Attempt& attempt, const Caller& caller, const InodeRef& parent,
                                    std::string_view name, const NewNode& node) {
  Impl* fs = impl_.get();
  ASSIGN_OR_RETURN(const FreezeGate::Pass pass, fs->BeginChange(attempt));
  RETURN_IF_ERROR(CheckName(name));
  if (!IsNodeType(node.mode)) return Error::kInvalid;
  const bool device = S_ISCHR(node.mode) || S_ISBLK(node.mode);
  InodeLocks locks;
  locks.Lock(parent);
  Directory directory(fs, parent.get());
  ASSIGN_OR_RETURN(Preparation prepared,
                   Prepare(fs, attempt, caller, parent, directory, name, node.mode, 0));
  ASSIGN_OR_RETURN(Handle handle, fs->journal->TryStart(attempt, OpType::kDirectory,
                                                        credits::Create(prepared.insert.credits)));
  InodeFields fields = NewFields(caller, *parent, node.mode, fs->Now());
  fields.links = S_ISDIR(node.mode) ? 2 : 1;
  if (S_ISDIR(node.mode)) fields.parent = parent->ino;
  if (device) fields.device = uint64_t{node.major} << 32 | node.minor;
  InodeRef child = MakeInode(fs, handle, std::move(prepared.number), fields, &locks);
  Enter(fs, attempt, handle, parent, directory, prepared, name, child.get());
  return child;
}

Result<InodeRef> Filesystem::Symlink(Attempt& attempt, const Caller& caller, const InodeRef& parent,
                                     std::string_view name, std::string_view target) {
  Impl* fs = impl_.get();
  ASSIGN_OR_RETURN(const FreezeGate::Pass pass, fs->BeginChange(attempt));
  RETURN_IF_ERROR(CheckName(name));
  if (target.empty()) return Error::kNotFound;
  if (target.size() > format::kMaxSymlink) return Error::kNameTooLong;
  if (target.find('\0') != std::string_view::npos) return Error::kInvalid;
  const bool in_inode = target.size() <= format::kMaxInlineSymlink;
  const uint16_t mode = S_IFLNK | 0777;
  InodeLocks locks;
  locks.Lock(parent);
  Directory directory(fs, parent.get());
  ASSIGN_OR_RETURN(Preparation prepared, Prepare(fs, attempt, caller, parent, directory, name, mode,
                                                 in_inode ? 0 : kTargetBlocks));
  const int insert = prepared.insert.credits;
  ASSIGN_OR_RETURN(Handle handle, fs->journal->TryStart(attempt, OpType::kDirectory,
                                                        in_inode ? credits::Create(insert)
                                                                 : credits::SymlinkBlock(insert)));
  InodeFields fields = NewFields(caller, *parent, mode, fs->Now());
  fields.links = 1;
  fields.size = target.size();
  if (in_inode) fields.flags |= format::kInodeInlineSymlink;
  InodeRef child = MakeInode(fs, handle, std::move(prepared.number), fields, &locks);
  if (in_inode) {
    child->root.fill(std::byte{0});
    std::memcpy(child->root.data(), target.data(), target.size());
  } else {
    StoreTarget(fs, handle, prepared.blocks, child.get(), target);
  }
  Enter(fs, attempt, handle, parent, directory, prepared, name, child.get());
  return child;
}

Result<std::string> Filesystem::Readlink(Attempt& attempt, const InodeRef& inode) {
  Impl* fs = impl_.get();
  if (!inode->is_symlink()) return Error::kInvalid;
  ReaderMutexLock lock(&inode->mutex);
  std::string target(inode->fields.size, '\0');
  const std::span<std::byte> out = std::as_writable_bytes(std::span(target.data(), target.size()));
  if ((inode->fields.flags & format::kInodeInlineSymlink) != 0) {
    if (target.size() > inode->root.size()) return Error::kCorrupt;
    std::memcpy(out.data(), inode->root.data(), out.size());
    return target;
  }
  if (target.size() > format::kMaxSymlink) return Error::kCorrupt;
  if (inode->pages.Read(0, 0, out)) return target;
  ExtentTree tree(inode.get(), fs->cache.get(), fs->blocks.get());
  ASSIGN_OR_RETURN(const Mapping mapping, tree.Lookup(attempt, 0));
  if (mapping.physical == kNoBlock || mapping.unwritten) {
    ReportCorruption(inode->ino, 0, "symbolic link without a block");
    return Error::kCorrupt;
  }
  // It stays among the inode's pages, for the next who asks, until the inode is evicted.
  const uint64_t version = inode->pages.version();
  return attempt.Block([fs, inode, block = mapping.physical, version] {
    PageMemory memory = fs->budget->NewPage();
    RETURN_IF_ERROR(fs->device->Read(block * kBlockSize, memory->span()));
    inode->pages.InsertClean(0, block, std::move(memory), version);
    return Error::kOk;
  });
}

Result<InodeRef> Filesystem::CreateTemporary(Attempt& attempt, const Caller& caller,
                                             const InodeRef& parent, const NewNode& node) {
  Impl* fs = impl_.get();
  ASSIGN_OR_RETURN(const FreezeGate::Pass pass, fs->BeginChange(attempt));
  if (!S_ISREG(node.mode)) return Error::kInvalid;
  InodeFields fields;
  {
    ReaderMutexLock lock(&parent->mutex);
    if (!parent->is_directory()) return Error::kNotDirectory;
    if (parent->fields.links == 0) return Error::kNotFound;
    fields = NewFields(caller, *parent, node.mode, fs->Now());
  }
  ASSIGN_OR_RETURN(InodeReservation number, ReserveInode(fs, attempt, parent->ino, false));
  ASSIGN_OR_RETURN(OrphanFile::Claim claim, ClaimOrphan(fs, attempt));
  ASSIGN_OR_RETURN(Handle handle,
                   fs->journal->TryStart(attempt, OpType::kOrphan, credits::kTemporary));
  InodeLocks locks;
  InodeRef inode = MakeInode(fs, handle, std::move(number), fields, &locks);
  inode->linkable = true;
  fs->orphans->Add(handle, inode.get(), std::move(claim));
  WriteBackLocked(handle, inode.get(), true);
  return inode;
}

}  // namespace sluice
