// SPDX-License-Identifier: Apache-2.0
//
// The blocks of a file that is metadata (a directory, the orphan file, a long symbolic link), read
// through its extents.
#ifndef SLUICE_FSCK_FILE_BLOCKS_H_
#define SLUICE_FSCK_FILE_BLOCKS_H_

#include <vector>

#include "base/aligned_buffer.h"
#include "fsck/check_state.h"
#include "fsck/extent_walk.h"

namespace sluice {

// Thread-compatible; one file at a time.
class FileBlocks {
 public:
  explicit FileBlocks(CheckState* state) : state_(state), walk_(state), block_(kBlockSize) {}

  // Reads the extents. Findings about the tree were made before. `blocks` is the length by the
  // file's size.
  void Open(InodeNumber ino, uint32_t generation, const std::byte* root, uint64_t blocks);

  // Logical blocks below the length that are not there, as ranges.
  const std::vector<format::BlockRange>& holes() const { return holes_; }
  // Something lies at or behind the length.
  bool beyond() const { return beyond_; }
  // A node of the tree is damaged: holes may be none.
  bool damaged() const { return damaged_; }
  // What is there, below the length, ascending.
  struct Run {
    FileBlock logical;
    BlockNumber physical;
    BlockCount count;
  };
  const std::vector<Run>& runs() const { return runs_; }

  // 0: a hole.
  BlockNumber Physical(FileBlock logical) const;
  // The block, which is not a hole; valid until the next call.
  format::ConstBlockSpan Read(FileBlock logical);

 private:
  class Visitor;
  // Reads the whole file if it is small enough to be kept.
  void Load();

  CheckState* const state_;
  ExtentWalk walk_;
  uint64_t blocks_ = 0;
  std::vector<Run> runs_;
  std::vector<format::BlockRange> holes_;
  bool beyond_ = false;
  bool damaged_ = false;
  AlignedBuffer block_;
  AlignedBuffer all_;  // of a small file; grows, never shrinks
  bool loaded_ = false;
};

}  // namespace sluice

#endif  // SLUICE_FSCK_FILE_BLOCKS_H_
