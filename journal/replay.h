// SPDX-License-Identifier: Apache-2.0
//
// Replay of a log that was not emptied: three passes from the tail, after jbd2's recovery.c. Scan
// finds the last complete transaction, revoke collects what must not be replayed, replay writes
// the newest images home. Everything is validated before a byte is written; replay is idempotent.
#ifndef SLUICE_JOURNAL_REPLAY_H_
#define SLUICE_JOURNAL_REPLAY_H_

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/units.h"
#include "block/device.h"
#include "format/geometry.h"
#include "journal/log_area.h"

namespace sluice {

struct ReplayReport {
  bool needed = false;        // the log was not empty
  uint64_t transactions = 0;  // replayed
  uint64_t blocks = 0;        // images written home
  uint64_t revoked = 0;       // images skipped
  Tid last_tid = 0;           // of the last replayed transaction
};

// Brings `device` to the state of the last committed transaction and empties the log: images
// written, flush, new incarnation in the log's superblock, flush. `log->state` must have been read
// and is updated. For a read-only mount or `fsck -n`, give an overlay device (block/
// overlay_device.h): nothing reaches the image. kCorrupt: the log is damaged in the middle (a
// record that is not the last is bad although later ones are valid, an image that fails its
// checksum, a block outside the image): then nothing has been written, and `problem`, if not null,
// says what and where. Other errors leave the log as it was, so that replay can be tried again;
// kNoSpace: the image is sparse and cannot grow (`problem` says so).
Result<ReplayReport> Replay(Device* device, const format::Geometry& geometry, LogArea* log,
                            std::string* problem = nullptr);

}  // namespace sluice

#endif  // SLUICE_JOURNAL_REPLAY_H_
