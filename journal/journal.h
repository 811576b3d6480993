// SPDX-License-Identifier: Apache-2.0
//
// The journal: jbd2's machine (Linux fs/jbd2) as a library. Metadata blocks change only under a
// Handle; handles that are open at the same time share the running transaction; a transaction is
// committed as a whole: drained, its blocks copied and written to the log, flushed, sealed by a
// commit record, flushed. Later its blocks are written home (checkpoint) and the log's tail moves.
//
// States of a transaction, in jbd2's names: running -> locked (no new handle joins, open ones
// finish) -> flush (a new running transaction may start; ordered data and log blocks are written)
// -> commit (commit record) -> finished. At most one is running and one committing.
//
// Differences from jbd2: a handle never waits (TryStart answers kWouldBlock and says what to wait
// for, see block/attempt.h); blocks are copied to the log buffer, so a modifier never waits for log
// I/O; space for a whole maximum transaction exists in the log before a handle joins (J5).
//
// Credits: a handle takes, at start, the number of blocks it may change. J1: when a transaction has
// drained and the credits of reserved handles have been handed to its successor, outstanding
// credits - overhead = blocks filed + revoke descriptors owed; checked at every commit.
//
// Nesting: a thread has at most one open handle (CHECK). A function that works within its caller's
// handle is given it by reference, and its credits are part of what the caller asked for; jbd2's
// implicit nesting would hide whose credits are spent.
#ifndef SLUICE_JOURNAL_JOURNAL_H_
#define SLUICE_JOURNAL_JOURNAL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/units.h"
#include "block/attempt.h"
#include "block/buffer_cache.h"
#include "block/device.h"
#include "format/block_header.h"
#include "journal/log_area.h"

namespace sluice {

// Which operation a handle serves; jbd2's handle types, for statistics and blame.
enum class OpType : uint8_t {
  kMisc,
  kInode,
  kWritePage,
  kMapBlocks,
  kDirectory,
  kTruncate,
  kExtentConvert,
  kOrphan,
};

// Why a commit was asked for.
enum class CommitReason : uint8_t {
  kInterval,  // the transaction is older than the commit interval
  kFull,      // no credits left for another handle
  kFsync,
  kSync,
  kLogSpace,  // a checkpoint needs a buffer of the running transaction
  kRestart,   // a long operation went on in a new handle
  kNoSpace,   // freed blocks become allocatable by the commit
  kUnmount,
};
inline constexpr int kCommitReasonCount = 8;

// Finishes a block's copy before it is written to the log: sets checksums. Called by the commit
// thread only, in ascending order of BlockKind within a transaction, with no lock held. What it
// changed is kept and written home with the block, so checkpoint never seals: a checksum that a
// later commit has noted in the group table cannot leak into an older version's home copy. The
// filesystem implements it (it knows geometry and group table).
class BlockSealer {
 public:
  virtual ~BlockSealer() = default;
  virtual void Seal(BlockNumber block, format::BlockKind kind, format::BlockSpan copy) = 0;
};

// File data that must be on the device before a transaction that makes it reachable is committed
// (data=ordered). fs/ implements it per inode. The journal calls both from the commit thread with
// no lock held.
class OrderedData {
 public:
  virtual ~OrderedData() = default;
  // Starts writing all dirty mapped pages; must not wait, must not start a handle.
  virtual void StartOrderedWrite() = 0;
  // Waits for what was started by anybody (pages under writeback included). An error does not stop
  // the commit: it is recorded for the file's fsync.
  virtual void WaitOrderedWrite() = 0;
};

class Transaction;
class Journal;
class ReservedHandle;

// What a handle may need: blocks it may change, and revoke records.
struct Credits {
  int blocks = 0;
  int revokes = 0;
};

// Exclusive access to a buffer's bytes within a handle: obtained from Handle::Edit, holds the
// buffer's mutex until destroyed. Move-only, short-lived; nothing else is locked or waited for
// while it lives, except other edits taken in any order by the same owner's lock discipline.
class BlockEdit {
 public:
  explicit BlockEdit(BufferRef buffer) : buffer_(std::move(buffer)) {}
  BlockEdit(BlockEdit&&) = default;
  BlockEdit& operator=(BlockEdit&&) = delete;
  ~BlockEdit();  // releases the buffer's mutex

  std::byte* data() { return buffer_->data(); }
  format::BlockSpan span() { return buffer_->span(); }
  const BufferRef& buffer() const { return buffer_; }

 private:
  BufferRef buffer_;
};

// An open handle on the running transaction. Move-only. Stops when destroyed: unused credits go
// back. Used by one thread. A shared transaction cannot be rolled back, so an operation that fails
// after its first Edit must leave the blocks consistent.
class Handle {
 public:
  Handle() = default;
  Handle(Handle&& other) noexcept;
  Handle& operator=(Handle&& other) noexcept;
  ~Handle();

  bool open() const { return transaction_ != nullptr; }
  Tid tid() const;

