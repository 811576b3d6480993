// SPDX-License-Identifier: Apache-2.0
//
// See kernel_mount.h. fusermount3's protocol: it inherits one end of a socket pair, named by
// _FUSE_COMMFD, opens and mounts /dev/fuse, and sends the descriptor back over the socket.
#include "fs/fuse/kernel_mount.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

extern char** environ;

namespace sluice {
namespace {

constexpr char kFusermount[] = "fusermount3";

MountAttempt Failure(int error, const std::string& what) {
  return {-1, error, what + ": " + std::strerror(error)};
}

std::string KernelOptions(const MountPlan& plan, int fd) {
  std::string text = "fd=" + std::to_string(fd) +
                     ",rootmode=40000,user_id=" + std::to_string(getuid()) +
                     ",group_id=" + std::to_string(getgid());
  if (plan.allow_other) text += ",allow_other";
  if (plan.default_permissions) text += ",default_permissions";
  if (plan.type == MountType::kFuseblk) text += ",blksize=4096";
  return text;
}

MountAttempt MountAsRoot(const MountPlan& plan) {
  const int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (fd < 0) return Failure(errno, "cannot open /dev/fuse (is the fuse module loaded?)");
  const char* type = plan.type == MountType::kFuseblk ? "fuseblk.sluicefs" : "fuse.sluicefs";
  const std::string options = KernelOptions(plan, fd);
  if (mount(plan.source.c_str(), plan.mountpoint.c_str(), type, plan.flags, options.c_str()) != 0) {
    const int error = errno;
    close(fd);
    return Failure(error, "cannot mount " + plan.source + " on " + plan.mountpoint);
  }
  return {fd, 0, ""};
}

// fusermount3 splits its option list at commas.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == ',' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string FusermountOptions(const MountPlan& plan) {
  std::string text = (plan.flags & MS_RDONLY) != 0 ? "ro" : "rw";
  text += ",nosuid,nodev";
  if ((plan.flags & MS_NOEXEC) != 0) text += ",noexec";
  if ((plan.flags & MS_SYNCHRONOUS) != 0) text += ",sync";
  if ((plan.flags & MS_DIRSYNC) != 0) text += ",dirsync";
  if ((plan.flags & MS_NOATIME) != 0) text += ",noatime";
  if (plan.allow_other) text += ",allow_other";
  if (plan.default_permissions) text += ",default_permissions";
  return text + ",fsname=" + Escaped(plan.source) + ",subtype=sluicefs";
}

// Runs fusermount3 with `arguments` and waits. `inherited` (or -1) is a descriptor that it gets
// under the same number, announced by `variable`. 0, or an errno when it failed.
int RunFusermount(const std::vector<std::string>& arguments, const std::string& variable) {
  std::vector<char*> argv = {const_cast<char*>(kFusermount)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  if (!variable.empty()) environment.push_back(const_cast<char*>(variable.c_str()));
  environment.push_back(nullptr);
  pid_t pid;
  const int error =
      posix_spawnp(&pid, kFusermount, nullptr, nullptr, argv.data(), environment.data());
  if (error != 0) return error;
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return errno;
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : EPERM;
}

// The descriptor in the message, or -1.
int ReceiveDescriptor(int socket) {
  char byte;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t received;
  do {
    received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received <= 0) return -1;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return -1;
  int fd;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
  return fd;
}

// The message fits into the socket's buffer, so fusermount3 can be waited for before it is read;
// its own complaint goes to our stderr.
MountAttempt MountAsUser(const MountPlan& plan) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return Failure(errno, "cannot make a socket pair");
  }
  fcntl(sockets[0], F_SETFD, 0);
  const int error = RunFusermount({"-o", FusermountOptions(plan), "--", plan.mountpoint},
                                  "_FUSE_COMMFD=" + std::to_string(sockets[0]));
  close(sockets[0]);
  const int fd = error == 0 ? ReceiveDescriptor(sockets[1]) : -1;
  close(sockets[1]);
  if (error == ENOENT) {
    return {-1, error, "cannot run fusermount3: install the package fuse3, or mount as root"};
  }
  if (fd < 0) return {-1, EPERM, "fusermount3 could not mount on " + plan.mountpoint};
  return {fd, 0, ""};
}

}  // namespace

MountAttempt MountAtKernel(const MountPlan& plan) {
  return geteuid() == 0 ? MountAsRoot(plan) : MountAsUser(plan);
}

int RemountAtKernel(const std::string& mountpoint, unsigned long flags) {
  return mount("none", mountpoint.c_str(), nullptr, MS_REMOUNT | flags, nullptr) == 0 ? 0 : errno;
}

int UnmountAtKernel(const std::string& mountpoint) {
  if (geteuid() == 0) return umount2(mountpoint.c_str(), UMOUNT_NOFOLLOW) == 0 ? 0 : errno;
  const int error = RunFusermount({"-u", "-q", "--", mountpoint}, "");
  return error == EPERM ? EBUSY : error;
}

}  // namespace sluice
