// SPDX-License-Identifier: Apache-2.0
//
// The journal's inside. Three kinds of threads meet here:
//   - those that run operations: start and stop handles (handle.cc), wait for commits (journal.cc);
//   - the commit thread (commit.cc): drains the running transaction, logs it, makes it durable;
//   - the checkpoint thread (checkpoint.cc): writes durable blocks home and moves the log's tail.
//
// Locks: buffer mutex -> {transaction's lists, buffer index} and journal mutex -> transaction's
// lists. The journal mutex is never taken under a buffer's, nor the other way round. No lock is
// held across device I/O: the two long activities exclude each other where they must through
// `committing_now_` and `checkpointing_now_`.
//
// J6, why no block is reused under a checkpoint write: a freed block reaches the allocator in the
// OnCommit callback of the freeing transaction. Before callbacks run, the commit thread visits
// every block that the transaction revoked, under the buffer's mutex, and takes it off its
// checkpoint list; the checkpoint thread looks at that list's mark under the same mutex before it
// copies and marks the buffer as being written. So after the visit no write of the block starts;
// one that had started is seen, and its batch waited for. Until the freeing transaction is
// durable, the older version is still written home as usual, since a crash may still need it.
#ifndef SLUICE_JOURNAL_JOURNAL_IMPL_H_
#define SLUICE_JOURNAL_JOURNAL_IMPL_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "journal/block_writer.h"
#include "journal/buffer_index.h"
#include "journal/credits.h"
#include "journal/journal.h"
#include "journal/journal_buffer.h"
#include "journal/log_ring.h"
#include "journal/log_writer.h"
#include "journal/transaction.h"

namespace sluice {

inline int CreditsOf(const Credits& credits) {
  SLUICE_CHECK(credits.blocks >= 0 && credits.revokes >= 0);
  return credits.blocks + RevokeBlocks(credits.revokes);
}

class Journal::Impl {
 public:
  Impl(const JournalOptions& options, Device* device, BufferCache* cache, BlockSealer* sealer,
       LogArea log);
  ~Impl();

  void StartThreads();

