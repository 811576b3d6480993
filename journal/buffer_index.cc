// SPDX-License-Identifier: Apache-2.0
#include "journal/buffer_index.h"

#include <algorithm>
#include <utility>

namespace sluice {

void BufferIndex::Insert(const BufferRef& buffer) {
  MutexLock lock(&mutex_);
  BufferRef& newest = newest_[buffer->block()];
  if (newest) displaced_.push_back(std::move(newest));
  newest = buffer;
}

void BufferIndex::Erase(Buffer* buffer) {
  MutexLock lock(&mutex_);
  const auto found = newest_.find(buffer->block());
  if (found != newest_.end() && found->second.get() == buffer) {
    newest_.erase(found);
    return;
  }
  const auto displaced =
      std::find_if(displaced_.begin(), displaced_.end(),
                   [buffer](const BufferRef& ref) { return ref.get() == buffer; });
  if (displaced != displaced_.end()) displaced_.erase(displaced);
}

BufferRef BufferIndex::Find(BlockNumber block) {
  MutexLock lock(&mutex_);
  const auto found = newest_.find(block);
  return found != newest_.end() ? found->second : BufferRef();
}

std::vector<BufferRef> BufferIndex::TakeAll() {
  MutexLock lock(&mutex_);
  std::vector<BufferRef> all = std::move(displaced_);
  displaced_.clear();
  for (auto& [block, buffer] : newest_) all.push_back(std::move(buffer));
  newest_.clear();
  return all;
}

}  // namespace sluice
