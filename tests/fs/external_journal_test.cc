// SPDX-License-Identifier: Apache-2.0
//
// A log on a device of its own: making it, finding the right one, and crashes in which either
// device, or both, lose what was not flushed.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "block/inline_completion.h"
#include "format/journal_device.h"
#include "fsck/check.h"
#include "journal/external_log.h"
#include "tests/support/fs_fixture.h"

namespace sluice {
namespace {

using testing_support::Files;

constexpr uint64_t kImageBytes = uint64_t{32} << 20;
constexpr uint64_t kJournalBytes = uint64_t{6} << 20;
constexpr std::array<uint8_t, 16> kJournalUuid = {1, 2, 3, 4};

// An image and its journal.
struct Pair {
  std::unique_ptr<MemoryDevice> image;
  std::unique_ptr<MemoryDevice> journal;

  Pair Clone() const { return {image->Clone(), journal->Clone()}; }
};

std::unique_ptr<MemoryDevice> NewJournal(std::array<uint8_t, 16> uuid = kJournalUuid) {
  auto journal = std::make_unique<MemoryDevice>(kJournalBytes);
  std::string why;
  EXPECT_EQ(FormatJournalDevice(journal.get(), uuid, 0, &why), Error::kOk) << why;
  return journal;
}

Pair NewPair() {
  Pair pair = {std::make_unique<MemoryDevice>(kImageBytes), NewJournal()};
  std::string why;
  MkfsOptions options;
  options.external_journal_blocks = ReadJournalDevice(pair.journal.get(), &why).value().log_blocks;
  options.external_journal_uuid = kJournalUuid;
  options.external_journal_path = "/dev/somewhere";
  const MkfsLayout layout = PlanLayout(kImageBytes, options, &why).value();
  EXPECT_EQ(ClaimJournalDevice(pair.journal.get(), options.uuid), Error::kOk);
  const auto joined = JoinExternalLog(pair.image.get(), pair.journal.get(), layout.super, &why);
  EXPECT_TRUE(joined.ok()) << why;
  EXPECT_EQ(WriteFilesystem(joined->get(), options, layout, {}), Error::kOk);
  return pair;
}

Result<std::unique_ptr<Filesystem>> Mount(Device* image, Device* journal, std::string* message,
                                          bool manual = false) {
  MountOptions options;
  options.journal_device = journal;
  options.manual = manual;
  return Filesystem::Mount(image, options, message);
}

std::unique_ptr<Filesystem> MountOrFail(Device* image, Device* journal, bool manual = false) {
  std::string message;
  auto mounted = Mount(image, journal, &message, manual);
  EXPECT_TRUE(mounted.ok()) << message;
  return mounted.ok() ? std::move(mounted).value() : nullptr;
}

std::string Problems(const Pair& pair) {
  std::string why;
  const auto super = FindSuperblock(pair.image.get(), &why);
  if (!super.ok()) return why;
  const auto joined = JoinExternalLog(pair.image.get(), pair.journal.get(), *super, &why);
  if (!joined.ok()) return why;
  CheckReport report;
  const Error error = CheckImage(joined->get(), {}, &report);
  if (error != Error::kOk) return report.message;
  return report.clean() ? "" : Describe(report.findings.front());
}

TEST(ExternalJournal, MountedWrittenAndCheckedLikeAnother) {
  const Pair pair = NewPair();
  EXPECT_EQ(Problems(pair), "");
  std::unique_ptr<Filesystem> fs = MountOrFail(pair.image.get(), pair.journal.get());
  ASSERT_NE(fs, nullptr);
  const uint64_t before = fs->Statfs().free_blocks;
  {
    const Files files(fs.get());
    const InodeRef file = files.Create(files.Root(), "f").value();
    ASSERT_EQ(files.Write(file, 0, std::string(100000, 'x')), Error::kOk);
    ASSERT_EQ(fs->Sync(), Error::kOk);
  }
  const Pair crashed = pair.Clone();
  ASSERT_EQ(Files(fs.get()).Unlink(Files(fs.get()).Root(), "f"), Error::kOk);
  ASSERT_EQ(fs->Unmount(), Error::kOk);
  fs.reset();
  EXPECT_EQ(Problems(pair), "");
  EXPECT_EQ(Problems(crashed), "");  // with the journal replayed in memory
  fs = MountOrFail(crashed.image.get(), crashed.journal.get());
  ASSERT_NE(fs, nullptr);
  {
    const Files files(fs.get());
    const Result<InodeRef> file = files.Lookup(files.Root(), "f");
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(files.Read(*file, 0, 200000).value(), std::string(100000, 'x'));
    ASSERT_EQ(files.Unlink(files.Root(), "f"), Error::kOk);
  }
  // The deletion ends in the background; an unmount waits for it.
  ASSERT_EQ(fs->Unmount(), Error::kOk);
  fs = MountOrFail(crashed.image.get(), crashed.journal.get());
  ASSERT_NE(fs, nullptr);
  EXPECT_EQ(fs->Statfs().free_blocks, before - 1);  // the directory keeps its first block
  ASSERT_EQ(fs->Unmount(), Error::kOk);
}

TEST(ExternalJournal, OnlyItsOwnJournalWillDo) {
  const Pair pair = NewPair();
  const uint64_t image_writes = pair.image->count(IoOp::kWrite);
  std::string message;
  EXPECT_EQ(Mount(pair.image.get(), nullptr, &message).error(), Error::kNoDevice);
  EXPECT_NE(message.find("another device"), std::string::npos) << message;

  const std::unique_ptr<MemoryDevice> other = NewJournal({9, 9});
  EXPECT_EQ(Mount(pair.image.get(), other.get(), &message).error(), Error::kNoDevice);
  EXPECT_NE(message.find("UUID"), std::string::npos) << message;

  // The right device, given to another filesystem since.
  const std::unique_ptr<MemoryDevice> taken = pair.journal->Clone();
  ASSERT_EQ(ClaimJournalDevice(taken.get(), {7}), Error::kOk);
  const uint64_t taken_writes = taken->count(IoOp::kWrite);
  EXPECT_EQ(Mount(pair.image.get(), taken.get(), &message).error(), Error::kNoDevice);
  EXPECT_NE(message.find("is the journal of the filesystem 07"), std::string::npos) << message;

  MemoryDevice blank(kJournalBytes);
  EXPECT_EQ(Mount(pair.image.get(), &blank, &message).error(), Error::kUnknownFormat);
  EXPECT_NE(message.find("not a journal device"), std::string::npos) << message;

  EXPECT_EQ(pair.image->count(IoOp::kWrite), image_writes);
  EXPECT_EQ(other->count(IoOp::kWrite), 1u);  // of its making
  EXPECT_EQ(taken->count(IoOp::kWrite), taken_writes);
  EXPECT_EQ(blank.count(IoOp::kWrite), 0u);
  CheckReport report;
  EXPECT_EQ(CheckImage(pair.image.get(), {}, &report), Error::kNoDevice);
}

TEST(ExternalJournal, TooSmallADeviceIsRefused) {
  MemoryDevice small(uint64_t{4} << 20);  // no room for its superblock besides
  std::string why;
  EXPECT_EQ(FormatJournalDevice(&small, kJournalUuid, 0, &why), Error::kInvalid);
  EXPECT_NE(why.find("4 MiB"), std::string::npos) << why;
}

// The power of both devices. After `left` writes and flushes nothing reaches them.
struct Power {
  uint64_t left = ~uint64_t{0};
  uint64_t seen = 0;
  bool Next() {
    ++seen;
    return left > 0 && left-- > 0;
  }
};

// A disk with a cache: a write is on the medium when a flush has come after it.
class CachedDisk final : public Device {
 public:
  CachedDisk(MemoryDevice* medium, Power* power) : medium_(medium), power_(power) {}

