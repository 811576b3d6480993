// SPDX-License-Identifier: Apache-2.0
//
// Commit: lock and drain the running transaction, start its ordered data, copy its blocks and
// write them to the log, flush, write the commit record, flush, tell everybody.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "journal/journal_impl.h"

namespace sluice {

// --- When --------------------------------------------------------------------------------------

void Journal::Impl::CommitThread() {
  for (;;) {
    bool failed;
    {
      MutexLock lock(&mutex_);
      while (!stop_ && !CommitIsDueLocked()) WaitForCommitWorkLocked();
      if (stop_) return;
      failed = aborted_;
    }
    if (failed) {
      FailEverything();
    } else {
      // The outcome reaches those who wait through the transaction.
      IgnoreError(CommitRunning(CommitReason::kInterval));
    }
  }
}

bool Journal::Impl::CommitIsDueLocked() {
  if (aborted_) return running_ != nullptr || !waiters_.empty();
  return running_ != nullptr && (requested_ || Now() - started_at_ >= options_.commit_interval);
}

void Journal::Impl::WaitForCommitWorkLocked() {
  if (running_ == nullptr || aborted_) {
    commit_work_.Wait(&mutex_);
    return;
  }
  const Nanoseconds left = started_at_ + options_.commit_interval - Now();
  commit_work_.WaitWithTimeout(&mutex_, absl::Nanoseconds(std::max<Nanoseconds>(left, 0)));
}

void Journal::Impl::RequestRunningLocked(CommitReason reason) {
  ++stats_.requests_by_reason[static_cast<int>(reason)];
  if (requested_) return;
  requested_ = true;
  reason_ = reason;
  requested_at_ = Now();
  commit_work_.Signal();
}

// --- The sequence ------------------------------------------------------------------------------

Error Journal::Impl::CommitRunning(CommitReason reason) {
  Committing commit;
  if (!LockAndDrain(reason, &commit)) return Error::kOk;
  const Error result = WriteTransaction(&commit);
  if (result == Error::kOk) MakeDurable(&commit);
  Finish(&commit, result);
  return result;
}

bool Journal::Impl::LockAndDrain(CommitReason reason, Committing* commit) {
  SLUICE_CHECK(!ThreadHasHandle());  // J2
  {
    MutexLock lock(&mutex_);
    while (committing_now_) finished_.Wait(&mutex_);
    if (running_ == nullptr) return false;
    if (!requested_) RequestRunningLocked(reason);
    committing_now_ = true;
    locked_ = true;
    commit->locked_at = Now();
  }
  Point(JournalPoint::kLocked);
  {
    MutexLock lock(&mutex_);
    while (open_handles_ > 0) drained_.Wait(&mutex_);
    SwitchLocked(commit);
  }
  Point(JournalPoint::kSwitched);
  return true;
}

void Journal::Impl::SwitchLocked(Committing* commit) {
  CheckCreditsLocked();
  committing_blocks_ = LogBlocksNeededLocked();
  SLUICE_CHECK(FreeLocked() >= static_cast<uint64_t>(committing_blocks_));  // J5
  stats_.handles_max = std::max(stats_.handles_max, handles_joined_);
  commit->tid = running_->tid();
  commit->contents = running_->Take();
  commit->log_start = head_;
  commit->reason = reason_;
  commit->requested_at = requested_at_;
  commit->switched_at = Now();
  running_ = nullptr;
  locked_ = false;
  switched_.SignalAll();
}

// J1. No handle is open, and what is reserved is the next transaction's: what is left must be what
// the log record will need.
void Journal::Impl::CheckCreditsLocked() {
  outstanding_ -= reserved_;
  const int owed = limits_.overhead + running_->filed() + RevokeBlocks(revokes_charged_);
  if (outstanding_ == owed) return;
  ++stats_.credit_leaks;
  LogError("journal: transaction ", running_->tid(), " has ", outstanding_,
           " credits outstanding but needs ", owed, "; corrected");
#ifndef NDEBUG
  SLUICE_CHECK(options_.report_credit_leaks);
#endif
  outstanding_ = owed;
}

// Exactly what LogWriter will write.
int Journal::Impl::LogBlocksNeededLocked() {
  const int images = running_->filed();
  return images + TransactionOverhead(images) + RevokeBlocks(running_->revokes());
}

Error Journal::Impl::WriteTransaction(Committing* commit) {
  const bool stopped = aborted();
  const Nanoseconds started = Now();
  if (!stopped) {
    for (const auto& data : commit->contents.ordered) data->StartOrderedWrite();
  }
  commit->data_ns = Now() - started;

  // While the data is on its way.
  Error result = stopped ? Error::kIo : WriteRecord(commit);
  if (result == Error::kOk) Point(JournalPoint::kRecordWritten);

  const Nanoseconds waiting = Now();
  if (!stopped) {
    for (const auto& data : commit->contents.ordered) data->WaitOrderedWrite();
  }
  commit->data_ns += Now() - waiting;
  if (result == Error::kOk) {
    Point(JournalPoint::kDataWritten);
    result = FlushDevice(JournalPoint::kRecordFlushed);
  }
  if (result == Error::kOk && !aborted()) {
    result = writer_.WriteCommit(options_.clock->WallTime());
    if (result == Error::kOk) {
      Point(JournalPoint::kCommitWritten);
      result = FlushDevice(JournalPoint::kCommitFlushed);
    }
  }
  if (result != Error::kOk) Abort(result, "a log write or flush failed");
  return AbortErrorOr(result);
}

Error Journal::Impl::WriteRecord(Committing* commit) {
  RETURN_IF_ERROR(MarkLogLive(*commit));
  writer_.Begin(commit->tid, commit->log_start);
  std::vector<BlockNumber> revokes;
  revokes.reserve(commit->contents.revokes.size());
  for (const auto& [block, buffer] : commit->contents.revokes) revokes.push_back(block);
  std::sort(revokes.begin(), revokes.end());
  RETURN_IF_ERROR(writer_.AddRevokes(revokes));
  RETURN_IF_ERROR(WriteImages(commit));
  Point(JournalPoint::kCopied);
  return writer_.FinishRecord();
}

// The first transaction after the log was empty: its superblock must say where to begin. It is made
// durable by the flush before the commit record. The new incarnation makes sure that nothing an
// earlier life left in the ring can pass for part of this one.
Error Journal::Impl::MarkLogLive(const Committing& commit) {
  {
    MutexLock lock(&mutex_);
    if (log_live_) return Error::kOk;
    log_live_ = true;
  }
  log_.state.incarnation = LogArea::NewIncarnation(log_.state.incarnation);
  log_.state.tail_block = commit.log_start;
  log_.state.tail_tid = commit.tid;
  return log_.WriteState(device_);
}

Error Journal::Impl::FlushDevice(JournalPoint point) {
  if (options_.barrier) {
    RETURN_IF_ERROR(device_->Flush());
    MutexLock lock(&mutex_);
    ++stats_.flushes;
  }
  Point(point);
  return Error::kOk;
}

// --- Copies ------------------------------------------------------------------------------------

// Ascending by kind, since sealing a bitmap's copy gives the checksum that its group's descriptor
// carries; then by block.
Error Journal::Impl::WriteImages(Committing* commit) {
  std::vector<BufferRef>& buffers = commit->contents.buffers;
  std::sort(buffers.begin(), buffers.end(), [](const BufferRef& a, const BufferRef& b) {
    return std::pair(a->kind(), a->block()) < std::pair(b->kind(), b->block());
  });
  commit->logged.reserve(buffers.size());
  for (BufferRef& buffer : buffers) {
    ASSIGN_OR_RETURN(std::byte * copy, writer_.NextImage());
    if (!CopyOut(commit->tid, buffer.get(), copy)) continue;
    SealPatches seal = Seal(*buffer, copy);
    writer_.AddImage(buffer->block(), buffer->kind());
    commit->logged.push_back({std::move(buffer), std::move(seal)});
  }
  SLUICE_CHECK(commit->logged.size() == static_cast<size_t>(commit->contents.filed));
  return Error::kOk;
}

// False if the buffer was dropped from the transaction again, or has been copied already.
bool Journal::Impl::CopyOut(Tid tid, Buffer* buffer, std::byte* copy) {
  MutexLock lock(&buffer->mutex());
  JournalBuffer* state = JournalStateOf(buffer);
  if (state == nullptr) return false;
  if (state->frozen_tid == tid) {
    std::memcpy(copy, state->frozen.data(), kBlockSize);
    state->frozen = AlignedBuffer();
    state->frozen_tid = 0;
  } else if (state->filed_tid == tid) {
    std::memcpy(copy, buffer->data(), kBlockSize);
    state->filed_tid = 0;
  } else {
    return false;
  }
  state->logging_tid = tid;
  return true;
}

SealPatches Journal::Impl::Seal(const Buffer& buffer, std::byte* copy) {
  std::memcpy(seal_scratch_.data(), copy, kBlockSize);
  sealer_->Seal(buffer.block(), buffer.kind(), format::BlockSpan(copy, kBlockSize));
  SealPatches patches;
  for (uint16_t offset = 0; offset < kBlockSize; offset += sizeof(uint64_t)) {
    uint64_t before, after;
    std::memcpy(&before, seal_scratch_.data() + offset, sizeof(before));
    std::memcpy(&after, copy + offset, sizeof(after));
    if (before != after) patches.push_back({offset, after});
  }
  return patches;
}

// --- Afterwards --------------------------------------------------------------------------------

void Journal::Impl::MakeDurable(Committing* commit) {
  RetireOlderVersions(*commit);
  FileForCheckpoint(commit);
}

// Blocks that this transaction freed: their older versions are needed no more. After this, the
// callbacks may give the blocks to somebody else (J6, see journal_impl.h).
void Journal::Impl::RetireOlderVersions(const Committing& commit) {
  bool writing = false;
  for (const auto& [block, buffer] : commit.contents.revokes) {
    if (buffer) RetireBuffer(commit.tid, buffer.get(), &writing);
  }
  for (const BufferRef& buffer : commit.contents.retired) {
    RetireBuffer(commit.tid, buffer.get(), &writing);
  }
  if (!writing) return;
  const CheckpointUrgency urgency(this);
  MutexLock lock(&mutex_);
  const uint64_t batch = batches_started_;
  while (batches_done_ < batch) finished_.Wait(&mutex_);
}

void Journal::Impl::RetireBuffer(Tid tid, Buffer* buffer, bool* writing) {
  MutexLock lock(&buffer->mutex());
  JournalBuffer* state = JournalStateOf(buffer);
  if (state == nullptr) return;
  if (state->checkpoint_tid < tid) state->checkpoint_tid = 0;
  *writing |= state->writing;
  DetachIfIdle(buffer);
}

void Journal::Impl::FileForCheckpoint(Committing* commit) {
  auto checkpoint = std::make_shared<Checkpoint>();
  checkpoint->tid = commit->tid;
  checkpoint->log_start = commit->log_start;
  checkpoint->buffers.reserve(commit->logged.size());
  for (LoggedBuffer& logged : commit->logged) {
    {
      MutexLock lock(&logged.buffer->mutex());
      JournalBuffer* state = JournalStateOf(logged.buffer.get());
      state->logging_tid = 0;
      state->checkpoint_tid = commit->tid;
      state->seal = std::move(logged.seal);
    }
    checkpoint->buffers.push_back(std::move(logged.buffer));
  }
  std::sort(checkpoint->buffers.begin(), checkpoint->buffers.end(),
            [](const BufferRef& a, const BufferRef& b) { return a->block() < b->block(); });

  MutexLock lock(&mutex_);
  SLUICE_CHECK(writer_.log_blocks() == static_cast<uint64_t>(committing_blocks_));
  checkpoints_.push_back(std::move(checkpoint));
  head_ = ring_.Advance(commit->log_start, writer_.log_blocks());
  committing_blocks_ = 0;
  durable_tid_ = commit->tid;
  stats_.blocks_logged += commit->logged.size();
  stats_.log_blocks_written += writer_.log_blocks();
  if (CheckpointIsDueLocked()) checkpoint_work_.Signal();
  space_.SignalAll();
}

void Journal::Impl::Finish(Committing* commit, Error result) {
  for (const auto& callback : commit->contents.callbacks) callback(result);
  std::vector<std::function<void(Error)>> waiters;
  {
    MutexLock lock(&mutex_);
    if (result == Error::kOk) {
      finished_tid_ = commit->tid;
      CountCommitLocked(*commit);
      waiters = TakeWaitersLocked(commit->tid);
    } else if (options_.manual) {
      waiters = TakeWaitersLocked(~Tid{0});
    }
    committing_now_ = false;
    finished_.SignalAll();
  }
  for (const auto& waiter : waiters) waiter(result);
}

void Journal::Impl::CountCommitLocked(const Committing& commit) {
  const auto count = [](Nanoseconds spent, uint64_t* sum, uint64_t* max) {
    *sum += static_cast<uint64_t>(spent);
    *max = std::max(*max, static_cast<uint64_t>(spent));
  };
  const Nanoseconds now = Now();
  const Nanoseconds asked = commit.requested_at != 0 ? commit.requested_at : commit.locked_at;
  ++stats_.commits;
  ++stats_.commits_by_reason[static_cast<int>(commit.reason)];
  count(commit.switched_at - commit.locked_at, &stats_.locked_ns, &stats_.locked_max_ns);
  count(commit.data_ns, &stats_.flushing_ns, &stats_.flushing_max_ns);
  count(now - commit.switched_at - commit.data_ns, &stats_.logging_ns, &stats_.logging_max_ns);
  count(now - asked, &stats_.commit_ns, &stats_.commit_max_ns);
}

std::vector<std::function<void(Error)>> Journal::Impl::TakeWaitersLocked(Tid up_to) {
  std::vector<std::function<void(Error)>> taken;
  const auto end = waiters_.upper_bound(up_to);
  for (auto it = waiters_.begin(); it != end; ++it) taken.push_back(std::move(it->second));
  waiters_.erase(waiters_.begin(), end);
  return taken;
}

void Journal::Impl::FailEverything() {
  // With the journal aborted, this writes nothing and hands the error to the callbacks.
  IgnoreError(CommitRunning(CommitReason::kInterval));
  std::vector<std::function<void(Error)>> waiters;
  Error error;
  {
    MutexLock lock(&mutex_);
    waiters = TakeWaitersLocked(~Tid{0});
    error = abort_error_;
  }
  for (const auto& waiter : waiters) waiter(error);
}

}  // namespace sluice
