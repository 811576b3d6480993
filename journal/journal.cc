// SPDX-License-Identifier: Apache-2.0
#include "journal/journal.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "journal/journal_impl.h"

namespace sluice {
namespace {

constexpr size_t kHomeBatchBlocks = 256;

}  // namespace

// --- Life --------------------------------------------------------------------------------------

Journal::Impl::Impl(const JournalOptions& options, Device* device, BufferCache* cache,
                    BlockSealer* sealer, LogArea log)
    : options_(options),
      device_(device),
      cache_(cache),
      sealer_(sealer),
      limits_(log.ring_blocks()),
      ring_(log.blocks()),
      log_(std::move(log)),
      writer_(device, &log_),
      seal_scratch_(kBlockSize),
      home_copies_(kHomeBatchBlocks * kBlockSize),
      next_tid_(std::max<Tid>(log_.state.tail_tid, 1)),
      durable_tid_(next_tid_ - 1),
      finished_tid_(durable_tid_) {}

Journal::Impl::~Impl() {
  StopThreads();
  std::vector<std::function<void(Error)>> orphans;
  {
    MutexLock lock(&mutex_);
    SLUICE_CHECK(open_handles_ == 0 && reserved_ == 0);
    if (running_ != nullptr) orphans = running_->Take().callbacks;
    for (auto& waiter : TakeWaitersLocked(~Tid{0})) orphans.push_back(std::move(waiter));
    running_ = nullptr;
  }
  for (const auto& orphan : orphans) orphan(Error::kShutdown);
  DetachAll();
}

void Journal::Impl::StartThreads() {
  if (options_.manual) return;
  commit_thread_ = std::thread([this] { CommitThread(); });
  checkpoint_thread_ = std::thread([this] { CheckpointThread(); });
}

void Journal::Impl::StopThreads() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    WakeAllLocked();
  }
  if (checkpoint_thread_.joinable()) checkpoint_thread_.join();
  if (commit_thread_.joinable()) commit_thread_.join();
}

void Journal::Impl::DetachAll() {
  for (const BufferRef& buffer : index_.TakeAll()) {
    MutexLock lock(&buffer->mutex());
    buffer->set_attachment(nullptr);
  }
}

void Journal::Impl::WakeAllLocked() {
  for (CondVar* cond : {&commit_work_, &drained_, &switched_, &space_, &unreserved_,
                        &checkpoint_work_, &finished_}) {
    cond->SignalAll();
  }
}

// --- Committing and waiting for it -------------------------------------------------------------

void Journal::Impl::RequestCommit(Tid tid, CommitReason reason) {
  {
    MutexLock lock(&mutex_);
    if (running_ == nullptr || running_->tid() > tid) return;
    RequestRunningLocked(reason);
    if (!options_.manual || open_handles_ > 0) return;
  }
  // The outcome reaches those who wait through the transaction.
  IgnoreError(CommitRunning(reason));
}

void Journal::Impl::WhenCommitted(Tid tid, std::function<void(Error)> done) {
  Error error;
  {
    MutexLock lock(&mutex_);
    if (finished_tid_ < tid && !aborted_) {
      waiters_.emplace(tid, std::move(done));
      return;
    }
    error = finished_tid_ >= tid ? Error::kOk : abort_error_;
  }
  done(error);
}

Error Journal::Impl::Commit(Tid tid, CommitReason reason) {
  SLUICE_CHECK(!ThreadHasHandle());  // J2
  if (options_.manual) {
    {
      MutexLock lock(&mutex_);
      if (finished_tid_ >= tid) return Error::kOk;
      if (running_ == nullptr || running_->tid() > tid) {
        return aborted_ ? abort_error_ : Error::kOk;
      }
    }
    return CommitRunning(reason);
  }
  RequestCommit(tid, reason);
  MutexLock lock(&mutex_);
  // A transaction that nobody has begun holds nothing to wait for.
  while (finished_tid_ < tid && tid < next_tid_ && !aborted_ && !stop_) finished_.Wait(&mutex_);
  if (finished_tid_ >= tid || tid >= next_tid_) return Error::kOk;
  return aborted_ ? abort_error_ : Error::kShutdown;
}

Error Journal::Impl::CommitAll(CommitReason reason) {
  Tid tid;
  {
    MutexLock lock(&mutex_);
    tid = next_tid_ - 1;
  }
  return Commit(tid, reason);
}

bool Journal::Impl::IsCommitted(Tid tid) const {
  MutexLock lock(&mutex_);
  return finished_tid_ >= tid;
}

Tid Journal::Impl::newest_tid() const {
  MutexLock lock(&mutex_);
  return next_tid_ - 1;
}

Tid Journal::Impl::running_tid() const {
  MutexLock lock(&mutex_);
  return running_ != nullptr && !locked_ ? running_->tid() : next_tid_;
}

Error Journal::Impl::Flush() {
  SLUICE_CHECK(!ThreadHasHandle());  // J2
  for (;;) {
    RETURN_IF_ERROR(CommitAll(CommitReason::kUnmount));
    Tid target;
    {
      MutexLock lock(&mutex_);
      target = durable_tid_;
    }
    RETURN_IF_ERROR(CheckpointUntil(Until::kHome, target, IoKind::kSyncWrite));
    ASSIGN_OR_RETURN(const bool empty, MarkEmpty());
    if (empty) return Error::kOk;
  }
}

