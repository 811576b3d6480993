// SPDX-License-Identifier: Apache-2.0
//
// A small image with a log in two runs, a journal on it, and metadata blocks whose contents say
// which block and which version they are.
#ifndef SLUICE_TESTS_JOURNAL_JOURNAL_FIXTURE_H_
#define SLUICE_TESTS_JOURNAL_JOURNAL_FIXTURE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "block/buffer_cache.h"
#include "block/device.h"
#include "format/geometry.h"
#include "format/superblock.h"
#include "journal/journal.h"
#include "journal/log_area.h"
#include "journal/replay.h"

namespace sluice {

inline constexpr uint64_t kTestBlocks = 8192;
inline constexpr uint64_t kTestSeed = 0x5eed;
inline constexpr BlockNumber kFirstTestBlock = 4000;  // behind the fixed metadata and the log

format::Superblock TestSuper();
format::Geometry TestGeometry();
inline LogArea TestLog() { return LogArea(TestSuper()); }

// Writes both slots of an empty log; `next_tid` is its first transaction.
void FormatLog(Device* device, Tid next_tid = 1);

// The version that a metadata block at `block` holds on the device; nullopt: not a valid block.
std::optional<uint64_t> VersionOnDevice(Device* device, BlockNumber block);
// Lays a valid, sealed block of this version out.
void MakeTestBlock(BlockNumber block, uint64_t version, std::byte* bytes);

// Reads the log's state and replays it. Fails the test on anything but kOk.
ReplayReport ReplayOrFail(Device* device, LogArea* log);

// Seals as the filesystem does. Checks the order of the kinds within a transaction.
class TestSealer : public BlockSealer {
 public:
  void Seal(BlockNumber block, format::BlockKind kind, format::BlockSpan copy) override;
  std::atomic<uint64_t> sealed{0};
};

// A journal over `device`, whose log has been formatted or replayed.
class JournalUnderTest {
 public:
  explicit JournalUnderTest(Device* device, const JournalOptions& options = ManualOptions());
  ~JournalUnderTest();

  static JournalOptions ManualOptions() {
    JournalOptions options;
    options.manual = true;
    return options;
  }

  Journal& journal() { return *journal_; }
  BufferCache& cache() { return cache_; }
  TestSealer& sealer() { return sealer_; }
  // Ends the journal as a crash does: whatever is not in the log is lost.
  void Crash() { journal_ = nullptr; }

  Handle Start(int blocks, int revokes = 0);
  // A buffer for the block: what is in memory, or a new one.
  BufferRef Buf(BlockNumber block, format::BlockKind kind = format::BlockKind::kDirectory);
  // Sets the version in a handle that has a credit for it.
  void Set(Handle& handle, BlockNumber block, uint64_t version);
  // One handle that sets one block.
  void SetOne(BlockNumber block, uint64_t version);

 private:
  BufferCache cache_;
  TestSealer sealer_;
  std::unique_ptr<Journal> journal_;
};

}  // namespace sluice

#endif  // SLUICE_TESTS_JOURNAL_JOURNAL_FIXTURE_H_
