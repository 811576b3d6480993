// SPDX-License-Identifier: Apache-2.0
#include "mkfs/make_filesystem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <regex>

#include "base/aligned_buffer.h"
#include "block/memory_device.h"
#include "format/bitmap.h"
#include "format/directory.h"
#include "format/extent.h"
#include "format/group_desc.h"
#include "format/inode.h"
#include "journal/log_area.h"

namespace sluice {
namespace {

using format::BlockKind;
using format::Geometry;

constexpr uint64_t kMiB = uint64_t{1} << 20;
using Block = std::array<std::byte, kBlockSize>;

// Holds zeros without memory, so that large logs and images can be tested.
class ZeroSkippingDevice final : public Device {
 public:
  explicit ZeroSkippingDevice(uint64_t size) : inner_(size, std::byte{0}) {}
  uint64_t size() const override { return inner_.size(); }
  bool read_only() const override { return false; }
  void Submit(std::span<IoRequest* const> requests) override { inner_.Submit(requests); }
  Error Write(uint64_t offset, std::span<const std::byte> data, IoKind kind) override {
    const bool zero = std::ranges::all_of(data, [](std::byte b) { return b == std::byte{0}; });
    return zero ? Error::kOk : inner_.Write(offset, data, kind);
  }

 private:
  MemoryDevice inner_;
};

Block ReadBlock(Device* device, BlockNumber block) {
  AlignedBuffer buffer(kBlockSize);
  EXPECT_EQ(device->Read(block << kBlockShift, buffer.span()), Error::kOk);
  Block bytes;
  std::memcpy(bytes.data(), buffer.data(), bytes.size());
  return bytes;
}

bool HasSuperblock(Device* device, BlockNumber block) {
  format::Superblock super;
  return format::ParseSuperblock(ReadBlock(device, block), &super, nullptr) == Error::kOk;
}

// A second opinion on a fresh image: reads it back through format/ alone.
class FreshImage {
 public:
  explicit FreshImage(Device* device) : device_(device) {
    std::string reason;
    EXPECT_EQ(format::ParseSuperblock(ReadBlock(device, 0), &super_, &reason), Error::kOk)
        << reason;
    Result<Geometry> geometry = Geometry::Make(super_);
    EXPECT_TRUE(geometry.ok());
    geometry_ = *geometry;
  }

  void Check() {
    CheckGroups();
    CheckInodes();
    CheckLog();
    CheckCopies();
    EXPECT_EQ(used_data_, 0) << "the bitmaps' data blocks and the files' blocks differ";
  }

  const Geometry& geometry() const { return geometry_; }
  const format::Superblock& super() const { return super_; }

 private:
  uint64_t seed() const { return super_.fixed.checksum_seed; }

  void CheckGroups() {
    Block table;
    for (GroupNumber group = 0; group < geometry_.group_count(); ++group) {
      const BlockNumber block = geometry_.DescriptorBlock(group);
      if (geometry_.DescriptorIndex(group) == 0) {
        table = ReadBlock(device_, block);
        ASSERT_EQ(format::VerifyBlock(seed(), block, {BlockKind::kGroupTable}, table), Error::kOk);
      }
      const format::GroupDesc& desc =
          *format::GroupDescAt(table.data(), geometry_.DescriptorIndex(group));
      const char* reason = "";
      ASSERT_EQ(format::CheckGroupDesc(geometry_, group, desc, &reason), Error::kOk)
          << "group " << group << ": " << reason;
      if ((desc.flags & format::kGroupBlockUninit) == 0) CheckBlockBitmap(group, desc);
      if ((desc.flags & format::kGroupInodeUninit) == 0) CheckInodeBitmap(group, desc);
    }
  }

  void CheckBlockBitmap(GroupNumber group, const format::GroupDesc& desc) {
    const Block bitmap = ReadBlock(device_, geometry_.BlockBitmap(group));
    EXPECT_EQ(format::Checksum(seed(), bitmap), desc.block_bitmap_checksum);
    const uint32_t blocks = geometry_.GroupBlocks(group);
    const uint32_t used = format::CountSetBits(bitmap, blocks);
    EXPECT_EQ(blocks - used, desc.free_blocks);
    Block fixed{};
    used_data_ += used - geometry_.MarkFixedBlocks(group, fixed);
    for (size_t i = 0; i < fixed.size(); ++i) {
      EXPECT_EQ(bitmap[i] & fixed[i], fixed[i]) << "fixed metadata free in group " << group;
    }
  }

