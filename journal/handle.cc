// SPDX-License-Identifier: Apache-2.0
//
// Handles: starting, editing, revoking, stopping. Nothing here waits but the closures given to the
// attempt, which run when the thread holds nothing.
#include <utility>

#include "base/check.h"
#include "journal/journal_impl.h"

namespace sluice {
namespace {

thread_local int open_handles_of_thread = 0;

}  // namespace

bool Journal::ThreadHasHandle() { return open_handles_of_thread > 0; }

BlockEdit::~BlockEdit() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (buffer_) buffer_->mutex().Unlock();
}

Handle::Handle(Handle&& other) noexcept { *this = std::move(other); }

Handle& Handle::operator=(Handle&& other) noexcept {
  if (this == &other) return *this;
  Stop();
  journal_ = other.journal_;
  transaction_ = std::exchange(other.transaction_, nullptr);
  credits_ = other.credits_;
  revoke_credits_ = other.revoke_credits_;
  type_ = other.type_;
  revokes_used_ = other.revokes_used_;
  revokes_asked_ = other.revokes_asked_;
  return *this;
}

Handle::~Handle() { Stop(); }

Tid Handle::tid() const {
  SLUICE_CHECK(open());
  return transaction_->tid();
}

// The mutex is released by the BlockEdit.
BlockEdit Handle::Edit(const BufferRef& buffer) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  SLUICE_CHECK(open());
  buffer->mutex().Lock();
  journal_->impl_->FileForEdit(this, buffer);
  return BlockEdit(buffer);
}

void Handle::Revoke(const BufferRef& buffer) {
  SLUICE_CHECK(open());
  journal_->impl_->Revoke(this, buffer->block(), buffer);
}

void Handle::RevokeBlock(BlockNumber block) {
  SLUICE_CHECK(open());
  journal_->impl_->Revoke(this, block, journal_->impl_->FindAttached(block));
}

void Handle::AddOrdered(std::shared_ptr<OrderedData> data) {
  SLUICE_CHECK(open());
  transaction_->AddOrdered(std::move(data));
}

void Handle::OnCommit(std::function<void(Error)> callback) {
  SLUICE_CHECK(open());
  transaction_->AddCallback(std::move(callback));
}

bool Handle::TryExtend(int blocks, int revokes) {
  SLUICE_CHECK(open());
  return journal_->impl_->TryExtend(this, blocks, revokes);
}

Error Handle::TryRestart(Attempt& attempt, int blocks, int revokes) {
  SLUICE_CHECK(open());
  return journal_->impl_->TryRestart(this, attempt, {blocks, revokes});
}

void Handle::Stop() {
  if (!open()) return;
  journal_->impl_->StopHandle(this);
  transaction_ = nullptr;
  --open_handles_of_thread;
}

Result<Handle> Journal::Impl::TryStart(Journal* journal, Attempt& attempt, OpType type,
                                       Credits credits, Credits reserve) {
  SLUICE_CHECK(!ThreadHasHandle());
  const int needed = CreditsOf(credits), later = CreditsOf(reserve);
  if (needed + later > limits_.max_handle || later > limits_.max_reserved) {
    return Error::kHandleTooLarge;
  }
  Transaction* transaction = nullptr;
  StartBlock block;
  Tid tid = 0;
  {
    MutexLock lock(&mutex_);
    if (aborted_ || closed_) return Error::kReadOnly;
    block = JoinLocked(needed, later);
    if (running_ != nullptr) tid = running_->tid();
    if (block == StartBlock::kNone) transaction = running_.get();
  }
  if (block != StartBlock::kNone) return attempt.Block(WaitFor(block, tid, needed, later));
  return OpenHandle(journal, transaction, type, credits);
}

Handle Journal::Impl::OpenHandle(Journal* journal, Transaction* transaction, OpType type,
                                 Credits credits) {
  Handle handle;
  handle.journal_ = journal;
  handle.transaction_ = transaction;
  handle.credits_ = credits.blocks;
  handle.revoke_credits_ = credits.revokes;
  handle.revokes_asked_ = credits.revokes;
  handle.type_ = type;
  ++open_handles_of_thread;
  return handle;
}

