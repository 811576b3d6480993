// SPDX-License-Identifier: Apache-2.0
//
// A transaction's lists while it is running: what its handles have filed. The counters that
// starting and stopping a handle touch (credits, open handles) belong to the journal, since only
// one transaction is running.
#ifndef SLUICE_JOURNAL_TRANSACTION_H_
#define SLUICE_JOURNAL_TRANSACTION_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/units.h"
#include "block/buffer_cache.h"

namespace sluice {

class OrderedData;

struct TransactionContents {
  // A dropped buffer stays listed, and one that was dropped and filed again is listed twice: its
  // JournalBuffer tells at commit. `filed` is the exact number.
  std::vector<BufferRef> buffers;
  int filed = 0;
  // Freed metadata blocks, each with its buffer if the journal had state for it.
  absl::flat_hash_map<BlockNumber, BufferRef> revokes;
  // Buffers of revoked blocks that were journaled again: older versions need not go home.
  std::vector<BufferRef> retired;
  std::vector<std::shared_ptr<OrderedData>> ordered;
  std::vector<std::function<void(Error)>> callbacks;
};

// Thread-safe; its mutex is a leaf, taken under a buffer's and under the journal's.
class Transaction {
 public:
  explicit Transaction(Tid tid) : tid_(tid) {}

  Tid tid() const { return tid_; }

  // Files a buffer; cancels the block's revoke if there is one.
  void File(const BufferRef& buffer) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes a filed buffer out again.
  void Unfile() ABSL_LOCKS_EXCLUDED(mutex_);
  // False if the block is revoked already. `buffer` may be null.
  bool AddRevoke(BlockNumber block, BufferRef buffer) ABSL_LOCKS_EXCLUDED(mutex_);
  void AddOrdered(std::shared_ptr<OrderedData> data) ABSL_LOCKS_EXCLUDED(mutex_);
  void AddCallback(std::function<void(Error)> callback) ABSL_LOCKS_EXCLUDED(mutex_);

  int filed() ABSL_LOCKS_EXCLUDED(mutex_);
  int revokes() ABSL_LOCKS_EXCLUDED(mutex_);
  // Empties the lists; for the commit thread, once no handle is open.
  TransactionContents Take() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const Tid tid_;
  Mutex mutex_;
  TransactionContents contents_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<OrderedData*> ordered_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_JOURNAL_TRANSACTION_H_
