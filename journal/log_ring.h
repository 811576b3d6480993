// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic of the log's ring. Log blocks 0 and 1 hold the journal superblock; the ring is
// [kLogFirst, blocks):
//
//        0  1  2 ........ tail ######### head ........ blocks-1
//     [ super ] (free     )(in use       )(free              )
//
// The head never catches up with the tail: at least one block stays free, so tail == head always
// means "nothing in use".
#ifndef SLUICE_JOURNAL_LOG_RING_H_
#define SLUICE_JOURNAL_LOG_RING_H_

#include <cstdint>

#include "base/check.h"
#include "format/log_record.h"

namespace sluice {

// Immutable; freely copied.
class LogRing {
 public:
  // `log_blocks` counts the superblock's two.
  explicit LogRing(uint64_t log_blocks) : size_(log_blocks - format::kLogFirst) {
    SLUICE_CHECK(log_blocks > format::kLogFirst + 1);
  }

  uint64_t size() const { return size_; }

  // The index `count` blocks after `index`.
  uint64_t Advance(uint64_t index, uint64_t count) const {
    return format::kLogFirst + (index - format::kLogFirst + count % size_) % size_;
  }

  // Blocks from `from` up to, not including, `to`; 0 if they are equal.
  uint64_t Distance(uint64_t from, uint64_t to) const {
    return to >= from ? to - from : size_ - (from - to);
  }

  // Blocks that may be written at `head` before it would meet `tail`.
  uint64_t Free(uint64_t tail, uint64_t head) const { return size_ - 1 - Distance(tail, head); }

 private:
  uint64_t size_;
};

}  // namespace sluice

#endif  // SLUICE_JOURNAL_LOG_RING_H_
