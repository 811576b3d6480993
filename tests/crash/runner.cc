// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fs/filesystem_impl.h"
#include "mkfs/make_filesystem.h"
#include "tests/crash/deterministic_random.h"
#include "tests/support/fs_fixture.h"

namespace sluice::crash {
namespace {

using testing_support::Files;
using testing_support::kRoot;

constexpr uint64_t kImageBytes = uint64_t{16} << 20;
// Log blocks left before the ring's end when a workload begins near the wrap.
constexpr uint64_t kBeforeWrap = 12;

constexpr char kSetup[] =
    "mkdir A; mkdir B; mkdir A/C; create A/foo; write A/foo 0 6000; create A/bar; "
    "create B/old; write B/old 0 4096; sync";
// The earlier life of an image: other files in the same places, much of it still in the log.
constexpr char kEarlierLife[] =
    "mkdir A; create A/foo; write A/foo 0 40000; sync; mkdir B; create B/bar; write B/bar 100 "
    "30000;"
    "create A/bar; write A/bar 0 8192; link A/foo B/foo; sync; rename A/bar B/gone; mkdir B/D;"
    "symlink B/D/s /nowhere; truncate A/foo 5000; sync; unlink B/bar; create A/qux;"
    "append A/qux 20000; sync; rename B A/E; create A/E/x; append A/E/x 9000; sync";
// Files of the earlier life have ids of their own.
constexpr int kEarlierFiles = 100;

// What `-o dirsync` makes durable before it returns.
bool ChangesNames(OpKind kind) { return kind <= OpKind::kExchange; }

class Executor {
 public:
  Executor(Filesystem* fs, History* history) : fs_(fs), files_(fs), history_(history) {}
  ~Executor() {
    for (auto& [name, file] : open_) fs_->Release(std::move(file));
  }

  // The text of what went wrong, or nothing.
  std::string Do(const Operation& operation) {
    // Before the model moves on: where an append goes, and whose pattern it is.
    const Error expected = history_->Apply(operation);
    impossible_ = expected != Error::kOk;
    if (impossible_) {
      // Whoever thinks otherwise is wrong about it, the model perhaps.
      impossible_ = !ChangesNames(operation.kind) || Perform(operation) != Error::kOk;
      return Failed(operation, impossible_ ? "the model" : "the model alone", expected);
    }
    const Error error = Perform(operation);
    return error == Error::kOk ? "" : Failed(operation, "the filesystem", error);
  }

  // The last operation cannot be done, says the model.
  bool impossible() const { return impossible_; }

 private:
  static std::string Failed(const Operation& operation, const char* who, Error error) {
    return absl::StrCat("\"", operation.text, "\" failed in ", who, ": ",
                        std::string(ErrorText(error)));
  }

  Result<InodeRef> Find(const std::string& path) {
    if (IsDescriptor(path)) {
      const auto found = open_.find(path);
      if (found == open_.end()) return Error::kBadDescriptor;
      return found->second->inode;
    }
    InodeRef at = files_.Root();
    for (const std::string& name : Components(path)) {
      ASSIGN_OR_RETURN(at, files_.Lookup(at, name));
    }
    return at;
  }

  Error Perform(const Operation& operation) {
    const std::vector<std::string>& names = operation.names;
    switch (operation.kind) {
      case OpKind::kOpen:
      case OpKind::kTmpfile:
      case OpKind::kClose:
        return Descriptors(operation);
      case OpKind::kFsync:
      case OpKind::kFdatasync:
        return Fsync(names[0], operation.kind == OpKind::kFdatasync);
      case OpKind::kSync:
        return fs_->Sync();
      case OpKind::kWrite:
      case OpKind::kAppend:
      case OpKind::kMmap:
      case OpKind::kTruncate:
      case OpKind::kChmod:
        return Data(operation);
      case OpKind::kFallocate:
        return Allocate(operation, 0);
      case OpKind::kFallocateKeep:
        return Allocate(operation, kFallocateKeepSize);
      case OpKind::kPunch:
        return Allocate(operation, kFallocatePunchHole | kFallocateKeepSize);
      case OpKind::kZero:
        return Allocate(operation, kFallocateZeroRange);
      default:
        return Names(operation);
    }
  }

  Error Descriptors(const Operation& operation) {
    const std::vector<std::string>& names = operation.names;
    if (operation.kind == OpKind::kClose) {
      fs_->Release(std::move(open_.at(names[0])));
      open_.erase(names[0]);
      return Error::kOk;
    }
    ASSIGN_OR_RETURN(InodeRef inode, Find(names[1]));
    if (operation.kind == OpKind::kTmpfile) {
      ASSIGN_OR_RETURN(inode, files_.Temporary(inode));
    }
    ASSIGN_OR_RETURN(open_[names[0]], fs_->Open(inode, true, false));
    return Error::kOk;
  }

