// SPDX-License-Identifier: Apache-2.0
//
// Visits an extent tree, checking every node before it is believed.
#ifndef SLUICE_FSCK_EXTENT_WALK_H_
#define SLUICE_FSCK_EXTENT_WALK_H_

#include <array>
#include <cstdint>

#include "absl/container/flat_hash_set.h"
#include "base/aligned_buffer.h"
#include "format/extent.h"
#include "fsck/check_state.h"

namespace sluice {

class ExtentVisitor {
 public:
  virtual ~ExtentVisitor() = default;
  // A node's block, before it is read; false: do not look into it.
  virtual bool OnNode(BlockNumber block) = 0;
  virtual void OnExtent(const format::Extent& extent) = 0;
  // A node that cannot be believed. `reason` is for a person.
  virtual void OnBadNode(BlockNumber block, const char* reason) = 0;
};

// Thread-compatible; holds the buffers for any number of walks.
class ExtentWalk {
 public:
  explicit ExtentWalk(CheckState* state) : state_(state) {}

  // `root` points at the 80 bytes of the inode, which need not have been checked. A root that is
  // bad is OnBadNode(0). No node is visited twice, so the image bounds the work.
  void Run(InodeNumber ino, uint32_t generation, const std::byte* root, ExtentVisitor* visitor);

 private:
  struct Range {
    FileBlock first, end;
  };
  // `node` has been checked.
  void Visit(const std::byte* node, Range range);
  void Descend(BlockNumber block, uint32_t depth, Range range);

  CheckState* const state_;
  InodeNumber ino_ = 0;
  uint32_t generation_ = 0;
  ExtentVisitor* visitor_ = nullptr;
  absl::flat_hash_set<BlockNumber> seen_;
  std::array<AlignedBuffer, format::kMaxExtentDepth> buffers_;  // by depth
};

}  // namespace sluice

#endif  // SLUICE_FSCK_EXTENT_WALK_H_
