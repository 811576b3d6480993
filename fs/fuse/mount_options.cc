// SPDX-License-Identifier: Apache-2.0
//
// See mount_options.h.
#include "fs/fuse/mount_options.h"

#include <sys/mount.h>

#include <charconv>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice {
namespace {

// Sets the option; false when `value` is wrong. Options without a value get an empty one.
using Apply = bool (*)(MountSettings* options, std::string_view value);

enum class Takes { kNothing, kValue };

struct OptionRow {
  std::string_view name;
  Takes takes;
  Apply apply;
  std::string_view value_help;  // shown after "="
  std::string_view help;        // empty: accepted, but not worth a line in --help
};

bool ParseNumber(std::string_view text, uint64_t* number) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && rest == end;
}

// "64M": bytes, with an optional K, M, G or T (powers of 1024).
bool ParseSize(std::string_view text, uint64_t* bytes) {
  int shift = 0;
  if (!text.empty()) {
    switch (text.back() | 0x20) {
      case 'k':
        shift = 10;
        break;
      case 'm':
        shift = 20;
        break;
      case 'g':
        shift = 30;
        break;
      case 't':
        shift = 40;
        break;
    }
  }
  if (shift != 0) text.remove_suffix(1);
  uint64_t number = 0;
  if (!ParseNumber(text, &number)) return false;
  if (number > (std::numeric_limits<uint64_t>::max() >> shift)) return false;
  *bytes = number << shift;
  return true;
}

bool Accept(MountSettings*, std::string_view) { return true; }

template <bool MountSettings::*member, bool value>
bool Set(MountSettings* options, std::string_view) {
  options->*member = value;
  return true;
}

template <std::optional<bool> MountSettings::*member, bool value>
bool SetChoice(MountSettings* options, std::string_view) {
  options->*member = value;
  return true;
}

template <AtimeSetting mode>
bool SetAtime(MountSettings* options, std::string_view) {
  options->atime = mode;
  return true;
}

// What mount(8) documents for "user" and "users": safe unless a later word says otherwise.
bool SetUser(MountSettings* options, std::string_view) {
  options->nodev = options->nosuid = options->noexec = true;
  return true;
}

bool SetBarrier(MountSettings* options, std::string_view value) {
  if (value != "0" && value != "1" && !value.empty()) return false;
  options->barrier = value != "0";
  return true;
}

bool SetCommit(MountSettings* options, std::string_view value) {
  constexpr uint64_t kDefault = 5;
  constexpr uint64_t kMost = 86'400;
  uint64_t seconds = 0;
  if (!ParseNumber(value, &seconds) || seconds > kMost) return false;
  options->commit_seconds = static_cast<uint32_t>(seconds == 0 ? kDefault : seconds);
  return true;
}

bool SetErrors(MountSettings* options, std::string_view value) {
  if (value == "remount-ro") {
    options->errors = ErrorPolicy::kRemountReadOnly;
  } else if (value == "continue") {
    options->errors = ErrorPolicy::kContinue;
  } else if (value == "panic") {
    options->errors = ErrorPolicy::kPanic;
  } else {
    return false;
  }
  return true;
}

bool SetFuseblk(MountSettings* options, std::string_view value) {
  if (value == "auto") {
    options->fuseblk = FuseblkMode::kAuto;
  } else if (value == "on") {
    options->fuseblk = FuseblkMode::kOn;
  } else if (value == "off") {
    options->fuseblk = FuseblkMode::kOff;
  } else {
    return false;
  }
  return true;
}

bool SetCache(MountSettings* options, std::string_view value) {
  return ParseSize(value, &options->cache_bytes) && options->cache_bytes > 0;
}

bool SetJournalPath(MountSettings* options, std::string_view value) {
  options->journal_path = value;
  return !value.empty();
}

bool SetFsname(MountSettings* options, std::string_view value) {
  options->fsname = value;
  return !value.empty();
}

// data=journal is ext4's, not (yet) ours: refused, with the table's words.
bool SetData(MountSettings* options, std::string_view value) {
  if (value == "ordered") {
    options->data = DataSetting::kOrdered;
  } else if (value == "writeback") {
    options->data = DataSetting::kWriteback;
  } else {
    return false;
  }
  return true;
}

bool AcceptSubtype(MountSettings*, std::string_view value) { return value == "sluicefs"; }