  // Handles (handle.cc).
  // `reserve.blocks` may be 0: nothing is reserved.
  Result<Handle> TryStart(Journal* journal, Attempt& attempt, OpType type, Credits credits,
                          Credits reserve) ABSL_LOCKS_EXCLUDED(mutex_);
  Result<Handle> StartReserved(Journal* journal, OpType type, Credits credits)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void FreeReserved(Credits credits) ABSL_LOCKS_EXCLUDED(mutex_);
  Error TryRestart(Handle* handle, Attempt& attempt, Credits credits) ABSL_LOCKS_EXCLUDED(mutex_);
  void StopHandle(Handle* handle) ABSL_LOCKS_EXCLUDED(mutex_);
  bool TryExtend(Handle* handle, int blocks, int revokes) ABSL_LOCKS_EXCLUDED(mutex_);
  void FileForEdit(Handle* handle, const BufferRef& buffer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(buffer->mutex());
  void Revoke(Handle* handle, BlockNumber block, BufferRef buffer) ABSL_LOCKS_EXCLUDED(mutex_);
  BufferRef FindAttached(BlockNumber block) { return index_.Find(block); }
  int max_handle_blocks() const { return limits_.max_handle; }

  // Waiting (journal.cc).
  void RequestCommit(Tid tid, CommitReason reason) ABSL_LOCKS_EXCLUDED(mutex_);
  void WhenCommitted(Tid tid, std::function<void(Error)> done) ABSL_LOCKS_EXCLUDED(mutex_);
  Error Commit(Tid tid, CommitReason reason) ABSL_LOCKS_EXCLUDED(mutex_);
  Error CommitAll(CommitReason reason) ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsCommitted(Tid tid) const ABSL_LOCKS_EXCLUDED(mutex_);
  Tid running_tid() const ABSL_LOCKS_EXCLUDED(mutex_);
  Tid newest_tid() const ABSL_LOCKS_EXCLUDED(mutex_);
  Error Flush() ABSL_LOCKS_EXCLUDED(mutex_);
  Error Close() ABSL_LOCKS_EXCLUDED(mutex_);
  void Abort(Error error, const std::string& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  bool aborted() const ABSL_LOCKS_EXCLUDED(mutex_);
  void SetOnAbort(std::function<void(Error, const std::string&)> on_abort)
      ABSL_LOCKS_EXCLUDED(mutex_);
  Error CheckpointNow() ABSL_LOCKS_EXCLUDED(mutex_);
  JournalStats stats() const ABSL_LOCKS_EXCLUDED(mutex_);
  const JournalOptions& options() const { return options_; }

 private:
  enum class StartBlock { kNone, kLocked, kFull, kSpace, kReserved };

  // One buffer of a transaction that has been copied, and what its sealer changed.
  struct LoggedBuffer {
    BufferRef buffer;
    SealPatches seal;
  };
  // The transaction that is being committed: local to the commit thread.
  struct Committing {
    Tid tid = 0;
    uint64_t log_start = 0;
    TransactionContents contents;
    std::vector<LoggedBuffer> logged;
    CommitReason reason = CommitReason::kInterval;
    Nanoseconds requested_at = 0;  // 0: nobody asked
    Nanoseconds locked_at = 0;
    Nanoseconds switched_at = 0;
    Nanoseconds data_ns = 0;
  };
  // A durable transaction some of whose blocks may not be home. `buffers` belongs to who holds
  // `checkpointing_now_`.
  struct Checkpoint {
    Tid tid = 0;
    uint64_t log_start = 0;
    std::vector<BufferRef> buffers;  // ascending by block
  };
  struct Tail {
    uint64_t index;
    Tid tid;
  };

  // Handles.
  void AddHandleLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  StartBlock JoinLocked(int credits, int reserve) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  StartBlock WhyNotLocked(int credits, int reserve) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool ReservationsLeaveRoomLocked(int credits, int reserve) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void StartTransactionLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReserveLocked(int credits) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UnreserveLocked(int credits) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static Handle OpenHandle(Journal* journal, Transaction* transaction, OpType type,
                           Credits credits);
  std::function<Error()> WaitFor(StartBlock block, Tid tid, int credits, int reserve);
  Error WaitForReservations(int credits, int reserve) ABSL_LOCKS_EXCLUDED(mutex_);
  Error WaitForSwitch(Tid tid) ABSL_LOCKS_EXCLUDED(mutex_);
  Error WaitForSpace() ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasSpaceLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  uint64_t FreeLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void DropFromRunning(Handle* handle, JournalBuffer* state);

  // Commit.
  void CommitThread() ABSL_LOCKS_EXCLUDED(mutex_);
  bool CommitIsDueLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitForCommitWorkLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RequestRunningLocked(CommitReason reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Commits the running transaction, if there is one, on this thread.
  Error CommitRunning(CommitReason reason) ABSL_LOCKS_EXCLUDED(mutex_);
  bool LockAndDrain(CommitReason reason, Committing* commit) ABSL_LOCKS_EXCLUDED(mutex_);
  void SwitchLocked(Committing* commit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckCreditsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int LogBlocksNeededLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Error WriteTransaction(Committing* commit) ABSL_LOCKS_EXCLUDED(mutex_);
  Error WriteRecord(Committing* commit) ABSL_LOCKS_EXCLUDED(mutex_);
  Error WriteImages(Committing* commit);
  Error MarkLogLive(const Committing& commit) ABSL_LOCKS_EXCLUDED(mutex_);
  Error FlushDevice(JournalPoint point) ABSL_LOCKS_EXCLUDED(mutex_);
  static bool CopyOut(Tid tid, Buffer* buffer, std::byte* copy);
  SealPatches Seal(const Buffer& buffer, std::byte* copy);
  void MakeDurable(Committing* commit) ABSL_LOCKS_EXCLUDED(mutex_);
  void RetireOlderVersions(const Committing& commit) ABSL_LOCKS_EXCLUDED(mutex_);
  void RetireBuffer(Tid tid, Buffer* buffer, bool* writing);
  void FileForCheckpoint(Committing* commit) ABSL_LOCKS_EXCLUDED(mutex_);
  void Finish(Committing* commit, Error result) ABSL_LOCKS_EXCLUDED(mutex_);
  void CountCommitLocked(const Committing& commit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::function<void(Error)>> TakeWaitersLocked(Tid up_to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After an abort: ends the running transaction and everybody's waiting with the error.
  void FailEverything() ABSL_LOCKS_EXCLUDED(mutex_);

  // Checkpoint.
  void CheckpointThread() ABSL_LOCKS_EXCLUDED(mutex_);
  bool CheckpointIsDueLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Writes home what it can of the durable transactions up to `up_to`, oldest first, and frees the
  // log space of those that are done. `stuck_on`: the newest uncommitted transaction whose commit
  // would let more be freed; 0 if none. `released` if log space was freed.
  Error CheckpointPass(Tid up_to, IoKind kind, Tid* stuck_on, bool* released)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // After a pass: whether a home block had no room on the image's host.
  void NoteHost(bool full) ABSL_LOCKS_EXCLUDED(mutex_);
  Error WriteHome(Checkpoint* checkpoint, IoKind kind, Tid* stuck_on) ABSL_LOCKS_EXCLUDED(mutex_);
  Error WriteBatch(Tid tid, std::span<const BufferRef> batch, IoKind kind, Tid durable,
                   std::vector<BufferRef>* left, Tid* stuck_on) ABSL_LOCKS_EXCLUDED(mutex_);
  Error WriteHomeCopies(std::span<const HomeBlock> writes, IoKind kind) ABSL_LOCKS_EXCLUDED(mutex_);
  // While it lives somebody waits for what the checkpoint writes: that is promoted (J3).
  class CheckpointUrgency {
   public:
    explicit CheckpointUrgency(Impl* journal) ABSL_LOCKS_EXCLUDED(journal->mutex_);
    ~CheckpointUrgency();
    CheckpointUrgency(const CheckpointUrgency&) = delete;
    CheckpointUrgency& operator=(const CheckpointUrgency&) = delete;

   private:
    Impl* const journal_;
  };
  enum class CopyHome { kDone, kLater, kCopied };
  static CopyHome CopyForHome(Tid tid, Tid durable, Buffer* buffer, std::byte* copy, Tid* stuck_on);
  void EndHomeWrite(Tid tid, Buffer* buffer, bool written);
  Error ReleaseLog(bool* released) ABSL_LOCKS_EXCLUDED(mutex_);
  Tail TailBehindLocked(size_t skip) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Checkpoints, forcing commits where the tail is stuck, until every transaction up to `up_to` is
  // home, or, with kUntilSpace, a handle could start.
  enum class Until { kHome, kSpace };
  Error CheckpointUntil(Until until, Tid up_to, IoKind kind) ABSL_LOCKS_EXCLUDED(mutex_);
  Tid BackgroundTargetLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Marks the log empty if nothing is in it. True if it is.
  Result<bool> MarkEmpty() ABSL_LOCKS_EXCLUDED(mutex_);
  Error WriteEmptyState(Tid next) ABSL_LOCKS_EXCLUDED(mutex_);

  void DetachIfIdle(Buffer* buffer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(buffer->mutex());
  void DetachAll();
  void StopThreads() ABSL_LOCKS_EXCLUDED(mutex_);
  Error AbortErrorOr(Error error) const ABSL_LOCKS_EXCLUDED(mutex_);
  void WakeAllLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Point(JournalPoint point) const {
    if (options_.on_point) options_.on_point(point);
  }
  Nanoseconds Now() const { return options_.clock->MonotonicTime(); }

  const JournalOptions options_;
  Device* const device_;
  BufferCache* const cache_;
  BlockSealer* const sealer_;
  const CreditLimits limits_;
  const LogRing ring_;
  BufferIndex index_;

  // The incarnation and the superblock's slots change only by who holds `committing_now_` while the
  // log is not live, or `checkpointing_now_` while it is.
  LogArea log_;
  LogWriter writer_;            // commit thread
  AlignedBuffer seal_scratch_;  // commit thread
  AlignedBuffer home_copies_;   // who holds checkpointing_now_

  mutable Mutex mutex_;
  CondVar commit_work_;      // -> commit thread: a request, a new transaction, an abort
  CondVar drained_;          // -> commit thread: the last handle has stopped
  CondVar switched_;         // -> starters: the transaction they met is gone
  CondVar space_;            // -> starters: log space was freed
  CondVar unreserved_;       // -> starters: a reservation was used or given back
  CondVar checkpoint_work_;  // -> checkpoint thread
  CondVar finished_;         // a commit or a checkpoint pass has ended, or a batch of home writes

  // The running transaction.
  std::unique_ptr<Transaction> running_ ABSL_GUARDED_BY(mutex_);
  bool locked_ ABSL_GUARDED_BY(mutex_) = false;
  int open_handles_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t handles_joined_ ABSL_GUARDED_BY(mutex_) = 0;
  int outstanding_ ABSL_GUARDED_BY(mutex_) = 0;  // credits, overhead and reserved ones included
  int revokes_charged_ ABSL_GUARDED_BY(mutex_) = 0;
  bool requested_ ABSL_GUARDED_BY(mutex_) = false;
  CommitReason reason_ ABSL_GUARDED_BY(mutex_) = CommitReason::kInterval;
  Nanoseconds requested_at_ ABSL_GUARDED_BY(mutex_) = 0;
  Nanoseconds started_at_ ABSL_GUARDED_BY(mutex_) = 0;

  // Reservations outlive transactions: each new one starts with what is reserved then.
  int reserved_ ABSL_GUARDED_BY(mutex_) = 0;           // credits
  int reserved_overhead_ ABSL_GUARDED_BY(mutex_) = 0;  // log blocks, see HasSpaceLocked

  Tid next_tid_ ABSL_GUARDED_BY(mutex_);
  Tid durable_tid_ ABSL_GUARDED_BY(mutex_);   // commit record flushed
  Tid finished_tid_ ABSL_GUARDED_BY(mutex_);  // and callbacks have run
  bool committing_now_ ABSL_GUARDED_BY(mutex_) = false;
  int committing_blocks_ ABSL_GUARDED_BY(mutex_) = 0;  // of the log, that it takes
  std::multimap<Tid, std::function<void(Error)>> waiters_ ABSL_GUARDED_BY(mutex_);

  // The log.
  bool log_live_ ABSL_GUARDED_BY(mutex_) = false;              // its superblock says "not empty"
  uint64_t tail_ ABSL_GUARDED_BY(mutex_) = format::kLogFirst;  // durable
  uint64_t head_ ABSL_GUARDED_BY(mutex_) = format::kLogFirst;  // of the next transaction
  std::deque<std::shared_ptr<Checkpoint>> checkpoints_ ABSL_GUARDED_BY(mutex_);  // oldest first
  bool checkpointing_now_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t batches_started_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t batches_done_ ABSL_GUARDED_BY(mutex_) = 0;
  int space_waiters_ ABSL_GUARDED_BY(mutex_) = 0;
  HomeWrites* home_writes_ ABSL_GUARDED_BY(mutex_) = nullptr;  // on their way; the checkpointer's
  int checkpoint_waiters_ ABSL_GUARDED_BY(mutex_) = 0;
  bool host_full_ ABSL_GUARDED_BY(mutex_) = false;         // of the last pass
  uint64_t host_full_passes_ ABSL_GUARDED_BY(mutex_) = 0;  // passes that ended so
  Tid futile_at_ ABSL_GUARDED_BY(mutex_) =
      0;  // a background pass freed nothing at this durable tid

  bool aborting_ ABSL_GUARDED_BY(mutex_) = false;  // somebody is, or has been, in Abort
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
  Error abort_error_ ABSL_GUARDED_BY(mutex_) = Error::kOk;
  std::string abort_reason_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  Error close_result_ ABSL_GUARDED_BY(mutex_) = Error::kOk;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void(Error, const std::string&)> on_abort_ ABSL_GUARDED_BY(mutex_);
  JournalStats stats_ ABSL_GUARDED_BY(mutex_);

  std::thread commit_thread_;
  std::thread checkpoint_thread_;
};

}  // namespace sluice

#endif  // SLUICE_JOURNAL_JOURNAL_IMPL_H_
