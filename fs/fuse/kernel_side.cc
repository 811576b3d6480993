// SPDX-License-Identifier: Apache-2.0
//
// See kernel_side.h.
#include "fs/fuse/kernel_side.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "fs/fuse/loop_device.h"

namespace sluice {
namespace {

bool IsBlockDevice(const std::string& path) {
  struct stat st;
  return stat(path.c_str(), &st) == 0 && S_ISBLK(st.st_mode);
}

MountPlan PlanFor(const std::string& source, const std::string& mountpoint,
                  const MountSettings& settings, MountType type) {
  const bool root = geteuid() == 0;
  MountPlan plan;
  plan.type = type;
  plan.source = source;
  plan.mountpoint = mountpoint;
  plan.flags = MountFlags(settings);
  plan.allow_other = settings.allow_other.value_or(root);
  plan.default_permissions = settings.default_permissions.value_or(true);
  return plan;
}

// The kernel opens the source for itself, so it must be a block device.
MountAttempt MountFuseblk(const std::string& image, const std::string& mountpoint,
                          const MountSettings& settings) {
  if (IsBlockDevice(image)) {
    return MountAtKernel(PlanFor(image, mountpoint, settings, MountType::kFuseblk));
  }
  const LoopAccess access = settings.read_only ? LoopAccess::kReadOnly : LoopAccess::kReadWrite;
  std::string why;
  const std::optional<LoopDevice> loop = LoopDevice::Attach(image, access, &why);
  if (!loop) return {-1, ENODEV, why};
  return MountAtKernel(PlanFor(loop->path(), mountpoint, settings, MountType::kFuseblk));
}

}  // namespace

MountAttempt MountImage(const std::string& image, const std::string& mountpoint,
                        const MountSettings& settings) {
  const bool root = geteuid() == 0;
  if (settings.fuseblk == FuseblkMode::kOn && !root) {
    return {-1, EPERM, "fuseblk=on needs root"};
  }
  // A name of the user's choice cannot be shown by fuseblk, whose source is the device.
  const bool wants_name = !settings.fsname.empty();
  if (settings.fuseblk == FuseblkMode::kOn ||
      (settings.fuseblk == FuseblkMode::kAuto && root && !wants_name)) {
    MountAttempt attempt = MountFuseblk(image, mountpoint, settings);
    // EBUSY is about the device or the mountpoint: plain fuse would only hide it.
    if (attempt.fd >= 0 || settings.fuseblk == FuseblkMode::kOn || attempt.error == EBUSY) {
      return attempt;
    }
  }
  const std::string& source = wants_name ? settings.fsname : image;
  return MountAtKernel(PlanFor(source, mountpoint, settings, MountType::kFuse));
}

}  // namespace sluice
