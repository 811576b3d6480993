// SPDX-License-Identifier: Apache-2.0
#include "fs/directory.h"

#include <algorithm>
#include <bitset>
#include <cstring>
#include <utility>

#include "fs/credits.h"
#include "fs/directory_node.h"

namespace sluice {

using format::DirNodeOf;
using format::kDirKeySequences;
using format::kEndDirKey;

namespace {

constexpr int kAnyLevel = -1;  // the root's is what it is

}  // namespace

Directory::Directory(Filesystem::Impl* fs, Inode* inode)
    : fs_(fs), inode_(inode), tree_(inode, fs->cache.get(), fs->blocks.get()) {}

Error Directory::Corrupt(BlockNumber block, const char* what) const {
  fs_->self->ReportCorruption(inode_->ino, block, what);
  return Error::kCorrupt;
}

Result<BufferRef> Directory::ReadNode(Attempt& attempt, FileBlock logical, int level,
                                      uint64_t first, uint64_t end) const {
  ASSIGN_OR_RETURN(const Mapping mapping, tree_.Lookup(attempt, logical));
  if (mapping.physical == kNoBlock || mapping.unwritten) {
    return Corrupt(0, "hole in a directory");
  }
  const format::BlockIdentity identity = {format::BlockKind::kDirectory, inode_->ino,
                                          inode_->fields.generation};
  Result<BufferRef> buffer = fs_->cache->Get(attempt, mapping.physical, identity);
  if (!buffer.ok()) {
    if (buffer.error() != Error::kCorrupt) return buffer.error();
    return Corrupt(mapping.physical, "directory block belongs to something else");
  }
  if (!(*buffer)->structure_checked()) {
    const char* reason = "damaged directory block";
    const uint64_t blocks = inode_->fields.size / kBlockSize;
    if (format::CheckDirBlock(fs_->super.fixed.hash_seed, (*buffer)->span(), level, first, end,
                              blocks, &reason) != Error::kOk) {
      return Corrupt(mapping.physical, reason);
    }
    (*buffer)->set_structure_checked();
  } else if (level != kAnyLevel && DirNodeOf((*buffer)->data())->level != level) {
    // Two parents claim the block; without this a loop of them would never end.
    return Corrupt(mapping.physical, "wrong level of a directory block");
  }
  return buffer;
}

Result<Directory::Leaf> Directory::Descend(Attempt& attempt, uint64_t key,
                                           DirectoryInsert* plan) const {
  uint64_t first = 0;
  uint64_t end = kEndDirKey;
  FileBlock logical = 0;
  uint32_t position = 0;
  int level = kAnyLevel;
  for (;;) {
    ASSIGN_OR_RETURN(BufferRef buffer, ReadNode(attempt, logical, level, first, end));
    const std::byte* block = buffer->data();
    if (plan != nullptr) plan->path.push_back({buffer, logical, position});
    level = DirNodeOf(block)->level;
    if (level == 0) return Leaf{std::move(buffer), end};
    position = dirnode::IndexFind(block, key);
    const format::DirIndexEntry* entries = format::DirIndexesOf(block);
    first = entries[position].key;
    if (position + 1 < DirNodeOf(block)->count) end = entries[position + 1].key;
    logical = entries[position].child;
    --level;
  }
}

Result<DirectoryEntry> Directory::Lookup(Attempt& attempt, std::string_view name) const {
  if (empty_tree()) return Error::kNotFound;
  const uint64_t first = format::DirKey(fs_->super.fixed.hash_seed, name);
  const uint64_t last = first + kDirKeySequences - 1;
  // Names of one hash may lie in several leaves.
  for (uint64_t from = first; from <= last;) {
    ASSIGN_OR_RETURN(Leaf leaf, Descend(attempt, from, nullptr));
    const std::byte* block = leaf.buffer->data();
    const uint32_t count = DirNodeOf(block)->count;
    for (uint32_t slot = dirnode::LeafLowerBound(block, from); slot < count; ++slot) {
      const format::DirEntry* entry = dirnode::LeafEntry(block, slot);
      if (entry->key > last) return Error::kNotFound;
      if (dirnode::EntryName(entry) != name) continue;
      return DirectoryEntry{entry->key, entry->inode, entry->type, std::move(leaf.buffer)};
    }
    from = leaf.end;
  }
  return Error::kNotFound;
}

Result<uint64_t> Directory::FreeKey(Attempt& attempt, uint64_t first) const {
  std::bitset<kDirKeySequences> used;
  const uint64_t last = first + kDirKeySequences - 1;
  for (uint64_t from = first; from <= last;) {
    ASSIGN_OR_RETURN(const Leaf leaf, Descend(attempt, from, nullptr));
    const std::byte* block = leaf.buffer->data();
    const uint32_t count = DirNodeOf(block)->count;
    for (uint32_t slot = dirnode::LeafLowerBound(block, from); slot < count; ++slot) {
      const uint64_t key = dirnode::LeafEntry(block, slot)->key;
      if (key > last) break;
      used.set(key - first);
    }
    from = leaf.end;
  }
  for (uint64_t sequence = 0; sequence < kDirKeySequences; ++sequence) {
    if (!used.test(sequence)) return first + sequence;
  }
  return Error::kNoSpace;
}

Result<DirectoryInsert> Directory::PrepareInsert(Attempt& attempt, std::string_view name) const {
  DirectoryInsert plan;
  plan.key = format::DirKey(fs_->super.fixed.hash_seed, name);
  if (!empty_tree()) {
    ASSIGN_OR_RETURN(plan.key, FreeKey(attempt, plan.key));
    ASSIGN_OR_RETURN(const Leaf leaf, Descend(attempt, plan.key, &plan));
    (void)leaf;  // the path ends with it
  }
  RETURN_IF_ERROR(PlanBlocks(attempt, name.size(), &plan));
  return plan;
}

// How many nodes are full from the leaf upwards, and what splitting them costs. Splitting makes one
// new node each; a full root first moves to a new node, so that it stays block 0.
Error Directory::PlanBlocks(Attempt& attempt, size_t name_length, DirectoryInsert* plan) const {
  const size_t depth = plan->path.size();
  if (depth == 0) {
    plan->new_blocks = 1;
  } else if (!dirnode::LeafFits(plan->path.back().buffer->data(), name_length)) {
    size_t splits = 1;
    while (splits < depth && dirnode::IndexFull(plan->path[depth - 1 - splits].buffer->data())) {
      ++splits;
    }
    if (splits == depth && depth == format::kMaxDirLevels) return Error::kNoSpace;
    plan->splits = static_cast<int>(splits);
    plan->new_blocks = splits + (splits == depth ? 1 : 0);
  }
  plan->credits = credits::DirectoryNodes(depth, plan->splits);
  if (plan->new_blocks == 0) return Error::kOk;
  const FileBlock end = inode_->fields.size / kBlockSize;
  if (end + plan->new_blocks > format::kMaxFileBlocks) return Error::kNoSpace;
  plan->goal = fs_->blocks->GoalForGroup(fs_->geometry.GroupOfInode(inode_->ino));
  if (end > 0) {
    ASSIGN_OR_RETURN(const Mapping last, tree_.Lookup(attempt, end - 1));
    if (last.physical != kNoBlock) plan->goal = last.physical + 1;
  }
  for (BlockCount i = 0; i < plan->new_blocks; ++i) {
    RETURN_IF_ERROR(tree_.PrepareInsert(attempt, end + i));
  }
  plan->credits += static_cast<int>(plan->new_blocks) * credits::NewDirectoryBlock(tree_);
  plan->blocks = plan->new_blocks * (1 + tree_.InsertBlocks());
  return Error::kOk;
}

DirectoryInsert::Node Directory::NewNode(Handle& handle, DirectoryInsert& plan,
                                         BlockReservation& reservation) {
  const FileBlock logical = inode_->fields.size / kBlockSize;
  const BlockRun run = fs_->blocks->Allocate(handle, reservation, plan.goal, 1);
  plan.goal = run.start + 1;
  tree_.Insert(handle, reservation, logical, run, false);
  inode_->fields.size += kBlockSize;
  const format::BlockIdentity identity = {format::BlockKind::kDirectory, inode_->ino,
                                          inode_->fields.generation};
  BufferRef buffer = fs_->cache->GetNew(run.start, identity);
  buffer->set_structure_checked();
  return {std::move(buffer), logical, 0};
}

// Block 0 stays the root: its content moves to a new node, and it becomes an index of that one.
void Directory::PushRootDown(Handle& handle, DirectoryInsert& plan, BlockReservation& reservation) {
  DirectoryInsert::Node child = NewNode(handle, plan, reservation);
  const BufferRef root = plan.path[0].buffer;
  {
    BlockEdit edit = handle.Edit(child.buffer);
    std::memcpy(edit.data() + format::kDirNodeOffset, root->data() + format::kDirNodeOffset,
                kBlockSize - format::kDirNodeOffset);
  }
  BlockEdit edit = handle.Edit(root);
  const uint32_t level = DirNodeOf(edit.data())->level;
  dirnode::InitIndex(edit.data(), level + 1);
  dirnode::IndexInsert(edit.data(), 0, 0, child.logical);
  plan.path.insert(plan.path.begin() + 1, std::move(child));
}

// Splits the full node at `depth` of the path, whose parent has room, and goes on with the half
// that the key belongs to.
void Directory::SplitNode(Handle& handle, DirectoryInsert& plan, BlockReservation& reservation,
                          size_t depth) {
  DirectoryInsert::Node right = NewNode(handle, plan, reservation);
  DirectoryInsert::Node& node = plan.path[depth];
  std::byte moved[kBlockSize];
  uint64_t split = 0;
  {
    BlockEdit edit = handle.Edit(node.buffer);
    split = DirNodeOf(edit.data())->level == 0 ? dirnode::LeafSplit(edit.data(), moved)
                                               : dirnode::IndexSplit(edit.data(), moved);
  }
  {
    BlockEdit edit = handle.Edit(right.buffer);
    std::memcpy(edit.data() + format::kDirNodeOffset, moved + format::kDirNodeOffset,
                kBlockSize - format::kDirNodeOffset);
  }
  BlockEdit edit = handle.Edit(plan.path[depth - 1].buffer);
  right.position = dirnode::IndexFind(edit.data(), split) + 1;
  dirnode::IndexInsert(edit.data(), right.position, split, right.logical);
  if (plan.key >= split) node = std::move(right);
}

void Directory::Insert(Handle& handle, DirectoryInsert& plan, BlockReservation& reservation,
                       std::string_view name, InodeNumber ino, uint8_t type) {
  if (plan.path.empty()) {
    plan.path.push_back(NewNode(handle, plan, reservation));
    BlockEdit edit = handle.Edit(plan.path[0].buffer);
    dirnode::InitLeaf(edit.data());
  } else if (plan.splits > 0 && !dirnode::LeafFits(plan.path.back().buffer->data(), name.size())) {
    size_t top = plan.path.size() - static_cast<size_t>(plan.splits);
    if (top == 0) {
      PushRootDown(handle, plan, reservation);
      top = 1;
    }
    for (size_t depth = top; depth < plan.path.size(); ++depth) {
      SplitNode(handle, plan, reservation, depth);
    }
  }
  BlockEdit edit = handle.Edit(plan.path.back().buffer);
  dirnode::LeafInsert(edit.data(), plan.key, ino, type, name);
}

void Directory::Remove(Handle& handle, const DirectoryEntry& entry) {
  BlockEdit edit = handle.Edit(entry.leaf);
  const uint32_t slot = dirnode::LeafLowerBound(edit.data(), entry.key);
  SLUICE_CHECK(slot < DirNodeOf(edit.data())->count &&
               dirnode::LeafEntry(edit.data(), slot)->key == entry.key);
  dirnode::LeafRemove(edit.data(), slot);
}

void Directory::Replace(Handle& handle, const DirectoryEntry& entry, InodeNumber ino,
                        uint8_t type) {
  BlockEdit edit = handle.Edit(entry.leaf);
  const uint32_t slot = dirnode::LeafLowerBound(edit.data(), entry.key);
  SLUICE_CHECK(slot < DirNodeOf(edit.data())->count &&
               dirnode::LeafEntry(edit.data(), slot)->key == entry.key);
  format::DirEntry* found = dirnode::LeafEntry(edit.data(), slot);
  found->inode = ino;
  found->type = type;
}

Error Directory::ReadLeaf(Attempt& attempt, uint64_t from, DirectoryListing* listing) const {
  listing->names.clear();
  listing->bytes.clear();
  listing->next = kEndDirKey;
  if (empty_tree() || from >= kEndDirKey) return Error::kOk;
  ASSIGN_OR_RETURN(const Leaf leaf, Descend(attempt, from, nullptr));
  const std::byte* block = leaf.buffer->data();
  const uint32_t count = DirNodeOf(block)->count;
  for (uint32_t slot = dirnode::LeafLowerBound(block, from); slot < count; ++slot) {
    const format::DirEntry* entry = dirnode::LeafEntry(block, slot);
    listing->names.push_back({entry->key, entry->inode,
                              static_cast<uint32_t>(listing->bytes.size()), entry->name_length,
                              entry->type});
    listing->bytes.append(dirnode::EntryName(entry));
  }
  listing->next = leaf.end;
  return Error::kOk;
}

}  // namespace sluice
