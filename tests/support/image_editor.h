// SPDX-License-Identifier: Apache-2.0
//
// Damages an unmounted image, precisely: changes one structure through format/ and either makes its
// checksum right again (so that the structural checks are what is tested) or leaves it wrong.
// What a test asks for must be there: anything unexpected aborts the test.
#ifndef SLUICE_TESTS_SUPPORT_IMAGE_EDITOR_H_
#define SLUICE_TESTS_SUPPORT_IMAGE_EDITOR_H_

#include <functional>

#include "block/device.h"
#include "format/block_header.h"
#include "format/geometry.h"
#include "format/group_desc.h"
#include "format/inode.h"
#include "format/log_record.h"
#include "format/superblock.h"
#include "journal/log_area.h"

namespace sluice::testing {

enum class Seal {
  kRight,  // the checksum is computed again
  kLeave,  // the checksum stays what it was
};

// Thread-compatible. Nothing is cached: each call reads, changes and writes.
class ImageEditor {
 public:
  // `device` outlives the editor; its superblock is good.
  explicit ImageEditor(Device* device);

  const format::Superblock& super() const { return super_; }
  const format::Geometry& geometry() const { return geometry_; }
  uint64_t seed() const { return super_.fixed.checksum_seed; }

  // The superblock of `group` (0: the primary).
  void EditSuper(const std::function<void(format::SuperSector0*, format::SuperSector1*)>& change,
                 Seal seal, GroupNumber group = 0);
  void EditGroup(GroupNumber group, const std::function<void(format::GroupDesc*)>& change,
                 Seal seal);
  // With kRight the group descriptor gets the bitmap's new checksum. The bitmap is initialised.
  void EditBlockBitmap(GroupNumber group, const std::function<void(format::BlockSpan)>& change,
                       Seal seal);
  void EditInodeBitmap(GroupNumber group, const std::function<void(format::BlockSpan)>& change,
                       Seal seal);
  void EditInode(InodeNumber ino, const std::function<void(format::Inode*)>& change, Seal seal);
  // Any block that begins with a BlockHeader: extent node, directory block, orphan block.
  void EditBlock(BlockNumber block, const std::function<void(format::BlockSpan)>& change,
                 Seal seal);
  // A block of the ring; with kRight its header's checksum is made right.
  void EditLogBlock(uint64_t index, const std::function<void(format::BlockSpan)>& change,
                    Seal seal);
  void EditJournalSuper(uint32_t slot, const std::function<void(format::JournalSuper*)>& change,
                        Seal seal);
  // One bit, no questions asked.
  void FlipBit(uint64_t offset, uint32_t bit = 0);

  format::Inode ReadInode(InodeNumber ino);
  // The block that holds a file's or directory's logical block; kNoBlock for a hole.
  BlockNumber MapBlock(InodeNumber ino, FileBlock logical);
  // The first extent block of the inode; kNoBlock if its extents are all in the inode.
  BlockNumber FirstExtentBlock(InodeNumber ino);
  // The inode that `name` leads to in directory `directory`; 0 if it is not there. Reads every
  // leaf, so it works on damaged trees too.
  InodeNumber FindName(InodeNumber directory, std::string_view name);

 private:
  using Change = std::function<void(std::byte*)>;
  void EditRaw(uint64_t offset, const Change& change);
  void EditBitmap(BlockNumber block, const std::function<void(format::BlockSpan)>& change,
                  Seal seal, GroupNumber group, format::Le64 format::GroupDesc::*checksum);

  Device* const device_;
  format::Superblock super_;
  format::Geometry geometry_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_SUPPORT_IMAGE_EDITOR_H_