using M = MountSettings;
constexpr OptionRow kOptions[] = {
    {"ro", Takes::kNothing, Set<&M::read_only, true>, "", "mount read-only"},
    {"rw", Takes::kNothing, Set<&M::read_only, false>, "", "mount read-write (default)"},
    {"relatime", Takes::kNothing, SetAtime<AtimeSetting::kRelative>, "",
     "access times only when older than the last change or a day (default)"},
    {"noatime", Takes::kNothing, SetAtime<AtimeSetting::kNever>, "", "no access times"},
    {"strictatime", Takes::kNothing, SetAtime<AtimeSetting::kAlways>, "", "every access time"},
    {"atime", Takes::kNothing, SetAtime<AtimeSetting::kRelative>, "", ""},
    {"norelatime", Takes::kNothing, Accept, "", ""},
    {"nostrictatime", Takes::kNothing, SetAtime<AtimeSetting::kRelative>, "", ""},
    {"nodiratime", Takes::kNothing, Set<&M::no_directory_atime, true>, "",
     "no access times of directories"},
    {"diratime", Takes::kNothing, Set<&M::no_directory_atime, false>, "", ""},
    {"lazytime", Takes::kNothing, Set<&M::lazytime, true>, "",
     "timestamps reach the image with the next change or fsync"},
    {"nolazytime", Takes::kNothing, Set<&M::lazytime, false>, "", ""},
    {"dev", Takes::kNothing, Set<&M::nodev, false>, "", ""},
    {"nodev", Takes::kNothing, Set<&M::nodev, true>, "", "device nodes do not act as devices"},
    {"suid", Takes::kNothing, Set<&M::nosuid, false>, "", ""},
    {"nosuid", Takes::kNothing, Set<&M::nosuid, true>, "", "set-user-id bits have no effect"},
    {"exec", Takes::kNothing, Set<&M::noexec, false>, "", ""},
    {"noexec", Takes::kNothing, Set<&M::noexec, true>, "", "programs do not run from here"},
    {"sync", Takes::kNothing, Set<&M::sync, true>, "", "every write and change is durable at once"},
    {"async", Takes::kNothing, Set<&M::sync, false>, "", ""},
    {"dirsync", Takes::kNothing, Set<&M::dirsync, true>, "",
     "every directory change is durable at once"},
    {"commit", Takes::kValue, SetCommit, "SECONDS", "longest time between commits (default 5)"},
    {"barrier", Takes::kNothing, SetBarrier, "", ""},
    {"barrier", Takes::kValue, SetBarrier, "0|1",
     "flush the device's cache at commits (default 1)"},
    {"nobarrier", Takes::kNothing, Set<&M::barrier, false>, "",
     "as barrier=0: faster, but a power cut may lose or damage data"},
    {"errors", Takes::kValue, SetErrors, "remount-ro|continue|panic",
     "what to do about corrupt metadata (default remount-ro)"},
    {"norecovery", Takes::kNothing, Set<&M::recover_journal, false>, "",
     "do not replay the journal; needs ro"},
    {"noload", Takes::kNothing, Set<&M::recover_journal, false>, "", "as norecovery"},
    {"data", Takes::kValue, SetData, "ordered|writeback",
     "whether data reaches the image before the metadata that names it (default ordered)"},
    {"journal_path", Takes::kValue, SetJournalPath, "PATH",
     "the external journal, if it is not where mkfs.sluicefs was told"},
    {"nodelalloc", Takes::kNothing, Accept, "", "allocate at write time (the only mode)"},
    {"cache", Takes::kValue, SetCache, "SIZE", "memory for cached blocks, such as 256M"},
    {"allow_other", Takes::kNothing, SetChoice<&M::allow_other, true>, "",
     "serve all users (default for root)"},
    {"noallow_other", Takes::kNothing, SetChoice<&M::allow_other, false>, "",
     "serve only the user who mounts"},
    {"default_permissions", Takes::kNothing, SetChoice<&M::default_permissions, true>, "",
     "the kernel checks permissions (default)"},
    {"nodefault_permissions", Takes::kNothing, SetChoice<&M::default_permissions, false>, "",
     "nobody checks permissions"},
    {"fuseblk", Takes::kValue, SetFuseblk, "auto|on|off",
     "mount as a block device, through a loop device if need be; root only (default auto)"},
    {"fsname", Takes::kValue, SetFsname, "NAME", "the source to show in the mount table"},
    {"subtype", Takes::kValue, AcceptSubtype, "", ""},
    {"remount", Takes::kNothing, Set<&M::remount, true>, "",
     "change ro, rw, nodev, nosuid, noexec and the atime words of a mounted filesystem"},
    // What the mount table shows, and a remount therefore repeats.
    {"user_id", Takes::kValue, Accept, "", ""},
    {"group_id", Takes::kValue, Accept, "", ""},
    {"blksize", Takes::kValue, Accept, "", ""},
    {"max_read", Takes::kValue, Accept, "", ""},
    // What mount(8) and /etc/fstab use and a helper has nothing to do for.
    {"defaults", Takes::kNothing, Accept, "", ""},
    {"user", Takes::kNothing, SetUser, "", ""},
    {"user", Takes::kValue, SetUser, "", ""},
    {"users", Takes::kNothing, SetUser, "", ""},
    {"nouser", Takes::kNothing, Accept, "", ""},
    {"owner", Takes::kNothing, SetUser, "", ""},
    {"group", Takes::kNothing, SetUser, "", ""},
    {"_netdev", Takes::kNothing, Accept, "", ""},
    {"nofail", Takes::kNothing, Accept, "", ""},
    {"auto", Takes::kNothing, Accept, "", ""},
    {"noauto", Takes::kNothing, Accept, "", ""},
    {"comment", Takes::kValue, Accept, "", ""},
    {"iversion", Takes::kNothing, Accept, "", ""},
    {"noiversion", Takes::kNothing, Accept, "", ""},
    {"mand", Takes::kNothing, Accept, "", ""},
    {"nomand", Takes::kNothing, Accept, "", ""},
    {"silent", Takes::kNothing, Accept, "", ""},
    {"loud", Takes::kNothing, Accept, "", ""},
    {"loop", Takes::kNothing, Accept, "", ""},
    {"loop", Takes::kValue, Accept, "", ""},
};

