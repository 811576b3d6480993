// SPDX-License-Identifier: Apache-2.0
//
// What the journal knows about a metadata buffer. All of it is guarded by the buffer's mutex.
//
// A buffer's versions: the live bytes belong to the newest transaction that edited it
// (`modified_tid`). While that is the committing transaction's and not copied yet, an edit by the
// next one first puts the old bytes aside (`frozen`). The newest committed version is what the log
// holds and the home place may lack (`checkpoint_tid`).
#ifndef SLUICE_JOURNAL_JOURNAL_BUFFER_H_
#define SLUICE_JOURNAL_JOURNAL_BUFFER_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "block/buffer_cache.h"

namespace sluice {

// Eight bytes that the sealer set in a copy: where, and what.
struct SealPatch {
  uint16_t offset;
  uint64_t bytes;  // as in memory
};
using SealPatches = std::vector<SealPatch>;

class JournalBuffer : public BufferAttachment {
 public:
  Tid modified_tid = 0;    // newest transaction that edited the live bytes
  Tid filed_tid = 0;       // on this transaction's list and not copied yet; 0: on none
  Tid frozen_tid = 0;      // transaction whose version `frozen` is; 0: none
  Tid logging_tid = 0;     // copied for this transaction, which is not durable yet; 0: none
  Tid checkpoint_tid = 0;  // newest durable transaction whose version is not home yet; 0: home
  bool writing = false;    // a write to the home place is in flight
  AlignedBuffer frozen;
  SealPatches seal;  // turns the bytes of the newest durable version into the bytes as logged

  // The journal needs nothing of the buffer any more.
  bool Idle() const {
    return filed_tid == 0 && frozen_tid == 0 && logging_tid == 0 && checkpoint_tid == 0 && !writing;
  }

  void Freeze(const std::byte* live) {
    frozen = AlignedBuffer(kBlockSize);
    std::memcpy(frozen.data(), live, kBlockSize);
    frozen_tid = filed_tid;
  }
};

// The journal's state of `buffer`, null if there is none.
inline JournalBuffer* JournalStateOf(Buffer* buffer) ABSL_SHARED_LOCKS_REQUIRED(buffer->mutex()) {
  return static_cast<JournalBuffer*>(buffer->attachment());
}

}  // namespace sluice

#endif  // SLUICE_JOURNAL_JOURNAL_BUFFER_H_
