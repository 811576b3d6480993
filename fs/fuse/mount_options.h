// SPDX-License-Identifier: Apache-2.0
//
// The options after -o: one table (mount_options.cc) names each, says what it does to
// MountSettings, and is what --help prints. Names and meanings are ext4's where ext4 has them, plus
// what mount(8) passes to its helpers.
#ifndef SLUICE_FS_FUSE_MOUNT_OPTIONS_H_
#define SLUICE_FS_FUSE_MOUNT_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

enum class AtimeSetting { kRelative, kNever, kAlways };
enum class ErrorPolicy { kRemountReadOnly, kContinue, kPanic };
enum class DataSetting { kOrdered, kWriteback };
enum class FuseblkMode { kAuto, kOn, kOff };

struct MountSettings {
  bool read_only = false;
  bool remount = false;
  AtimeSetting atime = AtimeSetting::kRelative;
  bool no_directory_atime = false;
  bool lazytime = false;
  bool nodev = false;
  bool nosuid = false;
  bool noexec = false;
  bool sync = false;
  bool dirsync = false;
  bool barrier = true;
  bool recover_journal = true;
  DataSetting data = DataSetting::kOrdered;
  uint32_t commit_seconds = 5;
  uint64_t cache_bytes = 0;  // 0: the filesystem's own choice
  ErrorPolicy errors = ErrorPolicy::kRemountReadOnly;
  FuseblkMode fuseblk = FuseblkMode::kAuto;
  // Unset: on for root (so that a root mount serves all users, as ext4's does), allow_other off
  // for a plain user.
  std::optional<bool> allow_other;
  std::optional<bool> default_permissions;
  std::string journal_path;  // of an external journal; empty: where mkfs recorded it
  std::string fsname;        // empty: the image as given
};

enum class UnknownOption { kRefuse, kIgnore };  // kIgnore: mount(8)'s -s (sloppy)

// Applies the comma-separated `list` to `options`, left to right: later words win. False with a
// line for a person in `why` when an option is unknown or its value is wrong.
[[nodiscard]] bool ParseMountOptions(std::string_view list, UnknownOption unknown,
                                     MountSettings* options, std::string* why);

// The table for --help: one line per documented option.
std::string MountOptionsHelp();

// The options' MS_* flags for mount(2).
unsigned long MountFlags(const MountSettings& options);

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_MOUNT_OPTIONS_H_
