// SPDX-License-Identifier: Apache-2.0
//
// Checkpoint: writes what durable transactions hold to its home places, oldest first, and moves the
// log's tail behind them. Space counts as free only when the tail's move is durable.
//
// A buffer is on one transaction's list in effect: that of the newest durable version. When a later
// transaction with the same buffer becomes durable, the older one's entry is void. A buffer that
// the running or the committing transaction has modified again is left alone: its live bytes are
// not durable, and it will move to that transaction's list.
//
// A sparse image can meet a full host disk here, since home blocks may never have been written
// before (the log has been, so that commits go on). The log keeps everything, so this is not the
// end: who needs log space gets kNoSpace, and each further try writes again.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "journal/journal_impl.h"

namespace sluice {
namespace {

constexpr size_t kBatchBlocks = 256;

}  // namespace

// --- When --------------------------------------------------------------------------------------

// Due before the log is short, so that a handle seldom meets a full log. After a pass that freed
// nothing, another can only help once a further transaction is durable.
bool Journal::Impl::CheckpointIsDueLocked() const {
  if (aborted_ || closed_) return false;
  if (space_waiters_ > 0 && !HasSpaceLocked()) return true;
  return !checkpoints_.empty() && FreeLocked() < ring_.size() / 2 && futile_at_ != durable_tid_;
}

void Journal::Impl::CheckpointThread() {
  for (;;) {
    bool urgent;
    Tid target, durable;
    {
      MutexLock lock(&mutex_);
      while (!stop_ && !CheckpointIsDueLocked()) checkpoint_work_.Wait(&mutex_);
      if (stop_) return;
      urgent = space_waiters_ > 0;
      target = BackgroundTargetLocked();
      durable = durable_tid_;
    }
    // Failures abort the journal, which ends this loop's work; but for a full host, which is told
    // to those who wait, and tried again when others come or something more is durable.
    Tid stuck_on = 0;
    bool released = false;
    if (urgent) {
      released = CheckpointUntil(Until::kSpace, 0, IoKind::kSyncWrite) == Error::kOk;
    } else {
      IgnoreError(CheckpointPass(target, IoKind::kBackgroundWrite, &stuck_on, &released));
    }
    MutexLock lock(&mutex_);
    futile_at_ = released ? 0 : durable;
  }
}

// The newest transaction to write home so that three quarters of the log become free.
Tid Journal::Impl::BackgroundTargetLocked() const {
  for (const auto& checkpoint : checkpoints_) {
    if (ring_.Free(checkpoint->log_start, head_) >= ring_.size() / 4 * 3) return checkpoint->tid;
  }
  return durable_tid_;
}

Error Journal::Impl::CheckpointNow() {
  SLUICE_CHECK(!ThreadHasHandle());  // J2
  Tid stuck_on = 0;
  bool released = false;
  return CheckpointPass(~Tid{0}, IoKind::kSyncWrite, &stuck_on, &released);
}

Error Journal::Impl::CheckpointUntil(Until until, Tid up_to, IoKind kind) {
  for (;;) {
    Tid target;
    {
      MutexLock lock(&mutex_);
      if (aborted_) return abort_error_;
      if (until == Until::kSpace) {
        if (HasSpaceLocked()) return Error::kOk;
        target = BackgroundTargetLocked();
      } else {
        if (checkpoints_.empty() || checkpoints_.front()->tid > up_to) return Error::kOk;
        target = up_to;
      }
    }
    Tid stuck_on = 0;
    bool released = false;
    const Error error = CheckpointPass(target, kind, &stuck_on, &released);
    if (error != Error::kOk && !(error == Error::kNoSpace && released)) return error;
    // Nothing stuck and nothing released: the committing transaction holds the space, and gives
    // back what it does not use when it ends.
    if (!released) RETURN_IF_ERROR(Commit(stuck_on, CommitReason::kLogSpace));
    if (!released && stuck_on == 0) RETURN_IF_ERROR(CommitAll(CommitReason::kLogSpace));
  }
}

// --- A pass ------------------------------------------------------------------------------------

Error Journal::Impl::CheckpointPass(Tid up_to, IoKind kind, Tid* stuck_on, bool* released) {
  std::vector<std::shared_ptr<Checkpoint>> work;
  {
    MutexLock lock(&mutex_);
    while (checkpointing_now_) finished_.Wait(&mutex_);
    if (aborted_) return abort_error_;
    checkpointing_now_ = true;
    for (const auto& checkpoint : checkpoints_) {
      if (checkpoint->tid <= up_to) work.push_back(checkpoint);
    }
  }
  Error result = Error::kOk;
  for (const auto& checkpoint : work) {
    result = WriteHome(checkpoint.get(), kind, stuck_on);
    if (result != Error::kOk) break;
  }
  const bool host_full = result == Error::kNoSpace;
  Error fatal = host_full ? Error::kOk : result;
  // What is home is released even if something newer is not.
  if (fatal == Error::kOk) fatal = ReleaseLog(released);
  if (fatal != Error::kOk) {
    result = fatal;
    Abort(fatal, "a checkpoint write or flush failed");
  } else if (host_full || *released) {
    // A pass that released nothing may not have come to the block that had no room.
    NoteHost(host_full);
  }
  MutexLock lock(&mutex_);
  checkpointing_now_ = false;
  finished_.SignalAll();
  return result;
}

void Journal::Impl::NoteHost(bool full) {
  {
    MutexLock lock(&mutex_);
    if (full) ++host_full_passes_;
    if (full) space_.SignalAll();
    if (std::exchange(host_full_, full) == full) return;
  }
  if (full) {
    LogError("the image cannot grow, its host is full: changes are kept in the journal as long as ",
             "it has room");
  } else {
    LogInfo("the image can grow again");
  }
}

Error Journal::Impl::WriteHome(Checkpoint* checkpoint, IoKind kind, Tid* stuck_on) {
  Tid durable;
  {
    MutexLock lock(&mutex_);
    durable = durable_tid_;
  }
  std::vector<BufferRef> left;
  std::span<const BufferRef> buffers = checkpoint->buffers;
  while (!buffers.empty()) {
    const size_t count = std::min(kBatchBlocks, buffers.size());
    RETURN_IF_ERROR(
        WriteBatch(checkpoint->tid, buffers.first(count), kind, durable, &left, stuck_on));
    buffers = buffers.subspan(count);
  }
  checkpoint->buffers = std::move(left);
  return Error::kOk;
}

Error Journal::Impl::WriteBatch(Tid tid, std::span<const BufferRef> batch, IoKind kind, Tid durable,
                                std::vector<BufferRef>* left, Tid* stuck_on) {
  {
    // Before any buffer is marked as being written: who sees the mark waits for this batch.
    MutexLock lock(&mutex_);
    if (aborted_) return abort_error_;
    ++batches_started_;
  }
  std::vector<HomeBlock> writes;
  std::vector<Buffer*> written;
  for (const BufferRef& buffer : batch) {
    std::byte* copy = home_copies_.data() + writes.size() * kBlockSize;
    switch (CopyForHome(tid, durable, buffer.get(), copy, stuck_on)) {
      case CopyHome::kDone:
        break;
      case CopyHome::kLater:
        left->push_back(buffer);
        break;
      case CopyHome::kCopied:
        writes.push_back({buffer->block(), copy});
        written.push_back(buffer.get());
        break;
    }
  }
  const Error result = writes.empty() ? Error::kOk : WriteHomeCopies(writes, kind);
  for (Buffer* buffer : written) EndHomeWrite(tid, buffer, result == Error::kOk);
  MutexLock lock(&mutex_);
  ++batches_done_;
  stats_.checkpointed_blocks += writes.size();
  finished_.SignalAll();
  return result;
}

Error Journal::Impl::WriteHomeCopies(std::span<const HomeBlock> writes, IoKind kind) {
  HomeWrites batch(writes, kind);
  {
    MutexLock lock(&mutex_);
    if (checkpoint_waiters_ > 0) batch.MarkUrgent();
    home_writes_ = &batch;
  }
  const Error result = batch.Write(device_);
  MutexLock lock(&mutex_);
  home_writes_ = nullptr;
  return result;
}

Journal::Impl::CheckpointUrgency::CheckpointUrgency(Impl* journal) : journal_(journal) {
  {
    MutexLock lock(&journal->mutex_);
    ++journal->checkpoint_waiters_;
    if (journal->home_writes_ == nullptr) return;
    journal->home_writes_->MarkUrgent();
  }
  journal->device_->Promote();
}

Journal::Impl::CheckpointUrgency::~CheckpointUrgency() {
  MutexLock lock(&journal_->mutex_);
  --journal_->checkpoint_waiters_;
}

Journal::Impl::CopyHome Journal::Impl::CopyForHome(Tid tid, Tid durable, Buffer* buffer,
                                                   std::byte* copy, Tid* stuck_on) {
  MutexLock lock(&buffer->mutex());
  JournalBuffer* state = JournalStateOf(buffer);
  if (state == nullptr || state->checkpoint_tid != tid) return CopyHome::kDone;
  if (state->modified_tid > durable) {
    *stuck_on = std::max(*stuck_on, state->modified_tid);
    return CopyHome::kLater;
  }
  std::memcpy(copy, buffer->data(), kBlockSize);
  for (const SealPatch& patch : state->seal) {
    std::memcpy(copy + patch.offset, &patch.bytes, sizeof(patch.bytes));
  }
  state->writing = true;
  return CopyHome::kCopied;
}

void Journal::Impl::EndHomeWrite(Tid tid, Buffer* buffer, bool written) {
  MutexLock lock(&buffer->mutex());
  JournalBuffer* state = JournalStateOf(buffer);
  state->writing = false;
  // Otherwise a later version became durable in the meantime, or the block was freed.
  if (written && state->checkpoint_tid == tid) state->checkpoint_tid = 0;
  DetachIfIdle(buffer);
}

// --- The tail ----------------------------------------------------------------------------------

Journal::Impl::Tail Journal::Impl::TailBehindLocked(size_t skip) const {
  if (skip < checkpoints_.size()) {
    return {checkpoints_[skip]->log_start, checkpoints_[skip]->tid};
  }
  return {head_, durable_tid_ + 1};
}

Error Journal::Impl::ReleaseLog(bool* released) {
  size_t done = 0;
  Tail tail;
  {
    MutexLock lock(&mutex_);
    while (done < checkpoints_.size() && checkpoints_[done]->buffers.empty()) ++done;
    if (done == 0) return Error::kOk;
    tail = TailBehindLocked(done);
  }
  Point(JournalPoint::kCheckpointWritten);
  RETURN_IF_ERROR(FlushDevice(JournalPoint::kCheckpointFlushed));
  log_.state.tail_block = tail.index;
  log_.state.tail_tid = tail.tid;
  RETURN_IF_ERROR(log_.WriteState(device_));
  Point(JournalPoint::kTailWritten);
  RETURN_IF_ERROR(FlushDevice(JournalPoint::kTailFlushed));
  MutexLock lock(&mutex_);
  checkpoints_.erase(checkpoints_.begin(), checkpoints_.begin() + static_cast<ptrdiff_t>(done));
  tail_ = tail.index;
  *released = true;
  space_.SignalAll();
  return Error::kOk;
}

// Both slots, see LogArea::WriteState.
Error Journal::Impl::WriteEmptyState(Tid next) {
  log_.state.incarnation = LogArea::NewIncarnation(log_.state.incarnation);
  log_.state.tail_block = 0;
  log_.state.tail_tid = next;
  for (uint64_t slot = 0; slot < format::kLogFirst; ++slot) {
    RETURN_IF_ERROR(log_.WriteState(device_));
    Point(JournalPoint::kTailWritten);
    RETURN_IF_ERROR(FlushDevice(JournalPoint::kTailFlushed));
  }
  return Error::kOk;
}

Result<bool> Journal::Impl::MarkEmpty() {
  Tid next;
  {
    MutexLock lock(&mutex_);
    while (committing_now_ || checkpointing_now_) finished_.Wait(&mutex_);
    if (aborted_) return abort_error_;
    if (!checkpoints_.empty()) return false;
    if (!log_live_) return true;
    committing_now_ = true;
    checkpointing_now_ = true;
    next = durable_tid_ + 1;
  }
  const Error result = WriteEmptyState(next);
  if (result != Error::kOk) Abort(result, "the log could not be marked empty");
  MutexLock lock(&mutex_);
  committing_now_ = false;
  checkpointing_now_ = false;
  log_live_ = result != Error::kOk;
  finished_.SignalAll();
  if (result != Error::kOk) return result;
  return true;
}

}  // namespace sluice
