// SPDX-License-Identifier: Apache-2.0
//
// Worst-case journal credits of each operation of fs/: one per metadata block it may change. A
// block counts once however often it is edited; different things that may share a block (two
// inodes of one table block, two groups of one table block) are counted as if they did not. What
// is not used goes back when the handle stops.
#ifndef SLUICE_FS_CREDITS_H_
#define SLUICE_FS_CREDITS_H_

#include <algorithm>
#include <cstddef>

#include "alloc/block_allocator.h"
#include "alloc/inode_allocator.h"
#include "fs/extent_tree.h"
#include "fs/orphan_file.h"

namespace sluice::credits {

// An inode's block of the inode table.
inline constexpr int kInode = 1;

// One leaf, when a name goes or changes its inode.
inline constexpr int kDirectoryLeaf = 1;

// Existing nodes that an insertion changes: the full ones that split, and the one above them or,
// if none is full, the leaf. (If all are full the root is the last of them.)
inline int DirectoryNodes(size_t depth, int splits) {
  return std::min(static_cast<int>(depth), splits + 1);
}

// A new block of a directory: the block, its bitmap and group descriptor, its extent.
inline int NewDirectoryBlock(const ExtentTree& tree) {
  return 1 + BlockAllocator::kCreditsPerRun + tree.InsertCredits();
}

// mkdir, mknod, open(O_CREAT), and symlink with an inline target: the new inode (bitmap, group
// descriptor, table block), the parent, the name.
inline int Create(int insert) { return InodeAllocator::kCreditsPerInode + kInode + insert; }

// A symlink whose target needs a data block: besides, its bitmap, descriptor and extent (in the
// inode: the root of a new inode is empty).
inline int SymlinkBlock(int insert) { return Create(insert) + BlockAllocator::kCreditsPerRun; }

// O_TMPFILE: the new inode, the orphan slot.
inline constexpr int kTemporary = InodeAllocator::kCreditsPerInode + OrphanFile::kCredits;

// The name, the parent, the inode, and its orphan slot if it came from O_TMPFILE.
inline int Link(int insert) { return insert + 2 * kInode + OrphanFile::kCredits; }

// unlink and rmdir: the name, the parent, the inode, an orphan slot if it was the last name.
inline constexpr int kUnlink = kDirectoryLeaf + 2 * kInode + OrphanFile::kCredits;

// The old name, the new one, both parents, the inode that moves.
inline int Rename(int insert) { return kDirectoryLeaf + insert + 3 * kInode; }

// As Rename, the new name in a leaf that has it, and the inode that loses its name.
inline constexpr int kRenameReplace = 2 * kDirectoryLeaf + 4 * kInode + OrphanFile::kCredits;

// Two names, two parents, two inodes.
inline constexpr int kRenameExchange = 2 * kDirectoryLeaf + 4 * kInode;

// chmod, chown, utimes, chattr.
inline constexpr int kAttributes = kInode;

// The first extended attribute: its block, bitmap and descriptor, the inode. A change: the block,
// the inode. The last one that goes: bitmap and descriptor, the inode.
inline constexpr int kNewXattrBlock = 1 + BlockAllocator::kCreditsPerRun + kInode;
inline constexpr int kChangeXattr = 1 + kInode;
inline constexpr int kFreeXattrBlock = BlockAllocator::kCreditsPerRun + kInode;

}  // namespace sluice::credits

#endif  // SLUICE_FS_CREDITS_H_