Journal::Impl::StartBlock Journal::Impl::JoinLocked(int credits, int reserve) {
  const StartBlock block = WhyNotLocked(credits, reserve);
  if (block != StartBlock::kNone) return block;
  if (running_ == nullptr) StartTransactionLocked();
  if (reserve > 0) ReserveLocked(reserve);
  outstanding_ += credits;
  AddHandleLocked();
  return block;
}

Journal::Impl::StartBlock Journal::Impl::WhyNotLocked(int credits, int reserve) {
  if (running_ != nullptr && locked_) {
    ++stats_.start_blocked_locked;
    return StartBlock::kLocked;
  }
  // What would not fit into a new transaction either is not helped by a commit.
  if (!ReservationsLeaveRoomLocked(credits, reserve)) {
    ++stats_.start_blocked_reserved;
    return StartBlock::kReserved;
  }
  if (running_ != nullptr && outstanding_ + credits + reserve > limits_.max_transaction) {
    ++stats_.start_blocked_full;
    RequestRunningLocked(CommitReason::kFull);
    return StartBlock::kFull;
  }
  // J5: a commit never waits for space, so what joins must have it beforehand.
  if (!options_.ignore_log_space && !HasSpaceLocked()) {
    ++stats_.start_blocked_space;
    checkpoint_work_.Signal();
    return StartBlock::kSpace;
  }
  return StartBlock::kNone;
}

bool Journal::Impl::ReservationsLeaveRoomLocked(int credits, int reserve) const {
  return reserved_ + reserve <= limits_.max_reserved &&
         reserved_ + reserve + credits <= limits_.max_handle;
}

void Journal::Impl::StartTransactionLocked() {
  running_ = std::make_unique<Transaction>(next_tid_++);
  outstanding_ = limits_.overhead + reserved_;
  handles_joined_ = 0;
  revokes_charged_ = 0;
  requested_ = false;
  reason_ = CommitReason::kInterval;
  requested_at_ = 0;
  started_at_ = Now();
  commit_work_.Signal();
}

void Journal::Impl::AddHandleLocked() {
  ++open_handles_;
  ++handles_joined_;
  ++stats_.handles;
}

Error Journal::Impl::TryRestart(Handle* handle, Attempt& attempt, Credits credits) {
  Journal* const journal = handle->journal_;
  const OpType type = handle->type_;
  const Tid tid = handle->tid();
  handle->Stop();
  {
    MutexLock lock(&mutex_);
    if (running_ != nullptr && running_->tid() == tid) RequestRunningLocked(CommitReason::kRestart);
  }
  ASSIGN_OR_RETURN(*handle, TryStart(journal, attempt, type, credits, {}));
  return Error::kOk;
}

// --- Waiting for a start -----------------------------------------------------------------------

std::function<Error()> Journal::Impl::WaitFor(StartBlock block, Tid tid, int credits, int reserve) {
  switch (block) {
    case StartBlock::kSpace:
      return [this] { return WaitForSpace(); };
    case StartBlock::kReserved:
      return [this, credits, reserve] { return WaitForReservations(credits, reserve); };
    default:
      return [this, tid] { return WaitForSwitch(tid); };
  }
}

Error Journal::Impl::WaitForSwitch(Tid tid) {
  SLUICE_CHECK(!ThreadHasHandle());  // J2
  if (options_.manual) {
    // How it ended is the next start's to tell.
    IgnoreError(CommitRunning(CommitReason::kFull));
    return Error::kOk;
  }
  MutexLock lock(&mutex_);
  while (!aborted_ && !stop_ && running_ != nullptr && running_->tid() == tid) {
    switched_.Wait(&mutex_);
  }
  return Error::kOk;
}

Error Journal::Impl::WaitForSpace() {
  SLUICE_CHECK(!ThreadHasHandle());  // J2
  if (options_.manual) {
    // Another failure has aborted the journal; the next start tells.
    const Error error = CheckpointUntil(Until::kSpace, 0, IoKind::kSyncWrite);
    return error == Error::kNoSpace ? error : Error::kOk;
  }
  const CheckpointUrgency urgency(this);
  MutexLock lock(&mutex_);
  ++space_waiters_;
  const uint64_t full_passes = host_full_passes_;
  while (!aborted_ && !closed_ && !stop_ && !HasSpaceLocked() && full_passes == host_full_passes_) {
    checkpoint_work_.Signal();
    space_.Wait(&mutex_);
  }
  --space_waiters_;
  return full_passes == host_full_passes_ || HasSpaceLocked() ? Error::kOk : Error::kNoSpace;
}

