// SPDX-License-Identifier: Apache-2.0
//
// See loop_device.h.
#include "fs/fuse/loop_device.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace sluice {
namespace {

// Others may take the device that the kernel called free before we do.
constexpr int kAttempts = 64;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

std::string WithErrno(const std::string& text) { return text + ": " + std::strerror(errno); }

loop_config ConfigFor(int file_fd, const std::string& file, LoopAccess access) {
  loop_config config{};
  config.fd = static_cast<uint32_t>(file_fd);
  config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
  if (access == LoopAccess::kReadOnly) config.info.lo_flags |= LO_FLAGS_READ_ONLY;
  std::strncpy(reinterpret_cast<char*>(config.info.lo_file_name), file.c_str(), LO_NAME_SIZE - 1);
  return config;
}

}  // namespace

LoopDevice::LoopDevice(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

LoopDevice::LoopDevice(LoopDevice&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

LoopDevice::~LoopDevice() {
  if (fd_ >= 0) close(fd_);
}

std::optional<LoopDevice> LoopDevice::Attach(const std::string& file, LoopAccess access,
                                             std::string* why) {
  const int mode = access == LoopAccess::kReadOnly ? O_RDONLY : O_RDWR;
  const Descriptor file_fd(open(file.c_str(), mode | O_CLOEXEC));
  if (file_fd.get() < 0) {
    *why = WithErrno("cannot open " + file);
    return std::nullopt;
  }
  const Descriptor control(open("/dev/loop-control", O_RDWR | O_CLOEXEC));
  if (control.get() < 0) {
    *why = WithErrno("cannot open /dev/loop-control");
    return std::nullopt;
  }
  const loop_config config = ConfigFor(file_fd.get(), file, access);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const int number = ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) {
      *why = WithErrno("no free loop device");
      return std::nullopt;
    }
    std::string path = "/dev/loop" + std::to_string(number);
    Descriptor device(open(path.c_str(), mode | O_CLOEXEC));
    if (device.get() < 0) {
      *why = WithErrno("cannot open " + path);
      return std::nullopt;
    }
    if (ioctl(device.get(), LOOP_CONFIGURE, &config) == 0) {
      return LoopDevice(device.release(), std::move(path));
    }
    *why = WithErrno("cannot attach " + path + " to " + file);
    if (errno != EBUSY) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace sluice
