// SPDX-License-Identifier: Apache-2.0
//
// Reserved handles, after jbd2 (jbd2_journal_start_reserved, jbd2_journal_free_reserved).
//
// Reserved credits are part of the running transaction's outstanding ones, so that it is committed
// before it has no room for them; when it is, they are handed to the next. So whoever takes them
// out of `reserved_` has to say what becomes of them in `outstanding_`: a start leaves them there
// (they are the handle's now), a reservation given back takes them out. jbd2 forgot the second for
// seven years (SUSE bug 1169774); here J1 sees a single one.
#include <utility>

#include "base/check.h"
#include "journal/journal_impl.h"

namespace sluice {

ReservedHandle& ReservedHandle::operator=(ReservedHandle&& other) noexcept {
  if (this == &other) return *this;
  Free();
  journal_ = std::exchange(other.journal_, nullptr);
  type_ = other.type_;
  credits_ = other.credits_;
  return *this;
}

void ReservedHandle::Free() {
  if (Journal* const journal = std::exchange(journal_, nullptr)) {
    journal->impl_->FreeReserved(credits_);
  }
}

void Journal::Impl::ReserveLocked(int credits) {
  reserved_ += credits;
  reserved_overhead_ += TransactionOverhead(credits);
  outstanding_ += credits;
}

void Journal::Impl::UnreserveLocked(int credits) {
  SLUICE_CHECK(credits <= reserved_);
  reserved_ -= credits;
  reserved_overhead_ -= TransactionOverhead(credits);
  unreserved_.SignalAll();
  space_.SignalAll();
}

Result<Handle> Journal::Impl::StartReserved(Journal* journal, OpType type, Credits credits) {
  SLUICE_CHECK(!ThreadHasHandle());
  MutexLock lock(&mutex_);
  if (aborted_ || closed_) return Error::kReadOnly;
  if (running_ == nullptr) StartTransactionLocked();
  UnreserveLocked(CreditsOf(credits));
  AddHandleLocked();
  ++stats_.reserved_handles;
  return OpenHandle(journal, running_.get(), type, credits);
}

void Journal::Impl::FreeReserved(Credits credits) {
  MutexLock lock(&mutex_);
  ++stats_.reservations_unused;
  UnreserveLocked(CreditsOf(credits));
  if (running_ != nullptr && !options_.leak_reserved_credits) outstanding_ -= CreditsOf(credits);
}

Error Journal::Impl::WaitForReservations(int credits, int reserve) {
  SLUICE_CHECK(!ThreadHasHandle());  // J2
  // Nobody else is there to give any back.
  if (options_.manual) return Error::kBusy;
  MutexLock lock(&mutex_);
  while (!aborted_ && !closed_ && !stop_ && !ReservationsLeaveRoomLocked(credits, reserve)) {
    unreserved_.Wait(&mutex_);
  }
  return Error::kOk;
}

}  // namespace sluice