  void CheckInodeBitmap(GroupNumber group, const format::GroupDesc& desc) {
    EXPECT_EQ(group, 0u);
    const Block bitmap = ReadBlock(device_, geometry_.InodeBitmap(group));
    EXPECT_EQ(format::Checksum(seed(), bitmap), desc.inode_bitmap_checksum);
    EXPECT_EQ(format::CountSetBits(bitmap, 10), 10u);
    EXPECT_EQ(format::CountSetBits(bitmap, format::kBitsPerBlock),
              10 + format::kBitsPerBlock - geometry_.inodes_per_group());
    EXPECT_EQ(desc.free_inodes, geometry_.inodes_per_group() - 10);
    EXPECT_EQ(desc.directories, 1u);
    EXPECT_EQ(desc.inode_table_used, 16u);
  }

  format::Inode InodeOf(const Block& table, InodeNumber ino) {
    const auto& inode = *format::As<format::Inode>(table.data() + geometry_.InodeOffset(ino));
    const char* reason = "";
    EXPECT_EQ(format::CheckInode(seed(), ino, geometry_.block_count(), inode, &reason), Error::kOk)
        << "inode " << ino << ": " << reason;
    return inode;
  }

  void CheckInodes() {
    const Block table = ReadBlock(device_, geometry_.InodeBlock(1));
    const format::Inode root = InodeOf(table, format::kRootInode);
    EXPECT_EQ(root.mode, 0040755);
    EXPECT_EQ(root.links, 2u);
    EXPECT_EQ(root.parent, 1u);
    EXPECT_EQ(root.size, 0u);
    for (InodeNumber ino = 4; ino <= 16; ++ino) EXPECT_EQ(InodeOf(table, ino).mode, 0) << ino;

    const format::Inode journal = InodeOf(table, format::kJournalInode);
    EXPECT_EQ(journal.mode, 0100600);
    std::vector<BlockNumber> in_runs;
    for (uint32_t i = 0; i < super_.fixed.journal_run_count; ++i) {
      const format::JournalRun& run = super_.fixed.journal_runs[i];
      for (uint64_t b = 0; b < run.length; ++b) in_runs.push_back(run.start + b);
    }
    EXPECT_EQ(BlocksOf(journal, format::kJournalInode), in_runs);
    EXPECT_EQ(journal.size, in_runs.size() << kBlockShift);

    const format::Inode orphans = InodeOf(table, format::kOrphanInode);
    EXPECT_EQ(orphans.mode, 0100600);
    const std::vector<BlockNumber> blocks = BlocksOf(orphans, format::kOrphanInode);
    EXPECT_GE(blocks.size(), 2u);
    EXPECT_LE(blocks.size(), 32u);
    for (const BlockNumber block : blocks) {
      const Block bytes = ReadBlock(device_, block);
      EXPECT_EQ(
          format::VerifyBlock(
              seed(), block, {BlockKind::kOrphan, format::kOrphanInode, orphans.generation}, bytes),
          Error::kOk);
      EXPECT_EQ(format::CheckOrphanBlock(bytes, geometry_.inode_count(), nullptr), Error::kOk);
      EXPECT_EQ(format::OrphanHeaderOf(bytes.data())->count, 0u);
    }
    used_data_ -= static_cast<int64_t>(journal.blocks + orphans.blocks);
  }

  std::vector<BlockNumber> BlocksOf(const format::Inode& inode, InodeNumber ino) {
    const std::byte* node = reinterpret_cast<const std::byte*>(inode.root);
    Block leaf;
    uint64_t expected = inode.blocks;
    if (format::ExtentHeaderOf(node)->depth == 1) {
      const BlockNumber block = format::ExtentIndexesOf(node)[0].child;
      leaf = ReadBlock(device_, block);
      EXPECT_EQ(
          format::VerifyBlock(seed(), block, {BlockKind::kExtent, ino, inode.generation}, leaf),
          Error::kOk);
      node = leaf.data() + format::kExtentNodeOffset;
      EXPECT_EQ(format::CheckExtentNode(node, format::kExtentsPerBlock, 0, 0,
                                        format::kMaxFileBlocks, geometry_.block_count(), nullptr),
                Error::kOk);
      --expected;
    }
    std::vector<BlockNumber> blocks;
    for (uint32_t i = 0; i < format::ExtentHeaderOf(node)->entries; ++i) {
      const format::Extent& extent = format::ExtentsOf(node)[i];
      EXPECT_EQ(extent.logical, blocks.size());
      EXPECT_EQ(extent.flags, 0);
      for (uint32_t b = 0; b < extent.length; ++b) blocks.push_back(extent.physical + b);
    }
    EXPECT_EQ(blocks.size(), expected);
    return blocks;
  }

