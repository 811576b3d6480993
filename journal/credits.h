// SPDX-License-Identifier: Apache-2.0
//
// Credit arithmetic, after jbd2. A credit is one log block. A transaction may fill a third of the
// log: one third for the running, one for the committing, one for what waits to be checkpointed.
#ifndef SLUICE_JOURNAL_CREDITS_H_
#define SLUICE_JOURNAL_CREDITS_H_

#include <cstdint>

#include "format/log_record.h"

namespace sluice {

constexpr int CeilDiv(int value, int divisor) { return (value + divisor - 1) / divisor; }

// Log blocks that `revokes` revoke records take.
constexpr int RevokeBlocks(int revokes) {
  return CeilDiv(revokes, static_cast<int>(format::kRevokesPerBlock));
}

// Log blocks that a transaction of `blocks` images takes for descriptors and its commit record.
constexpr int TransactionOverhead(int blocks) {
  return 1 + CeilDiv(blocks, static_cast<int>(format::kTagsPerDescriptor));
}

struct CreditLimits {
  // `ring_blocks`: of the log without its superblock.
  constexpr explicit CreditLimits(uint64_t ring_blocks)
      : max_transaction(static_cast<int>(ring_blocks / 3)),
        overhead(TransactionOverhead(max_transaction)),
        max_handle(max_transaction - overhead),
        max_reserved(max_handle / 2) {}

  int max_transaction;  // blocks of the log a transaction may take, all counted
  int overhead;         // of these: the commit record and the descriptors of a full transaction
  // What one handle may ask for. Comparing against max_transaction instead would let in a handle
  // that never fits into a new transaction: an endless loop of commits.
  int max_handle;
  int max_reserved;  // credits of all reservations together
};

}  // namespace sluice

#endif  // SLUICE_JOURNAL_CREDITS_H_
