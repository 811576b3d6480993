// SPDX-License-Identifier: Apache-2.0
//
// mkfs.sluicefs: the command line, what is refused, and what is said.
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "block/file_device.h"
#include "block/image_lock.h"
#include "format/debug_string.h"
#include "journal/external_log.h"
#include "mkfs/existing.h"
#include "mkfs/journal_target.h"
#include "mkfs/make_filesystem.h"
#include "mkfs/size_text.h"

namespace sluice {
namespace {

constexpr char kDescription[] =
    "Makes a sluicefs filesystem in an image file or on a block device.\n"
    "\n"
    "With SIZE a missing file is created, and an existing one gets that size; without it the size\n"
    "of the file or device is used. SIZE takes K, M, G, T (powers of 1024); a number alone counts\n"
    "KiB, as mke2fs has it. The smallest filesystem is 16 MiB, the smallest journal 4 MiB.\n"
    "The root directory belongs to the caller.";

struct Arguments {
  std::string image;
  std::string size_text;
  std::string uuid_text = "random";
  std::string journal_text;
  std::string journal_device;  // of -J device=
  std::string features;
  std::optional<uint64_t> size;
  int force = 0;
  bool dry_run = false;
  bool quiet = false;
  bool json = false;
  bool reproducible = false;
  MkfsOptions options;
};

[[nodiscard]] bool Complain(const std::string& text) {
  std::fprintf(stderr, "mkfs.sluicefs: %s\n", text.c_str());
  return false;
}

void DeclareOptions(CLI::App* app, Arguments* arguments) {
  MkfsOptions& options = arguments->options;
  app->add_option("-L", options.label, "volume label, at most 64 bytes")->type_name("LABEL");
  app->add_option("-U", arguments->uuid_text, "UUID of the filesystem (default: random)")
      ->type_name("UUID|random");
  app->add_option("-N", options.inodes, "number of inodes")->type_name("INODES");
  app->add_option("-i", options.bytes_per_inode, "bytes per inode (default: 16384)")
      ->type_name("BYTES");
  app->add_option("-J", arguments->journal_text,
                  "size of the journal, MiB unless it has a suffix (default: by the\n"
                  "filesystem's size, at most 128); or the device that it is on, made by\n"
                  "-O journal_dev")
      ->type_name("size=SIZE|device=PATH");
  app->add_option("-O", arguments->features,
                  "journal_dev: make IMAGE the journal of a filesystem still to be made")
      ->type_name("journal_dev");
  app->add_option("-m", options.reserved_percent, "percent reserved for root (default: 5)")
      ->type_name("PERCENT");
  app->add_flag("-n", arguments->dry_run, "say what would be made, write nothing");
  app->add_flag("-F", arguments->force,
                "overwrite a filesystem or partition table; given twice, also a device that\n"
                "looks mounted. A mounted sluicefs is always refused");
  app->add_flag("-q", arguments->quiet, "print errors only");
  app->add_flag("--prealloc", options.write_everything,
                "write the whole image, so that it never has to grow in its host");
  app->add_flag("--json", arguments->json, "say what was made as JSON");
  app->add_flag("--reproducible", arguments->reproducible,
                "fixed seeds, UUID unless -U gives one, root as owner, and the time of\n"
                "SOURCE_DATE_EPOCH (default: 0): the same image each time");
  app->add_option("IMAGE", arguments->image, "image file or block device")->required();
  app->add_option("SIZE", arguments->size_text, "size of the filesystem");
}

[[nodiscard]] bool ReadJournal(Arguments* arguments, MkfsOptions* options) {
  const std::string& text = arguments->journal_text;
  if (text.empty()) return true;
  constexpr std::string_view kDevice = "device=";
  if (text.rfind(kDevice, 0) == 0) {
    arguments->journal_device = text.substr(kDevice.size());
    return !arguments->journal_device.empty() || Complain("-J device= needs a path");
  }
  constexpr std::string_view kKey = "size=";
  if (text.rfind(kKey, 0) != 0) {
    return Complain("-J takes size=SIZE or device=PATH, not '" + text + "'");
  }
  const auto bytes = ParseSize(std::string_view(text).substr(kKey.size()), uint64_t{1} << 20);
  if (!bytes || *bytes < kBlockSize) return Complain("bad journal size '" + text + "'");
  options->journal_blocks = *bytes >> kBlockShift;
  return true;
}

[[nodiscard]] bool RandomBytes(void* bytes, size_t size) {
  if (::getrandom(bytes, size, 0) == static_cast<ssize_t>(size)) return true;
  return Complain("no random numbers from the system");
}

[[nodiscard]] bool ReadIdentity(const Arguments& arguments, MkfsOptions* options) {
  if (arguments.uuid_text != "random") {
    if (uuid_parse(arguments.uuid_text.c_str(), options->uuid.data()) != 0) {
      return Complain("bad UUID '" + arguments.uuid_text + "'");
    }
  } else if (!arguments.reproducible) {
    uuid_generate_random(options->uuid.data());
  }
  if (arguments.reproducible) {
    const char* epoch = std::getenv("SOURCE_DATE_EPOCH");
    int64_t seconds = 0;
    if (epoch != nullptr && (!absl::SimpleAtoi(epoch, &seconds) || seconds < 0 ||
                             seconds > INT64_MAX / 1'000'000'000)) {
      return Complain("bad SOURCE_DATE_EPOCH");
    }
    options->time = seconds * 1'000'000'000;
    return true;
  }
  options->time = Clock::System()->WallTime();
  options->root_uid = ::getuid();
  options->root_gid = ::getgid();
  uint64_t seeds[3];
  if (!RandomBytes(seeds, sizeof(seeds))) return false;
  options->checksum_seed = seeds[0];
  options->hash_seed = seeds[1];
  options->log_incarnation = seeds[2] != 0 ? seeds[2] : 1;
  return true;
}

[[nodiscard]] bool ReadArguments(Arguments* arguments) {
  if (!arguments->size_text.empty()) {
    arguments->size = ParseSize(arguments->size_text, 1024);
    if (!arguments->size) return Complain("bad size '" + arguments->size_text + "'");
  }
  if (!arguments->features.empty() && arguments->features != "journal_dev") {
    return Complain("-O takes journal_dev, not '" + arguments->features + "'");
  }
  return ReadJournal(arguments, &arguments->options) &&
         ReadIdentity(*arguments, &arguments->options);
}

// The image as it is before anything is done.
struct Target {
  bool exists = false;
  bool is_device = false;
  uint64_t size = 0;  // bytes that it has or will have
};

[[nodiscard]] bool InspectTarget(const Arguments& arguments, Target* target) {
  const std::string& image = arguments.image;
  struct stat status;
  if (::stat(image.c_str(), &status) != 0) {
    if (errno != ENOENT) return Complain(image + ": " + std::strerror(errno));
    if (!arguments.size) {
      return Complain(image + ": no such file; give a size to create it");
    }
    target->size = *arguments.size;
    return true;
  }
  target->exists = true;
  target->is_device = S_ISBLK(status.st_mode);
  if (S_ISDIR(status.st_mode)) return Complain(image + ": is a directory");
  if (!target->is_device && !S_ISREG(status.st_mode)) {
    return Complain(image + ": neither a regular file nor a block device");
  }
  target->size = static_cast<uint64_t>(status.st_size);
  if (target->is_device) {
    const auto device = OpenFileDevice(image, {.read_only = true});
    if (!device.ok()) {
      return Complain(absl::StrCat(image, ": ", std::string(ErrorText(device.error()))));
    }
    target->size = (*device)->size();
  } else if (arguments.size) {
    target->size = *arguments.size;
  }
  return true;
}

[[nodiscard]] bool MayOverwrite(const Arguments& arguments) {
  const std::string use = DescribeUse(arguments.image);
  if (!use.empty() && arguments.force < 2) return Complain(arguments.image + " is " + use);
  const std::string contents = DescribeContents(arguments.image);
  if (!contents.empty() && arguments.force == 0) {
    return Complain(arguments.image + " contains " + contents + "; use -F to overwrite it");
  }
  return true;
}

std::string UuidOf(const MkfsLayout& layout) { return format::UuidText(layout.super.fixed.uuid); }

void PrintText(const Arguments& arguments, const MkfsLayout& layout) {
  const format::Geometry& geometry = layout.geometry;
  const uint64_t reserved = layout.super.fixed.reserved_blocks;
  std::printf("%s: %s%s, %ju blocks of 4096 bytes in %u group%s\n", arguments.image.c_str(),
              arguments.dry_run ? "would become " : "",
              SizeText(geometry.block_count() << kBlockShift).c_str(),
              static_cast<uintmax_t>(geometry.block_count()), geometry.group_count(),
              geometry.group_count() == 1 ? "" : "s");
  std::printf("UUID %s, label \"%s\"\n", UuidOf(layout).c_str(), arguments.options.label.c_str());
  std::printf("%ju inodes, journal of %s, %ju blocks reserved for root\n",
              static_cast<uintmax_t>(geometry.inode_count()),
              SizeText(layout.journal_blocks() << kBlockShift).c_str(),
              static_cast<uintmax_t>(reserved));
  if (layout.dropped_blocks != 0) {
    std::printf("%ju blocks at the end are too few for a group and stay unused\n",
                static_cast<uintmax_t>(layout.dropped_blocks));
  }
}

void PrintJson(const Arguments& arguments, const MkfsLayout& layout) {
  const format::Geometry& geometry = layout.geometry;
  const nlohmann::json json = {
      {"image", arguments.image},
      {"written", !arguments.dry_run},
      {"uuid", UuidOf(layout)},
      {"label", arguments.options.label},
      {"block_size", kBlockSize},
      {"blocks", geometry.block_count()},
      {"groups", geometry.group_count()},
      {"inodes", geometry.inode_count()},
      {"inodes_per_group", geometry.inodes_per_group()},
      {"flex_group_size", geometry.groups_per_flex()},
      {"journal_blocks", layout.journal_blocks()},
      {"journal_runs", layout.journal.size()},
      {"orphan_file_blocks", layout.orphan_file.count},
      {"free_blocks", layout.free_blocks()},
      {"reserved_blocks", uint64_t{layout.super.fixed.reserved_blocks}},
      {"unused_blocks", layout.dropped_blocks},
  };
  std::printf("%s\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

std::string WriteProblem(Error error, const Arguments& arguments, uint64_t size) {
  switch (error) {
    case Error::kNoSpace:
      return arguments.image + ": no space left on the filesystem that holds it";
    case Error::kFileTooLarge:
      return absl::StrCat(arguments.image, ": the filesystem that holds it cannot have a file of ",
                          SizeText(size));
    default:
      return absl::StrCat(arguments.image, ": ", std::string(ErrorText(error)));
  }
}

MkfsProgress TerminalProgress(const Arguments& arguments) {
  if (arguments.quiet || arguments.json || ::isatty(STDERR_FILENO) == 0) return {};
  return [last = -1](uint64_t done, uint64_t total) mutable {
    const int percent = static_cast<int>(done * 100 / total);
    if (percent == last) return;
    last = percent;
    std::fprintf(stderr, "\rwriting: %3d %%%s", percent, done == total ? "\n" : "");
  };
}

Error OpenAndWrite(const Arguments& arguments, JournalTarget* journal, const MkfsLayout& layout) {
  if (!EraseSignatures(arguments.image)) return Error::kIo;
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, OpenFileDevice(arguments.image, {}));
  if (arguments.options.write_everything) {
    // Finds out at once whether there is room, and lets the host choose contiguous space.
    const Error error = Preallocate(arguments.image, 0, device->size());
    if (error != Error::kOk && error != Error::kNotSupported) return error;
  }
  std::unique_ptr<Device> joined;
  if (journal != nullptr) {
    ASSIGN_OR_RETURN(joined, journal->ClaimAndJoin(device.get(), layout));
  }
  return WriteFilesystem(joined != nullptr ? joined.get() : device.get(), arguments.options, layout,
                         TerminalProgress(arguments));
}

[[nodiscard]] bool Write(const Arguments& arguments, const Target& target, JournalTarget* journal,
                         const MkfsLayout& layout) {
  if (!target.is_device && (arguments.size || !target.exists)) {
    const Error error = CreateImageFile(arguments.image, target.size);
    if (error != Error::kOk) {
      if (!target.exists) ::unlink(arguments.image.c_str());
      return Complain(WriteProblem(error, arguments, target.size));
    }
  }
  const Error error = OpenAndWrite(arguments, journal, layout);
  if (error == Error::kOk) return true;
  if (!target.exists) ::unlink(arguments.image.c_str());
  return Complain(WriteProblem(error, arguments, target.size));
}

// False if the image may not be written; `lock` is empty if it does not exist yet.
[[nodiscard]] bool LockTarget(const Arguments& arguments, const Target& target,
                              std::optional<ImageLock>* lock) {
  if (!target.exists) return true;
  std::string why;
  *lock = ImageLock::Acquire(arguments.image,
                             arguments.dry_run ? ImageLockMode::kShared : ImageLockMode::kExclusive,
                             &why);
  return lock->has_value() ? MayOverwrite(arguments) : Complain(why);
}

Error WriteJournalDevice(const Arguments& arguments, const Target& target, std::string* why) {
  if (!target.is_device && (arguments.size || !target.exists)) {
    RETURN_IF_ERROR(CreateImageFile(arguments.image, target.size));
  }
  if (!EraseSignatures(arguments.image)) return Error::kIo;
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, OpenFileDevice(arguments.image, {}));
  return FormatJournalDevice(device.get(), arguments.options.uuid, arguments.options.time, why);
}

// -O journal_dev.
[[nodiscard]] bool MakeJournalDevice(const Arguments& arguments) {
  Target target;
  std::optional<ImageLock> lock;
  if (!InspectTarget(arguments, &target) || !LockTarget(arguments, target, &lock)) return false;
  if (!arguments.dry_run) {
    std::string why;
    const Error error = WriteJournalDevice(arguments, target, &why);
    if (error != Error::kOk) {
      if (!target.exists) ::unlink(arguments.image.c_str());
      return Complain(why.empty() ? WriteProblem(error, arguments, target.size)
                                  : arguments.image + ": " + why);
    }
  }
  if (!arguments.quiet) {
    std::printf("%s: %sa journal device of %s\n", arguments.image.c_str(),
                arguments.dry_run ? "would become " : "", SizeText(target.size).c_str());
  }
  return true;
}

[[nodiscard]] bool Make(const Arguments& arguments) {
  Target target;
  std::optional<ImageLock> lock;
  if (!InspectTarget(arguments, &target) || !LockTarget(arguments, target, &lock)) return false;
  MkfsOptions options = arguments.options;
  std::optional<JournalTarget> journal;
  if (!arguments.journal_device.empty()) {
    std::string why;
    journal = JournalTarget::Open(arguments.journal_device, arguments.force > 0, arguments.dry_run,
                                  &options, &why);
    if (!journal) return Complain(why);
  }
  // A size of 0 that was asked for is too small, not "all".
  if (arguments.size) options.size = std::max<uint64_t>(*arguments.size, 1);
  std::string why;
  const Result<MkfsLayout> layout = PlanLayout(target.size, options, &why);
  if (!layout.ok()) return Complain(arguments.image + ": " + why);
  JournalTarget* const external = journal ? &*journal : nullptr;
  if (!arguments.dry_run && !Write(arguments, target, external, *layout)) return false;
  if (arguments.json) {
    PrintJson(arguments, *layout);
  } else if (!arguments.quiet) {
    PrintText(arguments, *layout);
  }
  return true;
}

int Main(int argc, char** argv) {
  CLI::App app(kDescription, "mkfs.sluicefs");
  app.set_version_flag("-V,--version", "mkfs.sluicefs " SLUICEFS_VERSION);
  Arguments arguments;
  DeclareOptions(&app, &arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  }
  if (!ReadArguments(&arguments)) return 1;
  if (arguments.features.empty() ? !Make(arguments) : !MakeJournalDevice(arguments)) return 1;
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) { return sluice::Main(argc, argv); }