  void CheckLog() {
    LogArea log(super_);
    ASSERT_EQ(log.ReadState(device_), Error::kOk);
    EXPECT_EQ(log.state.tail_block, 0u);
    EXPECT_EQ(log.state.tail_tid, 1u);
    EXPECT_NE(log.state.incarnation, 0u);
    EXPECT_EQ(log.state.error, 0u);
    for (uint64_t slot = 0; slot < 2; ++slot) {
      uint64_t contiguous = 0;
      const Block block = ReadBlock(device_, log.DeviceOffset(slot, &contiguous) >> kBlockShift);
      EXPECT_EQ(format::CheckJournalSuper(seed(), *format::As<format::JournalSuper>(block.data()),
                                          log.blocks()),
                Error::kOk)
          << "slot " << slot;
    }
    const Block zero{};
    for (uint64_t index = 2; index < log.blocks(); index += 97) {
      uint64_t contiguous = 0;
      EXPECT_EQ(ReadBlock(device_, log.DeviceOffset(index, &contiguous) >> kBlockShift), zero)
          << "log block " << index << " was not written";
    }
  }

  void CheckCopies() {
    for (GroupNumber group = 1; group < geometry_.group_count(); ++group) {
      if (!format::IsBackupGroup(group)) continue;
      format::Superblock copy;
      ASSERT_EQ(
          format::ParseSuperblock(ReadBlock(device_, geometry_.GroupStart(group)), &copy, nullptr),
          Error::kOk);
      EXPECT_EQ(copy.fixed.backup_group, group);
      EXPECT_EQ(std::memcmp(copy.fixed.uuid, super_.fixed.uuid, 16), 0);
    }
  }

