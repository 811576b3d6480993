// SPDX-License-Identifier: Apache-2.0
//
// A filesystem on a memory device with the rooms up to alloc/ on top, for tests. Reopening drops
// everything that is in memory.
#ifndef SLUICE_TESTS_ALLOC_TEST_IMAGE_H_
#define SLUICE_TESTS_ALLOC_TEST_IMAGE_H_

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "alloc/block_allocator.h"
#include "alloc/group_table.h"
#include "alloc/inode_allocator.h"
#include "base/aligned_buffer.h"
#include "base/check.h"
#include "block/buffer_cache.h"
#include "block/memory_device.h"
#include "format/geometry.h"
#include "format/superblock.h"
#include "journal/journal.h"
#include "journal/log_area.h"
#include "mkfs/make_filesystem.h"

namespace sluice {

class TestImage {
 public:
  static constexpr uint64_t kMiB = uint64_t{1} << 20;

  explicit TestImage(uint64_t size, MkfsOptions options = {}, bool manual = true)
      : device(size), manual_(manual) {
    MkfsReport report;
    SLUICE_CHECK(MakeFilesystem(&device, options, &report) == Error::kOk);
    Open();
  }
  ~TestImage() { Close(); }

  void Open() {
    AlignedBuffer block(kBlockSize);
    SLUICE_CHECK(device.Read(0, block.span()) == Error::kOk);
    SLUICE_CHECK(format::ParseSuperblock(format::ConstBlockSpan(block.data(), kBlockSize), &super,
                                         nullptr) == Error::kOk);
    geometry = format::Geometry::Make(super).value();
    cache = std::make_unique<BufferCache>(&device, super.fixed.checksum_seed, 1024);
    groups = GroupTable::Load(cache.get(), geometry).value();
    blocks = std::make_unique<BlockAllocator>(groups.get(), cache.get(), reserved_blocks);
    inodes = std::make_unique<InodeAllocator>(groups.get(), cache.get());
    LogArea log(super);
    SLUICE_CHECK(log.ReadState(&device) == Error::kOk);
    JournalOptions options;
    options.manual = manual_;
    journal = Journal::Open(options, &device, cache.get(), groups.get(), std::move(log)).value();
  }

  void Close() {
    if (journal == nullptr) return;
    SLUICE_CHECK(journal->Close() == Error::kOk);
    journal.reset();
    inodes.reset();
    blocks.reset();
    groups.reset();
    cache.reset();
  }

  // Writes everything home and reads it back.
  void Reopen() {
    Close();
    Open();
  }

  Handle Start(int credits, int revokes = 0) {
    return RunBlocking([&](Attempt& attempt) {
             return journal->TryStart(attempt, OpType::kMisc, credits, revokes);
           })
        .value();
  }

  void Commit() { SLUICE_CHECK(journal->CommitAll(CommitReason::kSync) == Error::kOk); }

  Result<BlockReservation> Reserve(BlockNumber goal, BlockCount count, bool privileged = true) {
    return RunBlocking(
        [&](Attempt& attempt) { return blocks->Reserve(attempt, goal, count, privileged); });
  }

  // One run of at most `count` blocks.
  BlockRun AllocateRun(BlockNumber goal, BlockCount count) {
    BlockReservation reservation = Reserve(goal, count).value();
    Handle handle = Start(BlockAllocator::kCreditsPerRun);
    return blocks->Allocate(handle, reservation, goal, count);
  }

  // `count` blocks, in as many runs as it takes.
  std::vector<BlockRun> AllocateAll(BlockNumber goal, BlockCount count) {
    BlockReservation reservation = Reserve(goal, count).value();
    std::vector<BlockRun> runs;
    while (reservation.left() > 0) {
      Handle handle = Start(BlockAllocator::kCreditsPerRun);
      runs.push_back(blocks->Allocate(handle, reservation, goal, reservation.left()));
    }
    return runs;
  }

  Error Free(BlockRun run) {
    RETURN_IF_ERROR(
        RunBlocking([&](Attempt& attempt) { return blocks->PrepareFree(attempt, run); }));
    Handle handle = Start(2 * BlockAllocator::kCreditsPerRun);
    return blocks->Free(handle, run);
  }

  Error VerifyGroups() {
    for (GroupNumber group = 0; group < geometry.group_count(); ++group) {
      RETURN_IF_ERROR(
          RunBlocking([&](Attempt& attempt) { return blocks->VerifyGroup(attempt, group); }));
    }
    return Error::kOk;
  }

  // Inverts a byte of a block on the device.
  void Damage(BlockNumber block, uint32_t offset) {
    AlignedBuffer bytes(kBlockSize);
    SLUICE_CHECK(device.Read(block * kBlockSize, bytes.span()) == Error::kOk);
    bytes.data()[offset] ^= std::byte{0xff};
    SLUICE_CHECK(device.Write(block * kBlockSize, bytes.span()) == Error::kOk);
  }

  MemoryDevice device;
  BlockCount reserved_blocks = 0;
  format::Superblock super;
  format::Geometry geometry;
  std::unique_ptr<BufferCache> cache;
  std::unique_ptr<GroupTable> groups;
  std::unique_ptr<BlockAllocator> blocks;
  std::unique_ptr<InodeAllocator> inodes;
  std::unique_ptr<Journal> journal;

 private:
  const bool manual_;
};

}  // namespace sluice

#endif  // SLUICE_TESTS_ALLOC_TEST_IMAGE_H_
