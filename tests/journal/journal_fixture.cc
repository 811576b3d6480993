// SPDX-License-Identifier: Apache-2.0
#include "tests/journal/journal_fixture.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/aligned_buffer.h"

namespace sluice {
namespace {

constexpr size_t kVersionOffset = 64;

}  // namespace

format::Superblock TestSuper() {
  format::Superblock super;
  std::memset(static_cast<void*>(&super.fixed), 0, sizeof(super.fixed));
  std::memset(static_cast<void*>(&super.state), 0, sizeof(super.state));
  super.fixed.magic = format::kSuperMagic;
  super.fixed.version = format::kFormatVersion;
  super.fixed.block_shift = kBlockShift;
  super.fixed.blocks_per_group = format::kBlocksPerGroup;
  super.fixed.inodes_per_group = 1024;
  super.fixed.flex_group_shift = 4;
  super.fixed.block_count = kTestBlocks;
  super.fixed.group_count = 1;
  super.fixed.inode_count = 1024;
  super.fixed.checksum_seed = kTestSeed;
  super.fixed.group_table_start = 1;
  super.fixed.group_table_blocks = 1;
  super.fixed.journal_run_count = 2;
  super.fixed.journal_runs[0].start = 2000;
  super.fixed.journal_runs[0].length = 601;
  super.fixed.journal_runs[1].start = 1000;
  super.fixed.journal_runs[1].length = format::kMinJournalBlocks - 601;
  return super;
}

format::Geometry TestGeometry() { return format::Geometry::Make(TestSuper()).value(); }

void FormatLog(Device* device, Tid next_tid) {
  LogArea log = TestLog();
  log.state.incarnation = 77;
  log.state.tail_tid = next_tid;
  EXPECT_EQ(log.WriteState(device), Error::kOk);
  EXPECT_EQ(log.WriteState(device), Error::kOk);
  EXPECT_EQ(device->Flush(), Error::kOk);
}

void MakeTestBlock(BlockNumber block, uint64_t version, std::byte* bytes) {
  std::memset(bytes, static_cast<int>(version & 0xff), kBlockSize);
  format::InitHeader(format::BlockSpan(bytes, kBlockSize), block,
                     {format::BlockKind::kDirectory, 11, 1});
  std::memcpy(bytes + kVersionOffset, &version, sizeof(version));
  format::SealBlock(kTestSeed, format::BlockSpan(bytes, kBlockSize));
}

std::optional<uint64_t> VersionOnDevice(Device* device, BlockNumber block) {
  AlignedBuffer bytes(kBlockSize);
  if (device->Read(block * kBlockSize, bytes.span()) != Error::kOk) return std::nullopt;
  if (format::VerifyBlock(kTestSeed, block, {format::BlockKind::kDirectory, 11, 1},
                          format::ConstBlockSpan(bytes.data(), kBlockSize)) != Error::kOk) {
    return std::nullopt;
  }
  uint64_t version;
  std::memcpy(&version, bytes.data() + kVersionOffset, sizeof(version));
  return version;
}

ReplayReport ReplayOrFail(Device* device, LogArea* log) {
  *log = TestLog();
  const Error state = log->ReadState(device);
  EXPECT_EQ(state, Error::kOk);
  if (state != Error::kOk) return {};
  std::string problem;
  Result<ReplayReport> report = Replay(device, TestGeometry(), log, &problem);
  EXPECT_TRUE(report.ok()) << ErrorText(report.error()) << ": " << problem;
  return report.ok() ? *report : ReplayReport{};
}

void TestSealer::Seal(BlockNumber, format::BlockKind kind, format::BlockSpan copy) {
  ++sealed;
  if (format::HasHeader(kind)) format::SealBlock(kTestSeed, copy);
}

JournalUnderTest::JournalUnderTest(Device* device, const JournalOptions& options)
    : cache_(device, kTestSeed, 10000) {
  LogArea log = TestLog();
  EXPECT_EQ(log.ReadState(device), Error::kOk);
  Result<std::unique_ptr<Journal>> journal = Journal::Open(options, device, &cache_, &sealer_, log);
  EXPECT_TRUE(journal.ok());
  journal_ = std::move(journal).value();
}

JournalUnderTest::~JournalUnderTest() = default;

Handle JournalUnderTest::Start(int blocks, int revokes) {
  Result<Handle> handle = RunBlocking([&](Attempt& attempt) {
    return journal_->TryStart(attempt, OpType::kMisc, blocks, revokes);
  });
  EXPECT_TRUE(handle.ok()) << ErrorText(handle.error());
  return handle.ok() ? std::move(handle).value() : Handle();
}

BufferRef JournalUnderTest::Buf(BlockNumber block, format::BlockKind kind) {
  // Only in memory: a miss would have to wait, and then the block is new here.
  Attempt attempt;
  Result<BufferRef> found = cache_.Get(attempt, block, {kind, 11, 1});
  return found.ok() ? *found : cache_.GetNew(block, {kind, 11, 1});
}

void JournalUnderTest::Set(Handle& handle, BlockNumber block, uint64_t version) {
  BlockEdit edit = handle.Edit(Buf(block));
  MakeTestBlock(block, version, edit.data());
  // What is in memory is not sealed: only copies are.
  format::As<format::BlockHeader>(edit.data())->checksum = 0;
}

void JournalUnderTest::SetOne(BlockNumber block, uint64_t version) {
  Handle handle = Start(1);
  Set(handle, block, version);
}

}  // namespace sluice
