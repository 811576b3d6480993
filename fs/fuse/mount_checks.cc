// SPDX-License-Identifier: Apache-2.0
//
// See mount_checks.h.
#include "fs/fuse/mount_checks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

#include "fs/fuse/mount_table.h"

namespace sluice {
namespace {

bool Fail(std::string* why, std::string text) {
  *why = std::move(text);
  return false;
}

}  // namespace

bool ResolveMountpoint(const std::string& given, std::string* resolved, std::string* why) {
  const std::unique_ptr<char, void (*)(void*)> real(realpath(given.c_str(), nullptr), std::free);
  if (real == nullptr) {
    if (errno == ENOENT) return Fail(why, "mountpoint " + given + " does not exist");
    if (errno == ENOTCONN) {
      return Fail(why, "mountpoint " + given + " is busy: a dead mount is there (umount it first)");
    }
    return Fail(why, "mountpoint " + given + ": " + std::strerror(errno));
  }
  *resolved = real.get();
  const std::optional<MountEntry> mounted = FindMountAt(*resolved);
  if (mounted && IsSluicefs(*mounted)) {
    return Fail(why, "mountpoint " + given + " is busy: " + mounted->source + " is mounted there");
  }
  struct stat st;
  if (stat(resolved->c_str(), &st) != 0) {
    return Fail(why, "mountpoint " + given + ": " + std::strerror(errno));
  }
  if (!S_ISDIR(st.st_mode)) return Fail(why, "mountpoint " + given + " is not a directory");
  return true;
}

bool CheckImageFile(const std::string& path, ImageUse use, std::string* why) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0) {
    return Fail(why, "cannot open image " + path + ": " + std::strerror(errno));
  }
  if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)) {
    return Fail(why, "image " + path + " is neither a file nor a block device");
  }
  const bool write = use == ImageUse::kReadWrite;
  const int fd = open(path.c_str(), (write ? O_RDWR : O_RDONLY) | O_CLOEXEC);
  const int error = fd < 0 ? errno : 0;
  if (fd >= 0) close(fd);
  const bool mode_forbids = S_ISREG(st.st_mode) && (st.st_mode & 0222) == 0;
  if (write &&
      (error == EROFS || error == EACCES || error == EPERM || (error == 0 && mode_forbids))) {
    const int readable = access(path.c_str(), R_OK);
    if (readable == 0) return Fail(why, "image " + path + " is read-only: mount it with -o ro");
  }
  if (error != 0) return Fail(why, "cannot open image " + path + ": " + std::strerror(error));
  return true;
}

std::string AbsolutePath(const std::string& path) {
  if (!path.empty() && path[0] == '/') return path;
  std::error_code error;
  const std::filesystem::path directory = std::filesystem::current_path(error);
  return error ? path : (directory / path).string();
}

}  // namespace sluice
