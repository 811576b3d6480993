// SPDX-License-Identifier: Apache-2.0
//
// Changes of an image that keep everything else right: what the image editor alone would leave
// half done (counts beside a bitmap, the number of names beside a name).
#ifndef SLUICE_TESTS_FSCK_TREE_EDITOR_H_
#define SLUICE_TESTS_FSCK_TREE_EDITOR_H_

#include <string_view>

#include "format/directory.h"
#include "tests/support/image_editor.h"

namespace sluice::testing {

// What a test asks for must be there; anything else aborts it.
class TreeEditor : public ImageEditor {
 public:
  using ImageEditor::ImageEditor;

  // In the block bitmap and the count.
  void MarkBlock(BlockNumber block, bool used);
  // A free block, now marked used.
  BlockNumber TakeBlock();
  // In the inode bitmap and the count.
  void MarkInode(InodeNumber ino, bool used);
  // A free inode that has a record, in a group with more than one of them.
  InodeNumber FreeInode();

  void ChangeInode(InodeNumber ino, const std::function<void(format::Inode*)>& change) {
    EditInode(ino, change, Seal::kRight);
  }
  // The root of the inode's extent tree.
  void ChangeRoot(InodeNumber ino, const std::function<void(std::byte*)>& change);

  // An entry in place; no count changes. `change` may not touch the name.
  void ChangeEntry(InodeNumber directory, std::string_view name,
                   const std::function<void(format::DirEntry*)>& change);
  void RemoveEntry(InodeNumber directory, std::string_view name);
  // Into the first leaf, whose range must hold the key and which must have room; an empty
  // directory gets a block. `sequence` is added to the name's key.
  void InsertEntry(InodeNumber directory, std::string_view name, InodeNumber ino, uint8_t type,
                   uint64_t sequence = 0);

  // Slot 0 of the orphan file's block `logical`.
  void AddOrphan(FileBlock logical, InodeNumber ino);

 private:
  void MakeLeaf(InodeNumber directory);
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_FSCK_TREE_EDITOR_H_
