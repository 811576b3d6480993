// SPDX-License-Identifier: Apache-2.0
//
// From an image to a running filesystem, and back.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/log.h"
#include "block/overlay_device.h"
#include "fs/extent_tree.h"
#include "fs/filesystem.h"
#include "fs/filesystem_impl.h"
#include "fs/inode_cache.h"
#include "fs/orphan_file.h"
#include "fs/read_superblock.h"
#include "journal/external_log.h"
#include "journal/replay.h"

namespace sluice {
namespace {

// More than any mkfs makes; what a damaged size may cost at most.
constexpr uint64_t kMaxOrphanBlocks = 4096;

const char* CorruptText(format::BlockKind kind) {
  switch (kind) {
    case format::BlockKind::kGroupTable:
      return "damaged group table block";
    case format::BlockKind::kExtent:
      return "damaged extent block";
    case format::BlockKind::kDirectory:
      return "damaged directory block";
    case format::BlockKind::kOrphan:
      return "damaged block of the orphan file";
    default:
      return "damaged metadata block";
  }
}

// The steps of a mount, in order.
class Mounting {
 public:
  Mounting(Filesystem::Impl* fs, Device* device, std::string* message)
      : fs_(fs), device_(device), message_(message) {}

  Error Run();

 private:
  Error Fail(Error error, std::string message) {
    *message_ = std::move(message);
    return error;
  }
  Error ReadSuper();
  Error JoinJournal();
  Error CheckReadOnly();
  Error OpenLog();
  static std::string ReplayFailure(Error error, const std::string& problem);
  void ReportReplay(const ReplayReport& report);
  Error OpenTables();
  Error OpenJournal();
  Error LoadOrphanFile();
  Error CheckRoot();
  Error MarkMounted();
  void WarnOfWaivers();
  void RecoverOrphans();
  void RecoverOrphan(const OrphanFile::Entry& entry);
  BlockCount Overhead() const;

