// SPDX-License-Identifier: Apache-2.0
//
// What was freed under which transaction, until that is durable (J4).
#ifndef SLUICE_ALLOC_PENDING_FREES_H_
#define SLUICE_ALLOC_PENDING_FREES_H_

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "base/units.h"

namespace sluice {

// Thread-safe.
template <typename T>
class PendingFrees {
 public:
  // True if this is the transaction's first: then the caller registers the commit callback that
  // will Take them.
  bool Add(Tid tid, T freed) {
    MutexLock lock(&mutex_);
    const auto [at, first] = by_tid_.try_emplace(tid);
    at->second.push_back(std::move(freed));
    return first;
  }

  std::vector<T> Take(Tid tid) {
    MutexLock lock(&mutex_);
    auto node = by_tid_.extract(tid);
    return node.empty() ? std::vector<T>() : std::move(node.mapped());
  }

 private:
  Mutex mutex_;
  absl::flat_hash_map<Tid, std::vector<T>> by_tid_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_ALLOC_PENDING_FREES_H_