uint64_t Journal::Impl::FreeLocked() const { return ring_.Free(tail_, head_); }

// Room for what commits, for a whole transaction more, and for what reservations may add to it: a
// reserved handle starts without asking, and if it finds no transaction it begins one, which needs
// a commit record and descriptors of its own. The last term is for one more reservation.
bool Journal::Impl::HasSpaceLocked() const {
  return FreeLocked() >=
         static_cast<uint64_t>(committing_blocks_ + limits_.max_transaction + reserved_overhead_ +
                               TransactionOverhead(limits_.max_reserved));
}

void Journal::Impl::StopHandle(Handle* handle) {
  MutexLock lock(&mutex_);
  // Revoke records are charged in whole blocks; the handle asked for its share rounded up, which
  // is never less than what the sum grows by.
  const int owed = RevokeBlocks(revokes_charged_);
  revokes_charged_ += handle->revokes_used_;
  const int kept = RevokeBlocks(revokes_charged_) - owed;
  outstanding_ -= handle->credits_ + RevokeBlocks(handle->revokes_asked_) - kept;
  outstanding_ += options_.leak_credits_per_handle;
  if (--open_handles_ == 0 && locked_) drained_.Signal();
}

bool Journal::Impl::TryExtend(Handle* handle, int blocks, int revokes) {
  SLUICE_CHECK(blocks >= 0 && revokes >= 0);
  MutexLock lock(&mutex_);
  const int credits = blocks + RevokeBlocks(handle->revokes_asked_ + revokes) -
                      RevokeBlocks(handle->revokes_asked_);
  // A transaction that a reserved handle began may have room for that alone.
  if (locked_ || outstanding_ + credits > limits_.max_transaction || !HasSpaceLocked())
    return false;
  outstanding_ += credits;
  handle->credits_ += blocks;
  handle->revoke_credits_ += revokes;
  handle->revokes_asked_ += revokes;
  return true;
}

void Journal::Impl::FileForEdit(Handle* handle, const BufferRef& buffer) {
  JournalBuffer* state = JournalStateOf(buffer.get());
  const Tid tid = handle->transaction_->tid();
  if (state != nullptr && state->filed_tid == tid) return;
  SLUICE_CHECK(handle->credits_ > 0);
  --handle->credits_;
  if (state == nullptr) {
    auto fresh = std::make_unique<JournalBuffer>();
    state = fresh.get();
    buffer->set_attachment(std::move(fresh));
    index_.Insert(buffer);
  }
  // The committing transaction has not copied its version yet.
  if (state->filed_tid != 0) state->Freeze(buffer->data());
  state->filed_tid = tid;
  state->modified_tid = tid;
  handle->transaction_->File(buffer);
}

void Journal::Impl::DropFromRunning(Handle* handle, JournalBuffer* state) {
  if (state->filed_tid != handle->transaction_->tid()) return;
  state->filed_tid = 0;
  handle->transaction_->Unfile();
  ++handle->credits_;
}

void Journal::Impl::Revoke(Handle* handle, BlockNumber block, BufferRef buffer) {
  if (buffer) {
    MutexLock lock(&buffer->mutex());
    JournalBuffer* state = JournalStateOf(buffer.get());
    if (state != nullptr) {
      DropFromRunning(handle, state);
      DetachIfIdle(buffer.get());
    }
  }
  // The buffer goes on the list even if it has just been detached: it costs nothing, and whether an
  // older version waits to go home is looked at again when the transaction is durable.
  if (handle->transaction_->AddRevoke(block, std::move(buffer))) {
    SLUICE_CHECK(handle->revoke_credits_ > 0);
    --handle->revoke_credits_;
    ++handle->revokes_used_;
  }
  cache_->Forget(block);
}

void Journal::Impl::DetachIfIdle(Buffer* buffer) {
  const JournalBuffer* state = JournalStateOf(buffer);
  if (state == nullptr || !state->Idle()) return;
  buffer->set_attachment(nullptr);
  index_.Erase(buffer);
}

}  // namespace sluice