  uint64_t size() const override { return medium_->size(); }
  bool read_only() const override { return false; }
  void Submit(std::span<IoRequest* const> requests) override {
    for (IoRequest* request : requests) CompleteInline(request, Serve(*request));
  }
  // What was in the cache reached the medium after all.
  void WriteBack() {
    for (const auto& [offset, data] : cache_) EXPECT_EQ(medium_->Write(offset, data), Error::kOk);
    cache_.clear();
  }

 private:
  Error Serve(const IoRequest& request) {
    if (request.op == IoOp::kRead) return ReadThrough(request);
    if (!power_->Next() || request.op == IoOp::kDiscard) return Error::kOk;
    if (request.op == IoOp::kFlush) {
      WriteBack();
      return medium_->Flush();
    }
    uint64_t at = request.offset;
    for (const std::span<std::byte> buffer : request.buffers) {
      cache_.emplace_back(at, std::vector<std::byte>(buffer.begin(), buffer.end()));
      at += buffer.size();
    }
    return Error::kOk;
  }
  Error ReadThrough(const IoRequest& request) {
    uint64_t at = request.offset;
    for (const std::span<std::byte> buffer : request.buffers) {
      RETURN_IF_ERROR(medium_->Read(at, buffer));
      for (const auto& [offset, data] : cache_) {
        const uint64_t from = std::max(offset, at);
        const uint64_t to = std::min(offset + data.size(), at + buffer.size());
        if (from < to)
          std::memcpy(buffer.data() + (from - at), data.data() + (from - offset), to - from);
      }
      at += buffer.size();
    }
    return Error::kOk;
  }