  // Write access to a buffer: the block joins the transaction (one credit the first time in this
  // transaction), its committing version is copied out if need be. Never waits. CHECKs that the
  // handle has a credit left: worst cases are computed in the operation's credit function.
  BlockEdit Edit(const BufferRef& buffer);

  // A freed metadata block: it need not be logged or written home any more, older log copies are
  // revoked (one revoke record), and the cache forgets it. The caller frees it in the allocator.
  void Revoke(const BufferRef& buffer);
  // The same by number, for a block whose buffer is not in memory.
  void RevokeBlock(BlockNumber block);

  // `data` is written before this transaction commits. Added once per transaction however often
  // called. The journal keeps a reference until the commit is over.
  void AddOrdered(std::shared_ptr<OrderedData> data);

  // Runs on the commit thread, no lock held, once this transaction is durable (kOk) or the journal
  // has failed. In order of registration; before waiters of the commit are woken.
  void OnCommit(std::function<void(Error)> callback);

  // More credits for the same handle; false if the transaction has no room or is locked (then bring
  // the blocks into a consistent state and restart).
  bool TryExtend(int blocks, int revokes = 0);

  // Ends the handle, asks for the commit of its transaction (kRestart), and starts anew with these
  // credits, as Journal::TryStart would; what has been done so far may become durable alone. Never
  // waits. On any error the handle is closed: after kWouldBlock the operation gives back its locks,
  // waits, and starts its next handle itself. A reserved handle is not touched.
  Error TryRestart(Attempt& attempt, int blocks, int revokes = 0);

  int credits_left() const { return credits_; }

  // Ends the handle now.
  void Stop();

 private:
  friend class Journal;
  Journal* journal_ = nullptr;
  Transaction* transaction_ = nullptr;
  int credits_ = 0;  // blocks this handle may still add
  int revoke_credits_ = 0;
  OpType type_ = OpType::kMisc;
  int revokes_used_ = 0;
  int revokes_asked_ = 0;
};

// Credits set aside for a later handle whose start may neither wait nor fail: for work that ends
// an I/O, on whose end a commit may depend. It belongs to no transaction and holds up no commit; it
// only leaves less room for others. Move-only; given back when destroyed. Used by one thread at a
// time; outlived by the journal, and used up or given back before Journal::Close.
class ReservedHandle {
 public:
  ReservedHandle() = default;
  ReservedHandle(ReservedHandle&& other) noexcept { *this = std::move(other); }
  ReservedHandle& operator=(ReservedHandle&& other) noexcept;
  ~ReservedHandle() { Free(); }

  bool reserved() const { return journal_ != nullptr; }
  // Gives the credits back.
  void Free();

 private:
  friend class Journal;
  Journal* journal_ = nullptr;
  OpType type_ = OpType::kMisc;
  Credits credits_;
};

// The ordering points of commit and checkpoint, in the order in which a transaction meets them.
// Tests stop, fail or crash there.
enum class JournalPoint : uint8_t {
  kLocked,         // no new handle joins
  kSwitched,       // drained; a new running transaction may start; nothing copied yet
  kCopied,         // every block's version of this transaction has been copied and sealed
  kRecordWritten,  // log blocks without the commit record
  kDataWritten,    // ordered data
  kRecordFlushed,
  kCommitWritten,
  kCommitFlushed,
  kCheckpointWritten,
  kCheckpointFlushed,
  kTailWritten,
  kTailFlushed,
};

struct JournalOptions {
  Nanoseconds commit_interval = 5'000'000'000;
  bool barrier = true;
  Clock* clock = Clock::System();
  // No threads: the owner drives commits with CommitNow and checkpoints with CheckpointNow; for
  // deterministic tests. RequestCommit and WaitCommitted then commit on the caller's thread.
  bool manual = false;

  // Tests. `on_point` is called with no lock held, on the thread that commits or checkpoints.
  std::function<void(JournalPoint)> on_point;
  // J1: a debug build aborts on a leaked credit unless this is set; then it reports and repairs,
  // as a release build does.
  bool report_credit_leaks = false;
  // Plants faults that J1 is there to catch: credits lost by each handle that stops, and the leak
  // of SUSE bug 1169774: a reserved handle that is given back unused lowers what is reserved, but
  // not what is outstanding.
  int leak_credits_per_handle = 0;
  bool leak_reserved_credits = false;
  // Plants the fault that J5 is there to catch: handles join whether or not the log has room.
  bool ignore_log_space = false;
};

struct JournalStats {
  Tid committed_tid = 0;
  Tid running_tid = 0;
  uint64_t commits = 0;
  uint64_t commits_by_reason[kCommitReasonCount] = {};   // by the first reason of each
  uint64_t requests_by_reason[kCommitReasonCount] = {};  // all that met a running transaction
  uint64_t handles = 0;              // handles / commits: how well operations share commits
  uint64_t handles_max = 0;          // most in one transaction
  uint64_t reserved_handles = 0;     // of `handles`: started from a reservation
  uint64_t reservations_unused = 0;  // given back
  uint64_t reserved_credits = 0;     // now
  uint64_t blocks_logged = 0;        // images
  uint64_t log_blocks_written = 0;   // with descriptors, revokes, commit records
  uint64_t flushes = 0;
  uint64_t checkpointed_blocks = 0;
  uint64_t start_blocked_locked = 0;  // TryStart answers by reason
  uint64_t start_blocked_full = 0;
  uint64_t start_blocked_space = 0;
  uint64_t start_blocked_reserved = 0;
  uint64_t credit_leaks = 0;  // J1 violations found (and repaired)
  // nanoseconds, sums and maxima over commits
  uint64_t locked_ns = 0, locked_max_ns = 0;
  uint64_t flushing_ns = 0, flushing_max_ns = 0;
  uint64_t logging_ns = 0, logging_max_ns = 0;
  uint64_t commit_ns = 0, commit_max_ns = 0;  // request or lock to finished
};

// Thread-safe. The destructor may find transactions that were never committed: they are lost.
class Journal {
 public:
  // Opens a log that is empty or has just been replayed (see replay.h): `log` describes where it
  // lies and what its superblock says. Starts the commit and checkpoint threads unless manual.
  // `device`, `cache`, `sealer` outlive the journal.
  static Result<std::unique_ptr<Journal>> Open(const JournalOptions& options, Device* device,
                                               BufferCache* cache, BlockSealer* sealer,
                                               LogArea log);
  // Precondition: no open handle. Without Close the log keeps what it has (a crash); callbacks that
  // are still waiting get kShutdown.
  ~Journal();

