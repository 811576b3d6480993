// SPDX-License-Identifier: Apache-2.0
#include "journal/transaction.h"

#include <utility>

namespace sluice {

void Transaction::File(const BufferRef& buffer) {
  MutexLock lock(&mutex_);
  contents_.buffers.push_back(buffer);
  ++contents_.filed;
  if (contents_.revokes.empty()) return;
  const auto revoke = contents_.revokes.find(buffer->block());
  if (revoke == contents_.revokes.end()) return;
  if (revoke->second) contents_.retired.push_back(std::move(revoke->second));
  contents_.revokes.erase(revoke);
}

void Transaction::Unfile() {
  MutexLock lock(&mutex_);
  --contents_.filed;
}

bool Transaction::AddRevoke(BlockNumber block, BufferRef buffer) {
  MutexLock lock(&mutex_);
  return contents_.revokes.emplace(block, std::move(buffer)).second;
}

void Transaction::AddOrdered(std::shared_ptr<OrderedData> data) {
  MutexLock lock(&mutex_);
  if (ordered_.insert(data.get()).second) contents_.ordered.push_back(std::move(data));
}

void Transaction::AddCallback(std::function<void(Error)> callback) {
  MutexLock lock(&mutex_);
  contents_.callbacks.push_back(std::move(callback));
}

int Transaction::filed() {
  MutexLock lock(&mutex_);
  return contents_.filed;
}

int Transaction::revokes() {
  MutexLock lock(&mutex_);
  return static_cast<int>(contents_.revokes.size());
}

TransactionContents Transaction::Take() {
  MutexLock lock(&mutex_);
  return std::exchange(contents_, {});
}

}  // namespace sluice