  Error Names(const Operation& operation) {
    const std::vector<std::string>& names = operation.names;
    // The name that is made or removed is the last one of the line; a symlink's target is none.
    const bool two = names.size() == 2 && operation.kind != OpKind::kSymlink;
    const std::string& path = two ? names[1] : names[0];
    ASSIGN_OR_RETURN(const InodeRef parent, Find(DirectoryOf(path)));
    const std::string name = NameOf(path);
    switch (operation.kind) {
      case OpKind::kCreate:
        return files_.Create(parent, name).error();
      case OpKind::kMkdir:
        return files_.Mkdir(parent, name).error();
      case OpKind::kSymlink:
        return files_.Symlink(parent, name, names[1]).error();
      case OpKind::kUnlink:
        return files_.Unlink(parent, name);
      case OpKind::kRmdir:
        return files_.Rmdir(parent, name);
      case OpKind::kLink: {
        ASSIGN_OR_RETURN(const InodeRef inode, Find(names[0]));
        return files_.Link(inode, parent, name);
      }
      case OpKind::kRename:
      case OpKind::kExchange: {
        ASSIGN_OR_RETURN(const InodeRef from, Find(DirectoryOf(names[0])));
        const RenameFlags flags =
            operation.kind == OpKind::kExchange ? RenameFlags::kExchange : RenameFlags::kNone;
        return files_.Rename(from, NameOf(names[0]), parent, name, flags);
      }
      default:
        return Error::kNotImplemented;
    }
  }

  Error Data(const Operation& operation) {
    ASSIGN_OR_RETURN(const InodeRef inode, Find(operation.names[0]));
    if (operation.kind == OpKind::kTruncate || operation.kind == OpKind::kChmod) {
      AttributeChange change;
      if (operation.kind == OpKind::kChmod) {
        change.mode = static_cast<uint16_t>(operation.value);
      } else {
        change.size = operation.value;
      }
      return files_.SetAttributes(inode, change).error();
    }
    // The model has written already: what it has there is what is to be written.
    const NodeId id = history_->Resolve(operation.names[0]);
    const std::string& content = history_->state(history_->last()).at(id)->content;
    uint64_t offset = operation.offset;
    uint64_t end = offset + operation.value;
    if (operation.kind == OpKind::kAppend) {
      offset = content.size() - operation.value;
      end = content.size();
    } else if (operation.kind == OpKind::kMmap) {
      offset -= offset % kBlockSize;
      end = std::min<uint64_t>((end + kBlockSize - 1) / kBlockSize * kBlockSize, content.size());
    }
    return files_.Write(inode, offset, std::string_view(content).substr(offset, end - offset));
  }

  Error Allocate(const Operation& operation, uint32_t mode) {
    ASSIGN_OR_RETURN(const InodeRef inode, Find(operation.names[0]));
    return RunBlocking([&](Attempt& attempt) {
      return fs_->Fallocate(attempt, kRoot, inode, mode, operation.offset, operation.value);
    });
  }

  Error Fsync(const std::string& path, bool data_only) {
    ASSIGN_OR_RETURN(const InodeRef inode, Find(path));
    Error result = Error::kWouldBlock;
    RETURN_IF_ERROR(RunBlocking([&](Attempt& attempt) {
      return fs_->Fsync(attempt, nullptr, inode, data_only,
                        [&result](Error error) { result = error; });
    }));
    return result;
  }

  Filesystem* const fs_;
  const Files files_;
  History* const history_;
  bool impossible_ = false;
  std::map<std::string, std::unique_ptr<OpenFile>> open_;
};

// One run, from mkfs to the recorded log.
class Run {
 public:
  Run(const Setting& setting, const RunOptions& options) : setting_(setting), options_(options) {}

  Recording Record(const std::string& workload) {
    Recording recording;
    recording.setting = setting_.name;
    recording.problem = Prepare(&recording.history);
    if (recording.problem.empty()) recording.problem = Perform(workload, &recording.history);
    recording.impossible = impossible_;
    recording.log = device_->TakeLog();
    return recording;
  }

 private:
  std::string Prepare(History* history) {
    std::string problem = MakeDevice();
    if (problem.empty() && options_.make_device) top_ = options_.make_device(device_.get());
    if (problem.empty()) problem = Mount(top_ ? top_.get() : device_.get());
    if (problem.empty()) problem = Perform(kSetup, history);
    if (problem.empty() && setting_.near_wrap) problem = GoNearWrap();
    if (!problem.empty()) return "preparation: " + problem;
    history->StartHere();
    device_->StartLog();
    device_->Mark(0);
    recording_ = true;
    return "";
  }

