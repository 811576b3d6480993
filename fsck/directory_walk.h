// SPDX-License-Identifier: Apache-2.0
//
// Visits the names of a directory in the order of their keys, checking every block before it is
// believed.
#ifndef SLUICE_FSCK_DIRECTORY_WALK_H_
#define SLUICE_FSCK_DIRECTORY_WALK_H_

#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "format/directory.h"
#include "fsck/file_blocks.h"

namespace sluice {

class DirectoryVisitor {
 public:
  virtual ~DirectoryVisitor() = default;
  virtual void OnEntry(const format::DirEntry& entry, std::string_view name) = 0;
  virtual void OnBadBlock(FileBlock logical, BlockNumber physical, const char* reason) = 0;
  // The block has been visited before.
  virtual void OnSeenBlock(FileBlock logical) = 0;
};

// Thread-compatible; holds the buffers for any number of walks.
class DirectoryWalk {
 public:
  explicit DirectoryWalk(CheckState* state) : state_(state), file_(state) {}

  // Each logical block is visited at most once, so the directory's length bounds the work.
  void Run(const DirectoryInfo& directory, DirectoryVisitor* visitor);

  // Of the last run.
  const FileBlocks& file() const { return file_; }
  bool Seen(FileBlock logical) const { return seen_.contains(logical); }

 private:
  struct Range {
    uint64_t first, end;
  };
  void Visit(FileBlock logical, int level, Range range);
  void VisitLeaf(format::ConstBlockSpan block);
  void VisitIndex(format::ConstBlockSpan block, Range range);

  CheckState* const state_;
  FileBlocks file_;
  const DirectoryInfo* directory_ = nullptr;
  DirectoryVisitor* visitor_ = nullptr;
  absl::flat_hash_set<FileBlock> seen_;  // none of them a hole
};

}  // namespace sluice

#endif  // SLUICE_FSCK_DIRECTORY_WALK_H_
