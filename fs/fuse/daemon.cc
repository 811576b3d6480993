// SPDX-License-Identifier: Apache-2.0
//
// See daemon.h. Threads: the main thread waits for signals and the session's end; receive threads
// and workers serve; a helper thread unmounts when a signal asks for it, since the others must go
// on serving meanwhile.
#include "fs/fuse/daemon.h"

#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/mutex.h"
#include "block/image_lock.h"
#include "block/scheduler.h"
#include "block/uring_device.h"
#include "format/journal_device.h"
#include "fs/filesystem.h"
#include "fs/fuse/fuse_server.h"
#include "fs/fuse/kernel_mount.h"
#include "fs/fuse/kernel_side.h"
#include "fs/fuse/launch.h"
#include "fs/fuse/mount_checks.h"
#include "fs/fuse/mount_table.h"
#include "fs/fuse/session.h"
#include "fs/read_superblock.h"

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

extern char** environ;

namespace sluice {
namespace {

// More gain nothing on few cores: requests that wait are not theirs.
constexpr int kReceiveThreads = 2;

sigset_t EndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  return signals;
}

AtimeMode AtimeFrom(AtimeSetting setting) {
  switch (setting) {
    case AtimeSetting::kRelative:
      return AtimeMode::kRelative;
    case AtimeSetting::kNever:
      return AtimeMode::kNone;
    case AtimeSetting::kAlways:
      return AtimeMode::kStrict;
  }
  return AtimeMode::kRelative;
}

OnError OnErrorFrom(ErrorPolicy policy) {
  switch (policy) {
    case ErrorPolicy::kRemountReadOnly:
      return OnError::kRemountReadOnly;
    case ErrorPolicy::kContinue:
      return OnError::kContinue;
    case ErrorPolicy::kPanic:
      return OnError::kPanic;
  }
  return OnError::kRemountReadOnly;
}

DataMode DataFrom(DataSetting setting) {
  switch (setting) {
    case DataSetting::kOrdered:
      return DataMode::kOrdered;
    case DataSetting::kWriteback:
      return DataMode::kWriteback;
  }
  return DataMode::kOrdered;
}

MountOptions FilesystemOptions(const MountSettings& settings, const std::string& mountpoint) {
  constexpr Nanoseconds kSecond = 1'000'000'000;
  MountOptions options;
  options.read_only = settings.read_only;
  options.norecovery = !settings.recover_journal;
  options.atime = AtimeFrom(settings.atime);
  options.nodiratime = settings.no_directory_atime;
  options.sync = settings.sync;
  options.dirsync = settings.dirsync;
  options.commit_interval = settings.commit_seconds * kSecond;
  options.barrier = settings.barrier;
  options.data = DataFrom(settings.data);
  options.on_error = OnErrorFrom(settings.errors);
  if (settings.cache_bytes != 0) options.cache_bytes = settings.cache_bytes;
  options.mountpoint = mountpoint;
  return options;
}

// What the kernel holds dirty (stores through mmap) comes to us only when somebody asks it to; a
// process of its own asks, since we must never wait for our own mount.
void FlushKernelPages(const std::string& mountpoint) {
  std::array<std::string, 3> words = {"sync", "-f", mountpoint};
  std::array<char*, 4> argv = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t pid;
  if (posix_spawnp(&pid, "sync", nullptr, nullptr, argv.data(), environ) != 0) return;
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

class Daemon {
 public:
  Daemon(const MountCommand& command, std::string mountpoint)
      : command_(command),
        image_(AbsolutePath(command.image)),
        mountpoint_(std::move(mountpoint)) {}
  ~Daemon() {
    if (unmounter_.joinable()) unmounter_.join();
    for (const int fd : {signal_fd_, end_fd_}) {
      if (fd >= 0) close(fd);
    }
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Everything from the lock to the end of the mount. The exit code.
  int Run(Launch* launch);

 private:
  int OpenFilesystem();
  // The device of an external journal, if the image has one.
  int OpenJournalDevice();
  // Mounts and waits until the mount is usable; on failure nothing stays mounted.
  int MountAndServe();
  int MountAndStart();
  void WaitForEnd();
  void StartUnmount();
  void Unmount();
  bool OurMountIsOnTop() const;
  // Tells those who want the image now to wait rather than to go away.
  void MarkUnmounting() ABSL_LOCKS_EXCLUDED(mutex_);
  // A frozen mount that is going away: nobody could thaw it any more.
  void LetParkedGo();
  // Makes the image clean and lets go of it. Once; nothing is in flight.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);
  void SyncUnlessClosed() ABSL_LOCKS_EXCLUDED(mutex_);

  const MountCommand& command_;
  const std::string image_;
  const std::string mountpoint_;

  ImageLock lock_;
  ImageLock journal_lock_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Device> journal_device_;
  std::unique_ptr<Filesystem> fs_;
  std::unique_ptr<FuseServer> server_;
  std::unique_ptr<Session> session_;
  dev_t mounted_device_ = 0;

  int signal_fd_ = -1;
  int end_fd_ = -1;
  std::thread unmounter_;
  std::atomic<bool> unmounting_{false};

  // Close() and a sync on behalf of a signal exclude each other.
  Mutex mutex_;
  CondVar synced_;
  bool syncing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  Error close_error_ = Error::kOk;
};

int Daemon::Run(Launch* launch) {
  if (const int code = OpenFilesystem(); code != kExitSuccess) return code;
  if (const int code = MountAndServe(); code != kExitSuccess) {
    Close();
    return code;
  }
  launch->ReportReady();
  WaitForEnd();
  MarkUnmounting();
  session_->Join();
  LetParkedGo();
  session_->Drain();
  server_->Finish();
  Close();
  return close_error_ == Error::kOk ? kExitSuccess : kExitFailure;
}

int Daemon::OpenFilesystem() {
  std::string why;
  std::optional<ImageLock> lock = ImageLock::Acquire(image_, ImageLockMode::kExclusive, &why);
  if (!lock) {
    LogError(why);
    return kExitFailure;
  }
  lock_ = std::move(*lock);
  UringDeviceOptions device_options;
  device_options.read_only = command_.options.read_only;
  Result<std::unique_ptr<UringDevice>> device = OpenUringDevice(image_, device_options);
  if (!device.ok()) {
    LogError("cannot open image ", command_.image, ": ", std::string(ErrorText(device.error())));
    return kExitFailure;
  }
  device_ = std::move(device).value();
  if (const int code = OpenJournalDevice(); code != kExitSuccess) return code;
  scheduler_ = std::make_unique<Scheduler>(device_.get());
  MountOptions options = FilesystemOptions(command_.options, mountpoint_);
  options.journal_device = journal_device_.get();
  std::string message;
  Result<std::unique_ptr<Filesystem>> fs = Filesystem::Mount(scheduler_.get(), options, &message);
  if (!fs.ok()) {
    if (message.empty()) message = ErrorText(fs.error());
    LogError("cannot mount ", command_.image, ": ", message);
    return kExitFailure;
  }
  fs_ = std::move(fs).value();
  return kExitSuccess;
}

int Daemon::OpenJournalDevice() {
  std::string message;
  const Result<FoundSuperblock> found = ReadSuperblock(device_.get(), &message);
  // What is wrong with the superblock is the mount's to say.
  if (!found.ok() || !format::HasExternalJournal(found->super.fixed)) return kExitSuccess;
  if (!command_.options.recover_journal) return kExitSuccess;
  std::string path = command_.options.journal_path;
  if (path.empty()) path = format::ExternalJournalPath(found->super.fixed);
  std::string why = "where it is, is not recorded";
  if (!path.empty()) {
    std::optional<ImageLock> lock = ImageLock::Acquire(path, ImageLockMode::kExclusive, &why);
    if (lock) {
      journal_lock_ = std::move(*lock);
      UringDeviceOptions options;
      options.read_only = command_.options.read_only;
      Result<std::unique_ptr<UringDevice>> device = OpenUringDevice(path, options);
      if (device.ok()) {
        journal_device_ = std::move(device).value();
        return kExitSuccess;
      }
      why = absl::StrCat(path, ": ", std::string(ErrorText(device.error())));
    }
  }
  LogError("cannot mount ", command_.image, ": its external journal cannot be opened: ", why,
           "; -o journal_path=PATH says where it is");
  return kExitFailure;
}

int Daemon::MountAndServe() {
  if (const int code = MountAndStart(); code == kExitSuccess || session_ == nullptr) return code;
  // A dead mount helps nobody. It may be gone already.
  (void)UnmountAtKernel(mountpoint_);
  session_->Join();
  return kExitFailure;
}

int Daemon::MountAndStart() {
  const sigset_t signals = EndSignals();
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC);
  end_fd_ = eventfd(0, EFD_CLOEXEC);
  if (signal_fd_ < 0 || end_fd_ < 0) {
    LogError("no file descriptors left");
    return kExitSystem;
  }
  MountSettings settings = command_.options;
  settings.read_only = settings.read_only || fs_->read_only();
  const MountAttempt mount = MountImage(image_, mountpoint_, settings);
  if (mount.fd < 0) {
    LogError(mount.why);
    return kExitFailure;
  }
  server_ = std::make_unique<FuseServer>(fs_.get(), [this] {
    MarkUnmounting();
    Close();
  });
  session_ =
      std::make_unique<Session>(mount.fd, MakeFuseOperations(), server_.get(), command_.debug);
  server_->Attach(session_.get());
  if (!session_->valid()) {
    LogError("libfuse refuses to set up the session");
    return kExitFailure;
  }
  session_->Start(kReceiveThreads, [this] { eventfd_write(end_fd_, 1); });
  if (!session_->WaitReady()) {
    LogError("the kernel closed the connection before the mount was usable");
    return kExitFailure;
  }
  const std::optional<MountEntry> entry = FindMountAt(mountpoint_);
  if (entry) mounted_device_ = entry->device;
  return kExitSuccess;
}

void Daemon::WaitForEnd() {
  for (;;) {
    std::array<pollfd, 2> entries = {{{signal_fd_, POLLIN, 0}, {end_fd_, POLLIN, 0}}};
    if (poll(entries.data(), entries.size(), -1) < 0) continue;
    if ((entries[1].revents & POLLIN) != 0) return;
    signalfd_siginfo info;
    if (read(signal_fd_, &info, sizeof(info)) != sizeof(info)) continue;
    if (info.ssi_signo != SIGHUP) StartUnmount();
  }
}

void Daemon::StartUnmount() {
  if (unmounting_.exchange(true)) return;
  if (unmounter_.joinable()) unmounter_.join();
  unmounter_ = std::thread([this] {
    Unmount();
    unmounting_ = false;
  });
}

// Never lazily: that would cut off those who still write. If somebody uses the mount, all that was
// accepted becomes durable and the mount stays.
void Daemon::Unmount() {
  LetParkedGo();
  const int error = OurMountIsOnTop() ? UnmountAtKernel(mountpoint_) : EBUSY;
  if (error == 0) return;
  LogWarning(mountpoint_, " cannot be unmounted now (", std::strerror(error),
             "): everything is written, the mount stays");
  FlushKernelPages(mountpoint_);
  SyncUnlessClosed();
}

// The kernel's DESTROY and the end of the session come on different threads; whoever closes lets
// go of the lock without the mutex, but only after `closed_` is set.
void Daemon::MarkUnmounting() {
  MutexLock lock(&mutex_);
  if (!closed_) lock_.MarkUnmounting();
}

void Daemon::LetParkedGo() {
  if (fs_->Thaw() == Error::kOk) LogInfo("thawed, to be unmounted");
}

void Daemon::SyncUnlessClosed() {
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    syncing_ = true;
  }
  const Error error = fs_->Sync();
  if (error != Error::kOk) LogError("sync: ", std::string(ErrorText(error)));
  MutexLock lock(&mutex_);
  syncing_ = false;
  synced_.SignalAll();
}

bool Daemon::OurMountIsOnTop() const {
  const std::optional<MountEntry> entry = FindMountAt(mountpoint_);
  return entry && entry->device == mounted_device_;
}

void Daemon::Close() {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(closed_, true)) return;
    while (syncing_) synced_.Wait(&mutex_);
  }
  close_error_ = fs_->Unmount();
  if (close_error_ != Error::kOk) {
    LogError("unmounting ", command_.image, ": ", std::string(ErrorText(close_error_)));
  }
  journal_lock_.Release();
  lock_.Release();
}

