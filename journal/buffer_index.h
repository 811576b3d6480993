// SPDX-License-Identifier: Apache-2.0
//
// The buffers that the journal has state for, by block number: what RevokeBlock looks up, and what
// keeps them in memory. A block that is freed and used again within one transaction has two
// buffers for a while: the newer one is found, the older one is only kept.
#ifndef SLUICE_JOURNAL_BUFFER_INDEX_H_
#define SLUICE_JOURNAL_BUFFER_INDEX_H_

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "base/units.h"
#include "block/buffer_cache.h"

namespace sluice {

// Thread-safe; its mutex is a leaf, taken under a buffer's mutex.
class BufferIndex {
 public:
  void Insert(const BufferRef& buffer) ABSL_LOCKS_EXCLUDED(mutex_);
  void Erase(Buffer* buffer) ABSL_LOCKS_EXCLUDED(mutex_);
  // The newest buffer of `block`; null if the journal knows none.
  BufferRef Find(BlockNumber block) ABSL_LOCKS_EXCLUDED(mutex_);
  // Empties the index.
  std::vector<BufferRef> TakeAll() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Mutex mutex_;
  absl::flat_hash_map<BlockNumber, BufferRef> newest_ ABSL_GUARDED_BY(mutex_);
  std::vector<BufferRef> displaced_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_JOURNAL_BUFFER_INDEX_H_