  Filesystem::Impl* const fs_;
  Device* device_;
  std::string* const message_;
  LogArea log_;
  bool from_backup_ = false;
  uint64_t recovered_ = 0;
};

Error Mounting::Run() {
  fs_->device = device_;
  RETURN_IF_ERROR(ReadSuper());
  RETURN_IF_ERROR(CheckReadOnly());
  RETURN_IF_ERROR(OpenLog());
  RETURN_IF_ERROR(OpenTables());
  if (!fs_->options.read_only) RETURN_IF_ERROR(OpenJournal());
  RETURN_IF_ERROR(CheckRoot());
  if (fs_->options.read_only) return Error::kOk;
  RETURN_IF_ERROR(LoadOrphanFile());
  RETURN_IF_ERROR(MarkMounted());
  RecoverOrphans();
  return Error::kOk;
}

Error Mounting::ReadSuper() {
  ASSIGN_OR_RETURN(FoundSuperblock found, ReadSuperblock(device_, message_));
  from_backup_ = found.backup_group != 0;
  if (from_backup_) {
    LogWarning("the superblock is damaged (", found.problem, "); using its backup in group ",
               found.backup_group, "; run fsck.sluicefs to repair it");
  }
  fs_->super = found.super;
  RETURN_IF_ERROR(JoinJournal());
  Result<format::Geometry> geometry = format::Geometry::Make(fs_->super);
  if (!geometry.ok()) {
    return Fail(geometry.error(), "the superblock describes an impossible layout");
  }
  fs_->geometry = *geometry;
  fs_->overhead = Overhead();
  MutexLock lock(&fs_->state_mutex);
  fs_->state = fs_->super.state;
  if (from_backup_) fs_->state.state = fs_->state.state | format::kStateError;
  return Error::kOk;
}

// norecovery looks at no journal.
Error Mounting::JoinJournal() {
  if (!format::HasExternalJournal(fs_->super.fixed) || fs_->options.norecovery) return Error::kOk;
  if (fs_->options.journal_device == nullptr) {
    return Fail(Error::kNoDevice, "its journal is on another device, which was not given");
  }
  std::string why;
  Result<std::unique_ptr<Device>> joined =
      JoinExternalLog(device_, fs_->options.journal_device, fs_->super, &why);
  if (!joined.ok()) return Fail(joined.error(), absl::StrCat("the external journal ", why));
  fs_->joined = std::move(joined).value();
  device_ = fs_->joined.get();
  fs_->device = device_;
  return Error::kOk;
}

BlockCount Mounting::Overhead() const {
  BlockCount blocks = 0;
  if (!format::HasExternalJournal(fs_->super.fixed)) blocks += LogArea(fs_->super).blocks();
  for (GroupNumber group = 0; group < fs_->geometry.group_count(); ++group) {
    blocks += fs_->geometry.FixedBlocks(group).blocks();
  }
  return blocks;
}

Error Mounting::CheckReadOnly() {
  MountOptions& options = fs_->options;
  fs_->read_only.store(options.read_only);
  if (options.norecovery && !options.read_only) {
    return Fail(Error::kInvalid, "norecovery needs a read-only mount (-o ro,norecovery)");
  }
  if (options.read_only) return Error::kOk;
  if (format::MustBeReadOnly(fs_->super)) {
    return Fail(Error::kNewerFormat,
                "the image has features that this version cannot write; mount it with -o ro");
  }
  if (device_->read_only()) {
    return Fail(Error::kReadOnly, "the image cannot be written; mount it with -o ro");
  }
  return Error::kOk;
}

Error Mounting::OpenLog() {
  if (fs_->options.norecovery) return Error::kOk;
  log_ = LogArea(fs_->super);
  const Error error = log_.ReadState(device_);
  if (error != Error::kOk) {
    return Fail(error, absl::StrCat("the journal's superblock cannot be used: ",
                                    std::string(ErrorText(error)), "; run fsck.sluicefs"));
  }
  if (log_.state.error != 0) {
    LogWarning("the journal was stopped by an error when the image was last mounted");
    MutexLock lock(&fs_->state_mutex);
    fs_->state.state = fs_->state.state | format::kStateError;
  }
  if (log_.state.tail_block == 0) return Error::kOk;
  if (fs_->options.read_only) {
    fs_->overlay = std::make_unique<OverlayDevice>(device_);
    fs_->device = fs_->overlay.get();
  }
  std::string problem;
  const Result<ReplayReport> report = Replay(fs_->device, fs_->geometry, &log_, &problem);
  if (!report.ok()) return Fail(report.error(), ReplayFailure(report.error(), problem));
  ReportReplay(*report);
  return Error::kOk;
}

std::string Mounting::ReplayFailure(Error error, const std::string& problem) {
  const std::string text = absl::StrCat("the journal cannot be replayed: ",
                                        problem.empty() ? std::string(ErrorText(error)) : problem);
  if (error == Error::kNoSpace) {
    return absl::StrCat(text, "; nothing is lost: make room there and mount again, or -o ro");
  }
  return absl::StrCat(text, "; run fsck.sluicefs");
}

void Mounting::ReportReplay(const ReplayReport& report) {
  if (!report.needed) return;
  LogInfo("recovered the journal", fs_->options.read_only ? " in memory" : "", ": ",
          report.transactions, " transactions, ", report.blocks, " blocks");
}

Error Mounting::OpenTables() {
  const MountOptions& options = fs_->options;
  Filesystem* self = fs_->self;
  fs_->budget = std::make_unique<MemoryBudget>(options.cache_bytes);
  fs_->cache = std::make_unique<BufferCache>(fs_->device, fs_->super.fixed.checksum_seed,
                                             options.metadata_cache_blocks);
  fs_->cache->SetOnCorrupt([self](BlockNumber block, const format::BlockIdentity& identity) {
    self->ReportCorruption(identity.owner, block, CorruptText(identity.kind));
  });
  Result<std::unique_ptr<GroupTable>> groups = GroupTable::Load(fs_->cache.get(), fs_->geometry);
  if (!groups.ok()) {
    return Fail(groups.error(),
                absl::StrCat("the group table cannot be used: ",
                             std::string(ErrorText(groups.error())), "; run fsck.sluicefs"));
  }
  fs_->groups = std::move(groups).value();
  fs_->blocks = std::make_unique<BlockAllocator>(fs_->groups.get(), fs_->cache.get(),
                                                 fs_->super.fixed.reserved_blocks);
  fs_->blocks->SetOnCorrupt([fs = fs_](GroupNumber group) {
    fs->self->ReportCorruption(0, fs->geometry.BlockBitmap(group), "damaged block bitmap");
  });
  fs_->inode_numbers = std::make_unique<InodeAllocator>(fs_->groups.get(), fs_->cache.get());
  FlusherOptions flusher;
  flusher.clock = options.clock;
  flusher.manual = options.manual;
  fs_->flusher = std::make_unique<Flusher>(flusher, fs_->budget.get());
  fs_->inodes = std::make_unique<InodeCache>(self, options.metadata_cache_blocks);
  return Error::kOk;
}

Error Mounting::OpenJournal() {
  JournalOptions options;
  options.commit_interval = fs_->options.commit_interval;
  options.barrier = fs_->options.barrier;
  options.clock = fs_->options.clock;
  options.manual = fs_->options.manual;
  options.on_point = fs_->options.on_journal_point;
  Result<std::unique_ptr<Journal>> journal =
      Journal::Open(options, fs_->device, fs_->cache.get(), fs_->groups.get(), log_);
  if (!journal.ok()) {
    return Fail(journal.error(), absl::StrCat("the journal cannot be opened: ",
                                              std::string(ErrorText(journal.error()))));
  }
  fs_->journal = std::move(journal).value();
  fs_->journal->SetOnAbort(
      [fs = fs_](Error error, const std::string& reason) { JournalStopped(fs, error, reason); });
  return Error::kOk;
}

Error Mounting::CheckRoot() {
  const Result<InodeRef> root =
      RunBlocking([&](Attempt& attempt) { return fs_->inodes->Get(attempt, format::kRootInode); });
  if (root.ok() && (*root)->is_directory() && (*root)->fields.links > 0) return Error::kOk;
  const Error error = root.ok() || root.error() == Error::kStale ? Error::kCorrupt : root.error();
  return Fail(error, "the root directory cannot be used; run fsck.sluicefs");
}

Error Mounting::LoadOrphanFile() {
  const auto fail = [&](Error error) {
    return Fail(error == Error::kStale ? Error::kCorrupt : error,
                "the orphan file cannot be used; run fsck.sluicefs");
  };
  const Result<InodeRef> inode = RunBlocking(
      [&](Attempt& attempt) { return fs_->inodes->Get(attempt, format::kOrphanInode); });
  if (!inode.ok()) return fail(inode.error());
  const uint64_t count = (*inode)->fields.size / kBlockSize;
  if (!(*inode)->is_regular() || count == 0 || count > kMaxOrphanBlocks) {
    return fail(Error::kCorrupt);
  }
  const ExtentTree tree(inode->get(), fs_->cache.get(), fs_->blocks.get());
  std::vector<BlockNumber> blocks;
  for (FileBlock i = 0; i < count; ++i) {
    const Result<Mapping> mapping =
        RunBlocking([&](Attempt& attempt) { return tree.Lookup(attempt, i); });
    if (!mapping.ok()) return fail(mapping.error());
    if (mapping->physical == kNoBlock) return fail(Error::kCorrupt);
    blocks.push_back(mapping->physical);
  }
  Result<std::unique_ptr<OrphanFile>> orphans = OrphanFile::Load(
      fs_->cache.get(), (*inode)->fields.generation, blocks, fs_->geometry.inode_count());
  if (!orphans.ok()) return fail(orphans.error());
  fs_->orphans = std::move(orphans).value();
  return Error::kOk;
}

// Promises that the user gives up knowingly: said once, where the mount is logged.
void Mounting::WarnOfWaivers() {
  if (!fs_->options.barrier) {
    LogWarning(
        "barriers are off: a power cut may lose what fsync promised, or damage the filesystem");
  }
  if (fs_->options.data == DataMode::kWriteback) {
    LogWarning("data=writeback: after a crash, files may show what their blocks held before");
  }
}

Error Mounting::MarkMounted() {
  WarnOfWaivers();
  {
    MutexLock lock(&fs_->state_mutex);
    format::SuperSector1& state = fs_->state;
    if ((state.state & format::kStateError) != 0) {
      LogWarning("mounting an image with errors; run fsck.sluicefs");
    }
    state.state = state.state | format::kStateMounted;
    state.mount_count = state.mount_count + 1;
    state.last_mount = fs_->Now();
    const std::string& mountpoint = fs_->options.mountpoint;
    std::memset(state.last_mountpoint, 0, sizeof(state.last_mountpoint));
    std::memcpy(state.last_mountpoint, mountpoint.data(),
                std::min(mountpoint.size(), sizeof(state.last_mountpoint) - 1));
  }
  const Error error = WriteState(fs_);
  if (error == Error::kOk) return error;
  return Fail(error,
              absl::StrCat("the superblock cannot be written: ", std::string(ErrorText(error))));
}

void Mounting::RecoverOrphans() {
  for (const OrphanFile::Entry& entry : fs_->orphans->entries()) RecoverOrphan(entry);
  fs_->inodes->DrainReaper();
  if (recovered_ > 0) LogInfo("finished ", recovered_, " deletions and truncates");
}

void Mounting::RecoverOrphan(const OrphanFile::Entry& entry) {
  const auto corrupt = [&](const char* what) { fs_->self->ReportCorruption(entry.ino, 0, what); };
  if (entry.ino < format::kFirstUserInode) return corrupt("orphan slot of a reserved inode");
  const Result<InodeRef> found =
      RunBlocking([&](Attempt& attempt) { return fs_->inodes->Get(attempt, entry.ino); });
  if (!found.ok()) {
    if (found.error() == Error::kStale) corrupt("orphan slot of a free inode");
    return;
  }
  const InodeRef& inode = *found;
  bool linked = false;
  {
    MutexLock lock(&inode->mutex);
    if (inode->orphan_slot != 0) return corrupt("two orphan slots of one inode");
    inode->orphan_slot = entry.slot;
    linked = inode->fields.links > 0;
  }
  ++recovered_;
  if (!linked) return fs_->inodes->Unreferenced(inode);
  const Error error = FinishTruncate(fs_, inode);
  if (error != Error::kOk) {
    LogError("the interrupted truncate of inode ", entry.ino,
             " could not be finished: ", std::string(ErrorText(error)));
  }
}

// Lets go of every reference, so that unlinked inodes are deleted now.
void ForgetAll(Filesystem::Impl* fs) {
  const std::vector<InodeRef> all = fs->inodes->Collect([](Inode&) { return true; });
  for (const InodeRef& inode : all) {
    inode->lookups.store(0, std::memory_order_release);
    inode->opens.store(0, std::memory_order_release);
    fs->inodes->Unreferenced(inode);
  }
}

// Dirty data that could not be written although everything was tried.
Error CheckNothingDirty(Filesystem::Impl* fs) {
  const std::vector<InodeRef> dirty =
      fs->inodes->Collect([](Inode& inode) { return !inode.pages.idle(); });
  if (dirty.empty()) return Error::kOk;
  LogError("data of ", dirty.size(), " files could not be written and is lost");
  return Error::kIo;
}

// The image stays as the shutdown left it.
Error EndAfterShutdown(Filesystem::Impl* fs) {
  fs->inodes->Stop(true);
  fs->flusher->Stop();
  IgnoreError(fs->journal->Close());  // which has been aborted
  return Error::kOk;
}

}  // namespace

Filesystem::Filesystem() : impl_(std::make_unique<Impl>()) {}

Result<std::unique_ptr<Filesystem>> Filesystem::Mount(Device* device, const MountOptions& options,
                                                      std::string* message) {
  std::unique_ptr<Filesystem> filesystem(new Filesystem());
  Impl* fs = filesystem->impl_.get();
  fs->self = filesystem.get();
  fs->options = options;
  RETURN_IF_ERROR(Mounting(fs, device, message).Run());
  return filesystem;
}

Filesystem::~Filesystem() {
  Impl* fs = impl_.get();
  // Nobody is left to thaw it.
  if (fs->gate.BeginOpen() == Error::kOk) fs->gate.EndOpen(true);
  // Threads first, those that write last; then what is on its way to the device comes back.
  if (fs->inodes != nullptr) fs->inodes->Stop(false);
  if (fs->flusher != nullptr) fs->flusher->Stop();
  fs->journal.reset();
  if (fs->inodes == nullptr) return;
  for (const InodeRef& inode : fs->inodes->Collect([](Inode&) { return true; })) {
    inode->WaitWriteback(IoKind::kSyncWrite);
  }
}

Error Filesystem::Unmount() {
  Impl* fs = impl_.get();
  if (fs->journal == nullptr) {
    fs->inodes->Stop(true);
    return Error::kOk;
  }
  fs->gate.WaitSettled();
  const Error thawed = Thaw();
  if (thawed != Error::kInvalid) RETURN_IF_ERROR(thawed);
  ForgetAll(fs);
  fs->inodes->DrainReaper();
  if (fs->shut_down.load()) return EndAfterShutdown(fs);
  fs->flusher->FlushAll();
  const Error lazy = WriteAllLazyFields(fs);
  fs->inodes->Stop(true);
  fs->flusher->Stop();
  const Error closed = fs->journal->Close();
  fs->read_only.store(true);
  RETURN_IF_ERROR(closed);
  RETURN_IF_ERROR(WriteStateBits(fs, 0, format::kStateMounted));
  RETURN_IF_ERROR(lazy);
  return CheckNothingDirty(fs);
}

bool Filesystem::read_only() const { return impl_->read_only.load(std::memory_order_relaxed); }

Journal* Filesystem::journal() { return impl_->journal.get(); }

const MountOptions& Filesystem::options() const { return impl_->options; }

std::string Filesystem::label() const {
  const char* label = impl_->super.fixed.label;
  return std::string(label, strnlen(label, sizeof(impl_->super.fixed.label)));
}

std::string Filesystem::uuid() const {
  std::string text;
  for (size_t i = 0; i < sizeof(impl_->super.fixed.uuid); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    absl::StrAppendFormat(&text, "%02x", impl_->super.fixed.uuid[i]);
  }
  return text;
}

}  // namespace sluice