// Messages before the mount is usable: what matters goes to the person at the terminal, the rest
// to the log (a successful mount prints nothing).
void LogToTerminalAndSyslog(LogLevel level, std::string_view line) {
  if (level == LogLevel::kInfo) {
    syslog(LOG_INFO, "%.*s", static_cast<int>(line.size()), line.data());
  } else {
    std::fprintf(stderr, "sluicefs: %.*s\n", static_cast<int>(line.size()), line.data());
  }
}

int Remount(const MountCommand& command) {
  const int error = RemountAtKernel(command.mountpoint, MountFlags(command.options));
  if (error == 0) return kExitSuccess;
  LogError("cannot remount ", command.mountpoint, ": ", std::strerror(error));
  return kExitFailure;
}

}  // namespace

int RunMount(const MountCommand& command) {
  if (command.options.remount) return Remount(command);
  std::string why;
  std::string mountpoint;
  const ImageUse use = command.options.read_only ? ImageUse::kReadOnly : ImageUse::kReadWrite;
  if (!ResolveMountpoint(command.mountpoint, &mountpoint, &why) ||
      !CheckImageFile(command.image, use, &why)) {
    LogError(why);
    return kExitFailure;
  }
  if (command.fake) return kExitSuccess;
  Launch launch;
  if (!command.foreground) {
    // Nothing of the caller's may stay open in a daemon that lives for months.
    if (close_range(STDERR_FILENO + 1, ~0u, 0) != 0) LogWarning("cannot close inherited files");
    SetLogSink(LogToTerminalAndSyslog);
    if (!launch.GoToBackground()) {
      LogError("cannot start a process: ", std::strerror(errno));
      return kExitSystem;
    }
  }
  const sigset_t signals = EndSignals();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  // Allowed to root only, and only a help under memory pressure.
  (void)prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
  Daemon daemon(command, mountpoint);
  return daemon.Run(&launch);
}

}  // namespace sluice
