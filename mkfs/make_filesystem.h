// SPDX-License-Identifier: Apache-2.0
//
// Writes a new filesystem. Order: the places of all superblocks are zeroed and flushed, so that
// nothing older is found there; then everything else; flush; the superblock's copies and at last
// the superblock; flush. Interrupted anywhere, no superblock is left that would be believed.
#ifndef SLUICE_MKFS_MAKE_FILESYSTEM_H_
#define SLUICE_MKFS_MAKE_FILESYSTEM_H_

#include <functional>
#include <string>

#include "base/error.h"
#include "block/device.h"
#include "mkfs/layout.h"

namespace sluice {

struct MkfsReport {
  MkfsLayout layout;    // valid when MakeFilesystem returned kOk
  std::string problem;  // with kInvalid: one line for a person
};

// Called now and then with how many of how many bytes are written. May be empty.
using MkfsProgress = std::function<void(uint64_t done, uint64_t total)>;

// Makes a filesystem as `options` say. Blocks. kInvalid: nothing was written, report->problem says
// why; else the device's error (kNoSpace: the host of a sparse image is full). `report` is not
// null.
Error MakeFilesystem(Device* device, const MkfsOptions& options, MkfsReport* report);

// The second half, for who has planned and shown the layout already.
Error WriteFilesystem(Device* device, const MkfsOptions& options, const MkfsLayout& layout,
                      const MkfsProgress& progress);

}  // namespace sluice

#endif  // SLUICE_MKFS_MAKE_FILESYSTEM_H_
