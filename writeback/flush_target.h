// SPDX-License-Identifier: Apache-2.0
//
// What the flusher may ask of a file; fs/ implements it, so that writeback/ never sees an inode.
#ifndef SLUICE_WRITEBACK_FLUSH_TARGET_H_
#define SLUICE_WRITEBACK_FLUSH_TARGET_H_

#include "base/error.h"
#include "base/units.h"
#include "block/device.h"

namespace sluice {

class FlushTarget {
 public:
  virtual ~FlushTarget() = default;
  // Starts writing dirty pages, at most about `max_pages`; never waits for the device. Returns
  // pages started.
  virtual size_t StartWriteback(size_t max_pages, IoKind kind) = 0;
  // Blocks until the pages under writeback are written. `kind`: on whose behalf; what is still
  // queued as background is promoted unless that is kBackgroundWrite.
  virtual void WaitWriteback(IoKind kind) = 0;
  virtual size_t DirtyPages() = 0;
  // Grows with each write of its pages that fails; what failed is dirty again.
  virtual uint64_t WriteErrors() = 0;
};

}  // namespace sluice

#endif  // SLUICE_WRITEBACK_FLUSH_TARGET_H_