  MemoryDevice* const medium_;
  Power* const power_;
  std::deque<std::pair<uint64_t, std::vector<std::byte>>> cache_;
};

// Files made and synced one after the other, with checkpoints between; how many were synced when
// the power went.
int Workload(Filesystem* fs, const Power& power) {
  const Files files(fs);
  int synced = 0;
  for (int i = 0; i < 4; ++i) {
    const std::string name = "f" + std::to_string(i);
    const Result<InodeRef> file = files.Create(files.Root(), name);
    if (!file.ok() || files.Write(*file, 0, std::string(6000, 'a' + i)) != Error::kOk) break;
    if (fs->Sync() != Error::kOk || power.left == 0) break;
    ++synced;
    if (i % 2 == 1) IgnoreError(fs->journal()->CheckpointNow());
  }
  return synced;
}

TEST(ExternalJournal, CrashesOfEitherDeviceOrBoth) {
  const Pair made = NewPair();
  uint64_t events = 0;
  for (uint64_t cut = 0; cut == 0 || cut <= events; ++cut) {
    for (int survives = 0; survives < 4; ++survives) {  // bits: the image's cache, the journal's
      const Pair pair = made.Clone();
      Power power;
      if (cut > 0) power.left = cut;
      CachedDisk image(pair.image.get(), &power), journal(pair.journal.get(), &power);
      int synced = 0;
      {
        const std::unique_ptr<Filesystem> fs = MountOrFail(&image, &journal, /*manual=*/true);
        if (fs != nullptr) synced = Workload(fs.get(), power);
      }
      events = std::max(events, power.seen);
      if ((survives & 1) != 0) image.WriteBack();
      if ((survives & 2) != 0) journal.WriteBack();
      ASSERT_EQ(Problems(pair), "") << "cut after " << cut << ", survives " << survives;
      const std::unique_ptr<Filesystem> fs = MountOrFail(pair.image.get(), pair.journal.get());
      ASSERT_NE(fs, nullptr);
      const Files files(fs.get());
      for (int i = 0; i < synced; ++i) {
        const Result<InodeRef> file = files.Lookup(files.Root(), "f" + std::to_string(i));
        ASSERT_TRUE(file.ok()) << "file " << i << ", cut after " << cut << ", " << survives;
        ASSERT_EQ(files.Read(*file, 0, 9000).value(), std::string(6000, 'a' + i));
      }
      ASSERT_EQ(fs->Unmount(), Error::kOk);
    }
    if (cut == 0) continue;
  }
  EXPECT_GT(events, 40u);
}

}  // namespace
}  // namespace sluice
