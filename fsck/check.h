// SPDX-License-Identifier: Apache-2.0
//
// Checks a whole image against the format and against itself: a second opinion that shares the
// on-disk structures with the filesystem, and the journal's replay, and nothing else.
//
// Reads only what is in use, on the caller's thread: a tiny image in memory takes some tens of
// microseconds. Memory: 16 bytes per inode ever used, 4 KiB per 128 MiB group that holds data, 160
// bytes per directory, and the largest directory up to 64 MiB. Every number from the image is
// checked before it is used; nothing in it can make the check loop, crash, or use more memory than
// that.
#ifndef SLUICE_FSCK_CHECK_H_
#define SLUICE_FSCK_CHECK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "block/device.h"
#include "format/superblock.h"
#include "fsck/finding.h"
#include "journal/replay.h"

namespace sluice {

enum class CheckPass : uint8_t { kInodes = 1, kDirectories = 2, kBitmaps = 3 };

struct CheckOptions {
  // Findings kept with their text; more are only counted.
  size_t max_findings = 10000;
  // Looks for the paths of the inodes that are named in findings (another look at the directories).
  bool find_paths = false;
  // Called now and then. May be empty.
  std::function<void(CheckPass pass, uint64_t done, uint64_t total)> progress;
  // Asked now and then: true ends the check with kInterrupted. May be empty.
  std::function<bool()> cancelled;
};

struct CheckStats {
  uint64_t inodes = 0;  // used, the reserved ones included
  uint64_t directories = 0;
  uint64_t files = 0;
  uint64_t symlinks = 0;
  uint64_t special = 0;
  uint64_t orphans = 0;
  uint64_t names = 0;
  uint64_t extents = 0;
  uint64_t extent_blocks = 0;
  uint64_t directory_blocks = 0;
  uint64_t used_blocks = 0;
};

struct CheckReport {
  std::vector<Finding> findings;  // in the order they were made
  uint64_t errors = 0;            // all of them, also those not kept
  uint64_t notes = 0;
  // The check looked at everything. If not, a finding says what stood in the way.
  bool complete = false;
  // Why there is nothing to check, with an Error other than kOk.
  std::string message;

  format::Superblock super = {};  // as found; from a backup if there is a finding about it
  ReplayReport replay;
  CheckStats stats;

  bool clean() const { return complete && errors == 0; }
};

// The superblock, or a backup of it: for who must find the journal's device before the check. If
// the journal is external (format/journal_device.h), what the functions below call `device` is the
// image and its journal as one (journal/external_log.h); kNoDevice if it is the image alone.
Result<format::Superblock> FindSuperblock(Device* image, std::string* message);

// Checks without writing to `device`: a journal that is not empty is replayed in memory. kOk: see
// the report (not that the image is good). kUnknownFormat, kNewerFormat, kCorrupt (not even a copy
// of the superblock is good), kIo, kInterrupted: report->message says it for a person.
Error CheckImage(Device* device, const CheckOptions& options, CheckReport* report);

// Asked about each finding that can be repaired; true: do it.
using ApproveRepair = std::function<bool(const Finding&)>;

struct RepairOutcome {
  CheckReport before;  // findings with `repaired` as it turned out
  CheckReport after;   // of the check that followed the repairs; equal to `before` if there were
                       // none
  bool wrote_repairs = false;
};

// Replays the journal for good, checks, repairs what is approved, checks again, and, if that found
// no error, notes the check in the superblock at time `now` and marks the filesystem clean. Errors
// as of CheckImage (outcome->before.message), and those of the device's writes.
Error CheckAndRepair(Device* device, const CheckOptions& options, const ApproveRepair& approve,
                     Nanoseconds now, RepairOutcome* outcome);

// What the superblock and the group table say of themselves, without a check.
struct ImageSummary {
  format::Superblock super = {};
  bool log_empty = false;
  uint64_t used_inodes = 0;
  uint64_t used_blocks = 0;
  // Why a check is needed, for a person; empty: it is marked clean.
  std::string reason;
  // A check is needed only because the journal has not been replayed.
  bool only_replay = false;
  std::string message;  // with an Error other than kOk
};

// Errors as of CheckImage. Writes nothing.
Error SummarizeImage(Device* device, ImageSummary* summary);

// Replays the journal for good and marks the filesystem clean. For an image whose summary says
// only_replay. kCorrupt: the journal is damaged; nothing was written.
Error ReplayOnly(Device* device, Nanoseconds now, ReplayReport* replay, std::string* problem);

}  // namespace sluice

#endif  // SLUICE_FSCK_CHECK_H_