bool IsForUserSpaceOnly(std::string_view word) {
  return word.substr(0, 2) == "x-" || word.substr(0, 2) == "X-";
}

bool ApplyWord(std::string_view word, UnknownOption unknown, MountSettings* options,
               std::string* why) {
  const size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  const Takes takes = equals == std::string_view::npos ? Takes::kNothing : Takes::kValue;
  const std::string_view value =
      takes == Takes::kValue ? word.substr(equals + 1) : std::string_view();
  const OptionRow* other_form = nullptr;
  for (const OptionRow& row : kOptions) {
    if (row.name != name) continue;
    if (row.takes != takes) {
      other_form = &row;
      continue;
    }
    if (row.apply(options, value)) return true;
    *why = absl::StrCat("bad value in option '", std::string(word), "'");
    if (!row.value_help.empty())
      absl::StrAppend(why, ": use ", row.name.data(), "=", row.value_help.data());
    return false;
  }
  if (IsForUserSpaceOnly(word) || (other_form == nullptr && unknown == UnknownOption::kIgnore)) {
    return true;
  }
  *why = other_form == nullptr ? absl::StrCat("unknown option '", std::string(word), "'")
         : takes == Takes::kNothing
             ? absl::StrCat("option '", std::string(name), "' needs a value")
             : absl::StrCat("option '", std::string(name), "' takes no value");
  return false;
}

}  // namespace

bool ParseMountOptions(std::string_view list, UnknownOption unknown, MountSettings* options,
                       std::string* why) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    const std::string_view word = list.substr(0, comma);
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
    if (!word.empty() && !ApplyWord(word, unknown, options, why)) return false;
  }
  return true;
}

std::string MountOptionsHelp() {
  std::string text;
  for (const OptionRow& row : kOptions) {
    if (row.help.empty()) continue;
    std::string left(row.name);
    if (!row.value_help.empty()) left += "=" + std::string(row.value_help);
    absl::StrAppend(&text, absl::StrFormat("  %-34s %s\n", left, std::string(row.help)));
  }
  return text;
}

unsigned long MountFlags(const MountSettings& options) {
  unsigned long flags = 0;
  if (options.read_only) flags |= MS_RDONLY;
  if (options.nodev) flags |= MS_NODEV;
  if (options.nosuid) flags |= MS_NOSUID;
  if (options.noexec) flags |= MS_NOEXEC;
  if (options.sync) flags |= MS_SYNCHRONOUS;
  if (options.dirsync) flags |= MS_DIRSYNC;
  if (options.lazytime) flags |= MS_LAZYTIME;
  if (options.no_directory_atime) flags |= MS_NODIRATIME;
  if (options.atime == AtimeSetting::kNever) flags |= MS_NOATIME;
  if (options.atime == AtimeSetting::kRelative) flags |= MS_RELATIME;
  if (options.atime == AtimeSetting::kAlways) flags |= MS_STRICTATIME;
  return flags;
}

}  // namespace sluice