  // A fresh filesystem on what lay there before. Made once for all runs, without planted faults.
  std::string MakeDevice() {
    static std::map<Base, MemoryImage> made;
    if (!made.contains(setting_.base)) {
      device_ = std::make_unique<CrashDevice>(kImageBytes);
      std::string problem = setting_.base == Base::kOlder ? LiveEarlier() : "";
      if (problem.empty()) problem = Format(/*incarnation=*/2);
      if (!problem.empty()) return problem;
      made.emplace(setting_.base, device_->Image());
    }
    device_ = std::make_unique<CrashDevice>(made.at(setting_.base).Share());
    clock_ = StepClock();
    RestartRandom();
    return "";
  }

  std::string LiveEarlier() {
    std::string problem = Format(/*incarnation=*/1);
    if (problem.empty()) problem = Mount(device_.get());
    History earlier(kEarlierFiles);
    if (problem.empty()) problem = Perform(kEarlierLife, &earlier);
    fs_.reset();  // it was never unmounted: its log is full of valid records
    return problem;
  }

  std::string Format(uint64_t incarnation) {
    MkfsOptions options;
    options.log_incarnation = incarnation;
    MkfsReport report;
    if (MakeFilesystem(device_.get(), options, &report) != Error::kOk) return report.problem;
    return "";
  }

  std::string Mount(Device* device) {
    MountOptions options = CrashMountOptions(&clock_);
    options.barrier = options_.barrier;
    options.dirsync = setting_.dirsync;
    options.on_journal_point = [this](JournalPoint point) {
      if (recording_ && options_.on_point) options_.on_point(point, *device_);
    };
    std::string message;
    auto mounted = Filesystem::Mount(device, options, &message);
    if (!mounted.ok()) return "mount: " + message;
    fs_ = std::move(mounted).value();
    return "";
  }

  std::string Perform(const std::string& workload, History* history) {
    const auto operations = ParseWorkload(workload);
    if (!operations || operations->empty()) return "this is no workload: " + workload;
    Executor executor(fs_.get(), history);
    for (const Operation& operation : *operations) {
      std::string problem = executor.Do(operation);
      if (setting_.dirsync && ChangesNames(operation.kind)) history->Committed();
      if (recording_ && options_.after_operation) options_.after_operation(fs_.get());
      if (problem.empty() && recording_) problem = Between(history);
      impossible_ = executor.impossible();
      if (!problem.empty()) return problem;
      if (recording_) device_->Mark(history->last());
    }
    return "";
  }

  std::string Between(History* history) {
    if (setting_.between == Between::kNothing) return "";
    if (setting_.between == Between::kWriteout) {
      fs_->impl()->flusher->FlushAll();
      return "";
    }
    fs_->impl()->inodes->DrainReaper();
    if (fs_->journal()->CommitNow(CommitReason::kSync) != Error::kOk) return "a commit failed";
    history->Committed();
    if (setting_.between != Between::kCheckpoint) return "";
    return fs_->journal()->CheckpointNow() == Error::kOk ? "" : "a checkpoint failed";
  }

  // Small transactions until the ring is nearly over.
  std::string GoNearWrap() {
    const Files files(fs_.get());
    const LogArea log(fs_->impl()->super);
    const uint64_t ring = log.ring_blocks();
    const auto left = [&] { return ring - fs_->journal()->stats().log_blocks_written % ring; };
    for (int i = 0; i < 1000 && left() > kBeforeWrap; ++i) {
      if (!files.Create(files.Root(), "filler").ok() ||
          files.Unlink(files.Root(), "filler") != Error::kOk ||
          fs_->journal()->CommitNow(CommitReason::kSync) != Error::kOk) {
        return "the filling of the log failed";
      }
      fs_->impl()->inodes->DrainReaper();
    }
    return left() > kBeforeWrap ? "the log's end was not reached" : "";
  }

  const Setting& setting_;
  const RunOptions& options_;
  StepClock clock_;
  std::unique_ptr<CrashDevice> device_;
  std::unique_ptr<Device> top_;
  std::unique_ptr<Filesystem> fs_;
  bool recording_ = false;
  bool impossible_ = false;
};

}  // namespace

MountOptions CrashMountOptions(Clock* clock) {
  MountOptions options;
  options.clock = clock;
  options.manual = true;
  options.cache_bytes = 4u << 20;
  options.metadata_cache_blocks = 512;
  return options;
}

Recording RunWorkload(const std::string& workload, const Setting& setting,
                      const RunOptions& options) {
  return Run(setting, options).Record(workload);
}

}  // namespace sluice::crash