  // Joins the running transaction with credits for `blocks` blocks and `revokes` revoke records.
  // kWouldBlock (and `attempt` told what to wait for): the transaction is locked or full, or log
  // space is short. kHandleTooLarge: can never fit. kReadOnly: the journal has failed. The wait may
  // end with kNoSpace: log space is short and the image's host has no room for home blocks. Nested
  // handles are not allowed (CHECK by thread-local depth): operations pass their handle down.
  Result<Handle> TryStart(Attempt& attempt, OpType type, int blocks, int revokes = 0);

  // The same, and reserves credits for a later handle; both or neither. All reservations together
  // take at most half of the largest transaction: kHandleTooLarge if `reserve` alone is more, else
  // the wait is for others to use or give back theirs (on a manual journal the wait is kBusy), so
  // that nobody may start a handle that needs more than the rest while keeping a reservation.
  // `reserve.blocks` is at least 1; `reserved` must be empty.
  Result<Handle> TryStart(Attempt& attempt, OpType type, Credits credits, Credits reserve,
                          ReservedHandle* reserved);

  // Turns the reservation into an open handle on the running transaction, a locked one included, or
  // a new one. Never waits, not for a commit, nor log space, nor a checkpoint; the only error is
  // kReadOnly, when the journal has failed or was closed (the reservation is given back then).
  Result<Handle> StartReserved(ReservedHandle reserved);

  // The largest `blocks` a handle may ask for.
  int max_handle_blocks() const;

  // True on a thread that has an open handle; wait points check it (J2).
  static bool ThreadHasHandle();

  // Asks for the commit of `tid` (and what is before it) if it has not been asked for or done.
  // Never waits.
  void RequestCommit(Tid tid, CommitReason reason);
  // Calls `done` once `tid` is durable, or with the error that stopped the journal; at once, on
  // this thread, if that is so already. Does not by itself ask for the commit. No lock may be held
  // that `done` takes.
  void WhenCommitted(Tid tid, std::function<void(Error)> done);
  // Request and wait. May wait: no lock, no handle.
  Error Commit(Tid tid, CommitReason reason);
  // Commits everything that has been done so far; kOk at once if there is nothing.
  Error CommitAll(CommitReason reason);
  bool IsCommitted(Tid tid) const;
  Tid running_tid() const;  // tid a handle started now would get (the running or the next one)
  // The youngest transaction that has begun: whatever has been done so far is in it or older.
  Tid newest_tid() const;

  // Writes everything home and empties the log: for unmount, freeze. May wait.
  Error Flush();

  // Flush, mark the log empty and stop the threads. Further starts fail with kReadOnly. kNoSpace
  // (the image's host is full) or kIo if the log could not be emptied (it will be replayed).
  Error Close();

  // A failed write or flush (but a home block's kNoSpace), or a caller who met fatal corruption:
  // from now on nothing is written, waiters get `error`, starts get kReadOnly. The first caller's
  // reason is logged once. `on_abort` (set by the filesystem) runs once, on the failing thread,
  // whatever locks that holds: it may only set flags and log. OnCommit and WhenCommitted callbacks
  // get the error on the commit thread.
  void Abort(Error error, const std::string& reason);
  bool aborted() const;
  void SetOnAbort(std::function<void(Error, const std::string&)> on_abort);

  // Manual mode, and tests. CheckpointNow writes home what is committed and not modified again, and
  // moves the tail as far as that allows; it commits nothing.
  Error CommitNow(CommitReason reason);
  Error CheckpointNow();

  JournalStats stats() const;
  const JournalOptions& options() const;

 private:
  friend class Handle;
  friend class ReservedHandle;
  class Impl;
  explicit Journal(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_JOURNAL_JOURNAL_H_
