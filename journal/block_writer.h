// SPDX-License-Identifier: Apache-2.0
//
// Writes block copies to their home places, many in flight. Shared by checkpoint and replay.
#ifndef SLUICE_JOURNAL_BLOCK_WRITER_H_
#define SLUICE_JOURNAL_BLOCK_WRITER_H_

#include <cstddef>
#include <span>

#include "base/error.h"
#include "base/units.h"
#include "block/device.h"

namespace sluice {

struct HomeBlock {
  BlockNumber home;
  std::byte* copy;  // kBlockSize bytes, kept alive by the caller
};

// Submits all of `blocks` (ascending by home; neighbours on the device go out in one request) and
// waits. kOk only if every one was written; the first error otherwise. Does not flush.
Error WriteHomeBlocks(Device* device, std::span<const HomeBlock> blocks, IoKind kind);

}  // namespace sluice

#endif  // SLUICE_JOURNAL_BLOCK_WRITER_H_
