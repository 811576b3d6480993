// SPDX-License-Identifier: Apache-2.0
//
// One step of a crash workload, and its text form, so that a whole workload is one line that can be
// read, generated and replayed:
//
//   mkdir A; create A/f; write A/f 0 4096; fsync A/f; rename A/f B/g
//
//   create P | mkdir P | symlink P TARGET | link P Q | unlink P | rmdir P
//   rename P Q | exchange P Q
//   write P OFFSET LENGTH | append P LENGTH | truncate P SIZE | chmod P OCTAL
//   fallocate P OFFSET LENGTH | fallocate_keep P OFFSET LENGTH (KEEP_SIZE)
//   punch P OFFSET LENGTH | zero P OFFSET LENGTH (ZERO_RANGE)
//   mmap P OFFSET LENGTH: a store through a shared mapping that the kernel writes back at once,
//     which it does in whole pages, cut off at the end of the file
//   open @h P | tmpfile @h DIRECTORY | close @h
//   fsync P | fdatasync P | sync
//
// Paths start at the root, without a slash; "/" is the root itself. @h is a descriptor opened
// before and stands for a path wherever a file is wanted (but not for a new name).
#ifndef SLUICE_TESTS_CRASH_OPERATION_H_
#define SLUICE_TESTS_CRASH_OPERATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::crash {

enum class OpKind : uint8_t {
  kCreate,
  kMkdir,
  kSymlink,
  kLink,
  kUnlink,
  kRmdir,
  kRename,
  kExchange,  // the last one that changes names
  kWrite,
  kAppend,
  kMmap,
  kTruncate,
  kFallocate,
  kFallocateKeep,
  kPunch,
  kZero,
  kChmod,
  kOpen,
  kTmpfile,
  kClose,
  kFsync,
  kFdatasync,
  kSync,
};

struct Operation {
  OpKind kind;
  std::vector<std::string> names;  // paths, descriptors, a target: as in the text
  uint64_t offset = 0;
  uint64_t value = 0;  // a length, size or mode
  std::string text;
};

// Nothing if the text is not a workload.
std::optional<std::vector<Operation>> ParseWorkload(std::string_view text);

// Directory part ("/" if there is none) and last component.
std::string DirectoryOf(std::string_view path);
std::string NameOf(std::string_view path);
std::vector<std::string> Components(std::string_view path);

inline bool IsDescriptor(std::string_view name) { return !name.empty() && name[0] == '@'; }

}  // namespace sluice::crash

#endif  // SLUICE_TESTS_CRASH_OPERATION_H_
