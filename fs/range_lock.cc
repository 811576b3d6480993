// SPDX-License-Identifier: Apache-2.0
#include "fs/range_lock.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "journal/journal.h"

namespace sluice {

RangeLock::Token::Token(Token&& other) noexcept
    : lock_(std::exchange(other.lock_, nullptr)), id_(other.id_) {}

RangeLock::Token& RangeLock::Token::operator=(Token&& other) noexcept {
  if (this != &other) {
    Release();
    lock_ = std::exchange(other.lock_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

RangeLock::Token::~Token() { Release(); }

void RangeLock::Token::Release() {
  if (lock_ != nullptr) std::exchange(lock_, nullptr)->Release(id_);
}

RangeLock::~RangeLock() {
  MutexLock lock(&mutex_);
  SLUICE_CHECK(held_.empty());
}

bool RangeLock::Conflicts(const Range& range) const {
  return std::any_of(held_.begin(), held_.end(), [&range](const Held& held) {
    const bool overlap = held.range.start < range.end && range.start < held.range.end;
    return overlap && (held.range.mode == Mode::kExclusive || range.mode == Mode::kExclusive);
  });
}

Result<RangeLock::Token> RangeLock::TryAcquire(Attempt& attempt, uint64_t start, uint64_t end,
                                               Mode mode) {
  const Range range{start, end, mode};
  MutexLock lock(&mutex_);
  const bool queues = mode == Mode::kShared && exclusive_waiters_ > 0;
  if (queues || Conflicts(range)) return attempt.Block([this, range] { return Wait(range); });
  Token token;
  token.lock_ = this;
  token.id_ = next_id_++;
  held_.push_back({token.id_, range});
  return token;
}

Error RangeLock::Wait(const Range& range) {
  SLUICE_CHECK(!Journal::ThreadHasHandle());
  MutexLock lock(&mutex_);
  const bool exclusive = range.mode == Mode::kExclusive;
  if (exclusive) ++exclusive_waiters_;
  while (Conflicts(range) || (!exclusive && exclusive_waiters_ > 0)) released_.Wait(&mutex_);
  if (exclusive && --exclusive_waiters_ == 0) released_.SignalAll();
  return Error::kOk;
}

void RangeLock::Release(uint64_t id) {
  MutexLock lock(&mutex_);
  auto entry =
      std::find_if(held_.begin(), held_.end(), [id](const Held& held) { return held.id == id; });
  SLUICE_CHECK(entry != held_.end());
  *entry = held_.back();
  held_.pop_back();
  released_.SignalAll();
}

}  // namespace sluice
