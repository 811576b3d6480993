// SPDX-License-Identifier: Apache-2.0
//
// See umount_helper.h.
#include "fs/fuse/umount_helper.h"

#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include "block/image_lock.h"
#include "fs/fuse/mount_table.h"

extern char** environ;

namespace sluice {
namespace {

// How long a daemon that does not say that it unmounts is waited for: another mount namespace may
// still use the mount, and that is not ours to wait for.
constexpr int kUnmarkedPolls = 50;
constexpr int kPollMilliseconds = 100;

int RunPlainUmount(const UmountCommand& command) {
  std::vector<std::string> words = {"umount", "-i"};
  if (command.lazy) words.push_back("-l");
  if (command.force) words.push_back("-f");
  if (command.read_only_fallback) words.push_back("-r");
  if (command.verbose) words.push_back("-v");
  words.push_back(command.target);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid;
  if (posix_spawnp(&pid, "umount", nullptr, nullptr, argv.data(), environ) != 0) {
    return kExitSystem;
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return kExitSystem;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : kExitInternal;
}

// The daemon's end, as a descriptor that becomes readable. The pid is looked up before the umount,
// so a later mount of the same image by another process is not waited for.
class DaemonWatch {
 public:
  // `source` is the mount's: a loop device goes with the mount, so its file is looked up now.
  explicit DaemonWatch(const std::string& source) : image_(ResolveBackingFile(source)) {
    const std::optional<pid_t> holder = ImageLockHolder(image_);
    if (holder) fd_ = static_cast<int>(syscall(SYS_pidfd_open, *holder, 0));
  }
  ~DaemonWatch() {
    if (fd_ >= 0) close(fd_);
  }
  DaemonWatch(const DaemonWatch&) = delete;
  DaemonWatch& operator=(const DaemonWatch&) = delete;

  void WaitForEnd() {
    if (fd_ < 0) return;
    for (int polls = 0; polls < kUnmarkedPolls; ++polls) {
      pollfd entry{fd_, POLLIN, 0};
      const int timeout = ImageHolderIsUnmounting(image_) ? -1 : kPollMilliseconds;
      if (poll(&entry, 1, timeout) > 0) return;
    }
  }

 private:
  const std::string image_;
  int fd_ = -1;
};

}  // namespace

int RunUmount(const UmountCommand& command) {
  const std::optional<MountEntry> entry = FindMountAt(command.target);
  DaemonWatch daemon(entry && IsSluicefs(*entry) ? entry->source : "");
  const int result = RunPlainUmount(command);
  if (result != kExitSuccess || !entry || command.lazy) return result;
  if (!IsMountedAnywhere(entry->device)) daemon.WaitForEnd();
  return result;
}

}  // namespace sluice
