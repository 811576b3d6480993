// SPDX-License-Identifier: Apache-2.0
//
// See image_lock.h for the protocol.
#include "block/image_lock.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/mutex.h"

namespace sluice {
namespace {

constexpr off_t kUnmountingByte = off_t{1} << 61;
constexpr int kGraceSteps = 50;
constexpr absl::Duration kGraceStep = absl::Milliseconds(20);

// The image is opened for reading only: flock needs no more, and a read-only image can be mounted.
int OpenForLock(const std::string& path) {
  return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

struct flock UnmountingRange(short type) {
  struct flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = kUnmountingByte;
  range.l_len = 1;
  return range;
}

bool HolderIsUnmounting(int fd) {
  struct flock range = UnmountingRange(F_WRLCK);
  return fcntl(fd, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

// Whether process `pid` has the file with this identity open. Needed on hosts whose stat(2) shows
// another device number than /proc/locks (btrfs, overlayfs).
bool HasOpen(pid_t pid, const struct stat& file) {
  const std::string dir_path = "/proc/" + std::to_string(pid) + "/fd";
  DIR* dir = opendir(dir_path.c_str());
  if (dir == nullptr) return false;
  bool found = false;
  while (const dirent* entry = readdir(dir)) {
    struct stat st;
    if (fstatat(dirfd(dir), entry->d_name, &st, 0) != 0) continue;
    if (st.st_dev == file.st_dev && st.st_ino == file.st_ino) {
      found = true;
      break;
    }
  }
  closedir(dir);
  return found;
}

// Lines look like "7: FLOCK  ADVISORY  WRITE 4711 fd:01:131 0 EOF"; a "->" after the number marks a
// process that waits.
std::optional<pid_t> HolderOf(const struct stat& file) {
  std::ifstream locks("/proc/locks");
  std::string line;
  while (std::getline(locks, line)) {
    int pid = 0;
    unsigned major_number = 0;
    unsigned minor_number = 0;
    unsigned long long inode = 0;
    if (std::sscanf(line.c_str(), "%*d: FLOCK %*s %*s %d %x:%x:%llu", &pid, &major_number,
                    &minor_number, &inode) != 4) {
      continue;
    }
    if (inode != file.st_ino || pid <= 0) continue;
    if (makedev(major_number, minor_number) == file.st_dev || HasOpen(pid, file)) return pid;
  }
  return std::nullopt;
}

std::string ProgramName(pid_t pid) {
  std::ifstream comm("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(comm, name);
  return name;
}

std::string BusyText(const std::string& path, const struct stat& file) {
  const std::optional<pid_t> holder = HolderOf(file);
  if (!holder) return path + " is in use by another process";
  const std::string name = ProgramName(*holder);
  return path + " is in use by process " + std::to_string(*holder) +
         (name.empty() ? "" : " (" + name + ")");
}

int FlockRetryingSignals(int fd, int operation) {
  int result;
  do {
    result = flock(fd, operation);
  } while (result != 0 && errno == EINTR);
  return result;
}

void PauseForGrace() {
  Mutex mutex;
  CondVar nobody_signals;
  MutexLock lock(&mutex);
  nobody_signals.WaitWithTimeout(&mutex, kGraceStep);
}

// 0 once the lock is held; EWOULDBLOCK when another holds it and is not about to let go; else the
// errno of the host's refusal.
int LockUnlessBusy(int fd, int operation, ImageLockWait wait) {
  const int steps = wait == ImageLockWait::kNoWaiting ? 0 : kGraceSteps;
  for (int step = 0;; ++step) {
    if (FlockRetryingSignals(fd, operation | LOCK_NB) == 0) return 0;
    if (errno != EWOULDBLOCK || step == steps) return errno;
    if (HolderIsUnmounting(fd)) return FlockRetryingSignals(fd, operation) == 0 ? 0 : errno;
    PauseForGrace();
  }
}

// The file may have been replaced (a new one under the same name) while we waited for its lock.
bool SameFile(int fd, const std::string& path) {
  struct stat opened;
  struct stat named;
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

}  // namespace

ImageLock::ImageLock(ImageLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

ImageLock& ImageLock::operator=(ImageLock&& other) noexcept {
  if (this != &other) {
    Release();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

std::optional<ImageLock> ImageLock::Acquire(const std::string& path, ImageLockMode mode,
                                            std::string* why, ImageLockWait wait) {
  const std::string file_path = ResolveBackingFile(path);
  const int operation = mode == ImageLockMode::kExclusive ? LOCK_EX : LOCK_SH;
  for (;;) {
    ImageLock lock(OpenForLock(file_path));
    struct stat file;
    if (!lock.held() || fstat(lock.fd_, &file) != 0) {
      *why = "cannot open " + path + ": " + std::strerror(errno);
      return std::nullopt;
    }
    const int refusal = LockUnlessBusy(lock.fd_, operation, wait);
    if (refusal != 0) {
      *why = refusal == EWOULDBLOCK ? BusyText(path, file)
                                    : "cannot lock " + path + ": " + std::strerror(refusal);
      return std::nullopt;
    }
    if (SameFile(lock.fd_, file_path)) return lock;
  }
}

void ImageLock::MarkUnmounting() {
  if (fd_ < 0) return;
  struct flock range = UnmountingRange(F_RDLCK);
  // Without the mark others are refused instead of waiting: a host without such locks loses no
  // more than that.
  (void)fcntl(fd_, F_OFD_SETLK, &range);
}

void ImageLock::Release() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

std::optional<pid_t> ImageLockHolder(const std::string& path) {
  struct stat file;
  if (stat(ResolveBackingFile(path).c_str(), &file) != 0) return std::nullopt;
  return HolderOf(file);
}

bool ImageHolderIsUnmounting(const std::string& path) {
  const int fd = OpenForLock(ResolveBackingFile(path));
  if (fd < 0) return false;
  const bool unmounting = HolderIsUnmounting(fd);
  close(fd);
  return unmounting;
}

std::string ResolveBackingFile(const std::string& path) {
  struct stat node;
  if (stat(path.c_str(), &node) != 0 || !S_ISBLK(node.st_mode)) return path;
  const int fd = OpenForLock(path);
  if (fd < 0) return path;
  loop_info64 info{};
  const bool is_loop = ioctl(fd, LOOP_GET_STATUS64, &info) == 0;
  close(fd);
  if (!is_loop) return path;
  // The ioctl truncates long names; sysfs has the whole one. Only a file that is the loop device's
  // own, by its identity, is taken: the name may be of another mount namespace, or deleted.
  std::ifstream sysfs("/sys/dev/block/" + std::to_string(major(node.st_rdev)) + ":" +
                      std::to_string(minor(node.st_rdev)) + "/loop/backing_file");
  std::string backing;
  std::getline(sysfs, backing);
  struct stat file;
  if (backing.empty() || stat(backing.c_str(), &file) != 0) return path;
  if (file.st_ino != info.lo_inode) return path;
  return backing;
}

}  // namespace sluice
