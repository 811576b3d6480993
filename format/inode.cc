// SPDX-License-Identifier: Apache-2.0
#include "format/inode.h"

#include <sys/stat.h>

#include <algorithm>

namespace sluice::format {

namespace {

// Types as on disk; stat(2) has the same numbers on Linux.
static_assert(S_IFMT == 0170000 && S_IFREG == 0100000 && S_IFDIR == 0040000 && S_IFLNK == 0120000 &&
              S_IFCHR == 0020000 && S_IFBLK == 0060000 && S_IFIFO == 0010000 &&
              S_IFSOCK == 0140000);

constexpr uint32_t kKnownInodeFlags = kInodeSync | kInodeImmutable | kInodeAppend | kInodeNoDump |
                                      kInodeNoAtime | kInodeDirSync | kInodeInlineSymlink;

uint64_t ChecksumOf(uint64_t seed, InodeNumber ino, const Inode& inode) {
  return ChecksumSkipping(InodeSeed(seed, ino),
                          std::span(reinterpret_cast<const std::byte*>(&inode), sizeof(Inode)),
                          offsetof(Inode, checksum));
}

const std::byte* RootOf(const Inode& inode) {
  return reinterpret_cast<const std::byte*>(inode.root);
}

const char* RootProblem(const Inode& inode, BlockCount block_count) {
  const char* problem = nullptr;
  const Error error =
      CheckExtentNode(RootOf(inode), kInlineExtents, -1, 0, kMaxFileBlocks, block_count, &problem);
  return error == Error::kOk ? nullptr : problem;
}

const char* SymlinkProblem(const Inode& inode, BlockCount block_count) {
  const uint64_t size = inode.size;
  if ((inode.flags & kInodeInlineSymlink) == 0) {
    if (size == 0 || size > kMaxSymlink) return "impossible length of a symbolic link";
    return RootProblem(inode, block_count);
  }
  if (size == 0 || size > kMaxInlineSymlink) return "impossible length of a short symbolic link";
  if (std::find(inode.root, inode.root + size, 0) != inode.root + size) {
    return "NUL in a short symbolic link";
  }
  return nullptr;
}

const char* TypeProblem(const Inode& inode, BlockCount block_count) {
  switch (inode.mode & S_IFMT) {
    case S_IFREG:
      if (inode.size > kMaxFileSize) return "file too large";
      return RootProblem(inode, block_count);
    case S_IFDIR:
      if (inode.size > kMaxFileSize || inode.size % kBlockSize != 0) {
        return "impossible size of a directory";
      }
      if (inode.parent == 0) return "directory without a parent";
      return RootProblem(inode, block_count);
    case S_IFLNK:
      return SymlinkProblem(inode, block_count);
    case S_IFCHR:
    case S_IFBLK:
    case S_IFIFO:
    case S_IFSOCK:
      return inode.size == 0 ? nullptr : "size of a special file";
    default:
      return "unknown file type";
  }
}

const char* InodeProblem(uint64_t seed, InodeNumber ino, BlockCount block_count,
                         const Inode& inode) {
  if (inode.checksum != ChecksumOf(seed, ino, inode)) return "wrong inode checksum";
  if (inode.mode == 0) return nullptr;
  if ((inode.flags & ~kKnownInodeFlags) != 0) return "unknown inode flags";
  if ((inode.flags & kInodeInlineSymlink) != 0 && (inode.mode & S_IFMT) != S_IFLNK) {
    return "short symbolic link flag on another type";
  }
  if (inode.links > kMaxLinks) return "impossible link count";
  if (inode.blocks > block_count) return "more blocks than the image has";
  if (inode.xattr_block >= block_count) return "extended attribute block outside the image";
  return TypeProblem(inode, block_count);
}

}  // namespace

uint64_t InodeSeed(uint64_t checksum_seed, InodeNumber ino) {
  const Le64 number = ino;
  return Checksum(checksum_seed,
                  std::span(reinterpret_cast<const std::byte*>(&number), sizeof(number)));
}

void SealInode(uint64_t seed, InodeNumber ino, Inode* inode) {
  inode->checksum = ChecksumOf(seed, ino, *inode);
}

void SealInodeTable(uint64_t seed, InodeNumber first, BlockSpan block) {
  for (uint32_t i = 0; i < kInodesPerBlock; ++i) {
    SealInode(seed, first + i, As<Inode>(block.data() + i * kInodeSize));
  }
}

Error CheckInode(uint64_t seed, InodeNumber ino, BlockCount block_count, const Inode& inode,
                 const char** reason) {
  const char* problem = InodeProblem(seed, ino, block_count, inode);
  if (problem == nullptr) return Error::kOk;
  if (reason != nullptr) *reason = problem;
  return Error::kCorrupt;
}

}  // namespace sluice::format
