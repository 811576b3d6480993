// SPDX-License-Identifier: Apache-2.0
//
// A loop device over an image file, so that the file can be mounted as fuseblk, which wants a block
// device as its source. It is an identity only: the daemon reads and writes the file itself.
#ifndef SLUICE_FS_FUSE_LOOP_DEVICE_H_
#define SLUICE_FS_FUSE_LOOP_DEVICE_H_

#include <optional>
#include <string>

namespace sluice {

enum class LoopAccess { kReadOnly, kReadWrite };

// The device goes away by itself (autoclear) with its last user: keep this object until the mount,
// which is a user, exists. Movable; thread-compatible.
class LoopDevice {
 public:
  LoopDevice(LoopDevice&& other) noexcept;
  LoopDevice& operator=(LoopDevice&&) = delete;
  LoopDevice(const LoopDevice&) = delete;
  LoopDevice& operator=(const LoopDevice&) = delete;
  ~LoopDevice();

  // Attaches a free loop device to `file`. nullopt with a line for a person in `why` on failure
  // (no permission, no loop module, all devices in use).
  [[nodiscard]] static std::optional<LoopDevice> Attach(const std::string& file, LoopAccess access,
                                                        std::string* why);

  const std::string& path() const { return path_; }

 private:
  LoopDevice(int fd, std::string path);

  int fd_;
  std::string path_;
};

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_LOOP_DEVICE_H_