  Device* const device_;
  format::Superblock super_;
  Geometry geometry_;
  int64_t used_data_ = 0;
};

MkfsReport Make(Device* device, const MkfsOptions& options = {}) {
  MkfsReport report;
  EXPECT_EQ(MakeFilesystem(device, options, &report), Error::kOk) << report.problem;
  return report;
}

TEST(MakeFilesystemTest, ImagesAreSoundOnADiskFullOfOldBytes) {
  for (const uint64_t mib : {16, 17, 127, 128, 129, 200, 256, 1000}) {
    SCOPED_TRACE(mib);
    MemoryDevice device(mib * kMiB);
    const MkfsReport report = Make(&device);
    FreshImage image(&device);
    image.Check();
    EXPECT_EQ(image.geometry().block_count(), report.layout.geometry.block_count());
  }
}

TEST(MakeFilesystemTest, LargeImagesAreSound) {
  for (const uint64_t gib : {40, 15 * 1024}) {
    SCOPED_TRACE(gib);
    ZeroSkippingDevice device(gib << 30);
    Make(&device);
    FreshImage(&device).Check();
  }
}

TEST(MakeFilesystemTest, AJournalInManyExtentsIsSound) {
  ZeroSkippingDevice device(uint64_t{20} << 30);
  MkfsOptions options;
  options.journal_blocks = 300000;
  Make(&device, options);
  FreshImage(&device).Check();
}

TEST(MakeFilesystemTest, OptionsReachTheImage) {
  MemoryDevice device(64 * kMiB);
  MkfsOptions options;
  options.label = "a label";
  options.uuid.fill(0xab);
  options.time = 1234567890;
  options.log_incarnation = 77;
  options.root_uid = 1000;
  options.root_gid = 1001;
  options.size = 32 * kMiB;
  Make(&device, options);
  FreshImage image(&device);
  image.Check();
  EXPECT_STREQ(image.super().fixed.label, "a label");
  EXPECT_EQ(image.super().fixed.uuid[15], 0xab);
  EXPECT_EQ(image.super().fixed.created, 1234567890);
  EXPECT_EQ(image.geometry().block_count(), 32 * kMiB / kBlockSize);
  EXPECT_EQ(image.super().state.state, 0u);
  const Block table = ReadBlock(&device, image.geometry().InodeBlock(1));
  const auto* root = format::As<format::Inode>(table.data());
  EXPECT_EQ(root->uid, 1000u);
  EXPECT_EQ(root->gid, 1001u);
  EXPECT_EQ(root->btime, 1234567890);
  LogArea log(image.super());
  ASSERT_EQ(log.ReadState(&device), Error::kOk);
  EXPECT_EQ(log.state.incarnation, 77u);
}

TEST(MakeFilesystemTest, WritesNothingWhenTheWishIsImpossible) {
  MemoryDevice device(8 * kMiB);
  MkfsReport report;
  EXPECT_EQ(MakeFilesystem(&device, {}, &report), Error::kInvalid);
  EXPECT_NE(report.problem.find("16 MiB"), std::string::npos);
  EXPECT_EQ(device.count(IoOp::kWrite), 0u);
}

TEST(MakeFilesystemTest, PreallocWritesEveryBlock) {
  MemoryDevice device(16 * kMiB);
  MkfsOptions options;
  options.write_everything = true;
  Make(&device, options);
  FreshImage(&device).Check();
  const Block poison = [] {
    Block block;
    block.fill(kPoisonByte);
    return block;
  }();
  for (BlockNumber block = 0; block < device.size() / kBlockSize; ++block) {
    ASSERT_NE(ReadBlock(&device, block), poison) << block;
  }
}

// The device had a filesystem with copies of its superblock. Wherever the work stops, no superblock
// is left that would be believed: neither the new one, too early, nor an old one.
TEST(MakeFilesystemTest, AFailureAnywhereLeavesNoSuperblock) {
  MemoryDevice old(400 * kMiB);
  Make(&old);
  ASSERT_TRUE(HasSuperblock(&old, 0));
  ASSERT_TRUE(HasSuperblock(&old, 32768));
  const std::unique_ptr<MemoryDevice> whole = old.Clone();
  Make(whole.get());
  for (const IoOp op : {IoOp::kWrite, IoOp::kFlush}) {
    const uint64_t count = whole->count(op);
    ASSERT_GE(count, 3u);
    for (uint64_t nth = 1; nth <= count; ++nth) {
      const std::unique_ptr<MemoryDevice> device = old.Clone();
      device->FailNth(op, nth, Error::kNoSpace);
      MkfsReport report;
      ASSERT_EQ(MakeFilesystem(device.get(), {}, &report), Error::kNoSpace) << nth;
      // Failures of the very first erasures change nothing; the last flush comes after the
      // superblock.
      const bool last_flush = op == IoOp::kFlush && nth == count;
      if (op == IoOp::kWrite && nth > 3) {
        EXPECT_FALSE(HasSuperblock(device.get(), 0)) << nth;
      }
      if (op == IoOp::kFlush) {
        EXPECT_EQ(HasSuperblock(device.get(), 0), last_flush) << nth;
      }
    }
  }
}

TEST(MakeFilesystemTest, TheSameWishesMakeTheSameImage) {
  MemoryDevice one(32 * kMiB);
  MemoryDevice two(32 * kMiB);
  Make(&one);
  Make(&two);
  for (BlockNumber block = 0; block < one.size() / kBlockSize; ++block) {
    ASSERT_EQ(ReadBlock(&one, block), ReadBlock(&two, block)) << block;
  }
}

// The bytes that docs/SPEC.md shows are those of a fresh image, and it shows all that are not zero
// in the parts it names.
TEST(SpecTest, TheWorkedExampleIsWhatMkfsMakes) {
  MemoryDevice device(16 * kMiB, std::byte{0});
  MkfsOptions options;
  options.label = "example";
  Make(&device, options);
  std::ifstream spec(SLUICE_SPEC_PATH);
  ASSERT_TRUE(spec) << SLUICE_SPEC_PATH;
  const std::regex pattern("([0-9a-f]{8})  ((?:[0-9a-f]{2} ){8}) ((?:[0-9a-f]{2} ?){8})");
  std::string line;
  int lines = 0;
  while (std::getline(spec, line)) {
    std::smatch match;
    if (!std::regex_match(line, match, pattern)) continue;
    ++lines;
    const uint64_t offset = std::stoull(match[1], nullptr, 16);
    const Block block = ReadBlock(&device, offset >> kBlockShift);
    std::string actual;
    for (int i = 0; i < 16; ++i) {
      char hex[4];
      std::snprintf(hex, sizeof(hex), "%02x ", std::to_integer<unsigned>(block[offset % 4096 + i]));
      actual += hex;
    }
    std::string shown = match[2].str() + match[3].str() + " ";
    EXPECT_EQ(shown, actual) << line;
  }
  EXPECT_GT(lines, 30);
}

}  // namespace
}  // namespace sluice
