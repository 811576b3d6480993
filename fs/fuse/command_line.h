// SPDX-License-Identifier: Apache-2.0
//
// What the program was asked to be, from its name and arguments. One program has several names:
// sluicefs (for people), mount.* (called by mount(8), where -f means "fake") and umount.* (called
// by umount(8)).
#ifndef SLUICE_FS_FUSE_COMMAND_LINE_H_
#define SLUICE_FS_FUSE_COMMAND_LINE_H_

#include <string>

#include "fs/fuse/mount_options.h"

namespace sluice {

enum class Role { kProgram, kMountHelper, kUmountHelper };

// From argv[0]; any directory before the name is ignored.
Role RoleOf(const std::string& program_path);

// Exit codes of mount(8).
enum MountExit : int {
  kExitSuccess = 0,
  kExitUsage = 1,      // wrong arguments or permissions
  kExitSystem = 2,     // out of memory, no loop device, no /dev/fuse
  kExitInternal = 4,   // the daemon died
  kExitInterrupt = 8,  // the user interrupted
  kExitFailure = 32,   // the mount failed
};

struct MountCommand {
  std::string image;
  std::string mountpoint;
  MountSettings options;
  bool foreground = false;
  bool debug = false;
  bool fake = false;
  bool verbose = false;
  bool show_help = false;
  bool show_version = false;
};

// For Role::kProgram and Role::kMountHelper. False with a line for a person in `why`.
[[nodiscard]] bool ParseMountCommand(int argc, char** argv, MountCommand* command,
                                     std::string* why);

struct UmountCommand {
  std::string target;
  bool lazy = false;
  bool force = false;
  bool fake = false;
  bool read_only_fallback = false;
  bool verbose = false;
};

// For Role::kUmountHelper. False with a line for a person in `why`.
[[nodiscard]] bool ParseUmountCommand(int argc, char** argv, UmountCommand* command,
                                      std::string* why);

std::string MountUsage();

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_COMMAND_LINE_H_