Error Journal::Impl::Close() {
  {
    MutexLock lock(&mutex_);
    if (closed_) return close_result_;
    closed_ = true;
    space_.SignalAll();
    unreserved_.SignalAll();
  }
  const Error flushed = Flush();
  if (aborted()) FailEverything();
  StopThreads();
  MutexLock lock(&mutex_);
  // Without an abort, everything is committed, whatever is home.
  close_result_ = aborted_ ? Error::kIo : flushed;
  return close_result_;
}

// --- Failure -----------------------------------------------------------------------------------

void Journal::Impl::Abort(Error error, const std::string& reason) {
  SLUICE_CHECK(error != Error::kOk);
  std::function<void(Error, const std::string&)> on_abort;
  {
    MutexLock lock(&mutex_);
    if (std::exchange(aborting_, true)) return;
    on_abort = on_abort_;
  }
  // Before anybody who waits can learn of it: who got an error finds the filesystem stopped.
  LogError("journal stopped, nothing is written from now on: ", reason, " (",
           std::string(ErrorText(error)), ")");
  if (on_abort) on_abort(error, reason);
  MutexLock lock(&mutex_);
  aborted_ = true;
  abort_error_ = error;
  abort_reason_ = reason;
  WakeAllLocked();
}

bool Journal::Impl::aborted() const {
  MutexLock lock(&mutex_);
  return aborted_;
}

Error Journal::Impl::AbortErrorOr(Error error) const {
  MutexLock lock(&mutex_);
  return aborted_ ? abort_error_ : error;
}

void Journal::Impl::SetOnAbort(std::function<void(Error, const std::string&)> on_abort) {
  Error error = Error::kOk;
  std::string reason;
  {
    MutexLock lock(&mutex_);
    on_abort_ = on_abort;
    if (!aborted_) return;
    error = abort_error_;
    reason = abort_reason_;
  }
  on_abort(error, reason);
}

JournalStats Journal::Impl::stats() const {
  MutexLock lock(&mutex_);
  JournalStats stats = stats_;
  stats.committed_tid = finished_tid_;
  stats.running_tid = running_ != nullptr ? running_->tid() : 0;
  stats.reserved_credits = static_cast<uint64_t>(reserved_);
  return stats;
}

// --- The public face ---------------------------------------------------------------------------

Result<std::unique_ptr<Journal>> Journal::Open(const JournalOptions& options, Device* device,
                                               BufferCache* cache, BlockSealer* sealer,
                                               LogArea log) {
  // A log with something in it has to be replayed first.
  if (log.state.tail_block != 0) return Error::kInvalid;
  if (CreditLimits(log.ring_blocks()).max_handle <= 0) return Error::kInvalid;
  auto impl = std::make_unique<Impl>(options, device, cache, sealer, std::move(log));
  impl->StartThreads();
  return std::unique_ptr<Journal>(new Journal(std::move(impl)));
}

Journal::Journal(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Journal::~Journal() = default;

Result<Handle> Journal::TryStart(Attempt& attempt, OpType type, int blocks, int revokes) {
  return impl_->TryStart(this, attempt, type, {blocks, revokes}, {});
}

Result<Handle> Journal::TryStart(Attempt& attempt, OpType type, Credits credits, Credits reserve,
                                 ReservedHandle* reserved) {
  SLUICE_CHECK(!reserved->reserved() && reserve.blocks > 0);
  ASSIGN_OR_RETURN(Handle handle, impl_->TryStart(this, attempt, type, credits, reserve));
  reserved->journal_ = this;
  reserved->type_ = type;
  reserved->credits_ = reserve;
  return handle;
}

Result<Handle> Journal::StartReserved(ReservedHandle reserved) {
  SLUICE_CHECK(reserved.journal_ == this);
  ASSIGN_OR_RETURN(Handle handle, impl_->StartReserved(this, reserved.type_, reserved.credits_));
  reserved.journal_ = nullptr;
  return handle;
}
int Journal::max_handle_blocks() const { return impl_->max_handle_blocks(); }
void Journal::RequestCommit(Tid tid, CommitReason reason) { impl_->RequestCommit(tid, reason); }
void Journal::WhenCommitted(Tid tid, std::function<void(Error)> done) {
  impl_->WhenCommitted(tid, std::move(done));
}
Error Journal::Commit(Tid tid, CommitReason reason) { return impl_->Commit(tid, reason); }
Error Journal::CommitAll(CommitReason reason) { return impl_->CommitAll(reason); }
Error Journal::CommitNow(CommitReason reason) { return impl_->CommitAll(reason); }
Error Journal::CheckpointNow() { return impl_->CheckpointNow(); }
bool Journal::IsCommitted(Tid tid) const { return impl_->IsCommitted(tid); }
Tid Journal::running_tid() const { return impl_->running_tid(); }

Tid Journal::newest_tid() const { return impl_->newest_tid(); }
Error Journal::Flush() { return impl_->Flush(); }
Error Journal::Close() { return impl_->Close(); }
void Journal::Abort(Error error, const std::string& reason) { impl_->Abort(error, reason); }
bool Journal::aborted() const { return impl_->aborted(); }
void Journal::SetOnAbort(std::function<void(Error, const std::string&)> on_abort) {
  impl_->SetOnAbort(std::move(on_abort));
}
JournalStats Journal::stats() const { return impl_->stats(); }
const JournalOptions& Journal::options() const { return impl_->options(); }

}  // namespace sluice
