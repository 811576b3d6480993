// SPDX-License-Identifier: Apache-2.0
//
// Making things durable. An fsync writes the file's dirty pages, commits up to the inode's last
// transaction (or flushes the device when no commit is needed), and completes from the thread that
// saw the last step end. When the inode is among the ordered data of a transaction that is still
// running, the commit itself writes and waits for the pages, so both are asked for at once.
#include <atomic>
#include <memory>
#include <utility>

#include "fs/file_data.h"
#include "fs/filesystem_impl.h"

namespace sluice {
namespace {

// A flush that nobody waits for on a thread. Deletes itself.
class FlushRequest : public IoRequest {
 public:
  explicit FlushRequest(sluice::Done done) : done_(std::move(done)) {
    op = IoOp::kFlush;
    kind = IoKind::kSyncWrite;
  }
  void Done(Error error) override {
    done_(error);
    delete this;
  }

 private:
  const sluice::Done done_;
};

// One fsync on its way: a chain of completions. Kept alive by the callbacks it hands out.
class FsyncOperation : public std::enable_shared_from_this<FsyncOperation> {
 public:
  FsyncOperation(Filesystem::Impl* fs, InodeRef inode, Tid tid, Done done)
      : fs_(fs),
        inode_(std::move(inode)),
        tid_(tid),
        done_(std::move(done)),
        error_sequence_(inode_->pages.error_sequence()) {}

  void Start() {
    const Tid running = fs_->journal->running_tid();
    if (tid_ != 0 && tid_ == running && inode_->ordered_tid.load() == tid_) return CommitAtOnce();
    WriteRound();
  }

 private:
  void StartWriteout() {
    inode_->pages.StartWriteout(0, kEndOfFileBlocks, IoKind::kSyncWrite, /*flow=*/0, inode_);
  }

  // The commit writes and waits for the inode's pages, so its wake-up and our writes overlap.
  void CommitAtOnce() {
    StartWriteout();
    Commit([self = shared_from_this()] {
      // A page that was written again while its older copy was on its way is still dirty.
      if (self->inode_->pages.dirty_pages() > 0) return self->WriteRound();
      self->Finish(Error::kOk);
    });
  }

  void Commit(std::function<void()> then) {
    fs_->journal->RequestCommit(tid_, CommitReason::kFsync);
    fs_->journal->WhenCommitted(tid_,
                                [self = shared_from_this(), then = std::move(then)](Error error) {
                                  error == Error::kOk ? then() : self->Finish(error);
                                });
  }

  // Pages that were written again while an earlier copy was on its way need a second round; what is
  // dirty after that is younger than this fsync.
  void WriteRound() {
    ++round_;
    StartWriteout();
    inode_->pages.WhenWritten(0, kEndOfFileBlocks,
                              [self = shared_from_this()](Error error) { self->Written(error); });
  }

  void Written(Error error) {
    if (error != Error::kOk) return Finish(error);
    if (round_ < 2 && inode_->pages.dirty_pages() > 0) return WriteRound();
    Journal* journal = fs_->journal.get();
    // The flush is due even if nothing was written now: the flusher may have been here before.
    if (tid_ == 0 || journal->IsCommitted(tid_)) return Flush();
    // A commit that had begun before the data was written may have flushed too early for it.
    const bool covered = tid_ == journal->running_tid();
    Commit([self = shared_from_this(), covered] {
      covered ? self->Finish(Error::kOk) : self->Flush();
    });
  }

  // A write that failed anywhere on the way, in the commit's ordered pass too, has counted.
  void Finish(Error error) {
    if (error == Error::kOk && inode_->pages.error_sequence() != error_sequence_) {
      error = inode_->pages.last_error();
    }
    done_(error);
  }

  void Flush() {
    if (!fs_->options.barrier) return Finish(Error::kOk);
    IoRequest* request =
        new FlushRequest([self = shared_from_this()](Error error) { self->Finish(error); });
    fs_->device->Submit({&request, 1});
  }

  Filesystem::Impl* const fs_;
  const InodeRef inode_;
  const Tid tid_;
  const Done done_;
  const uint64_t error_sequence_;
  int round_ = 0;
};

// Waits for a thaw only if there is something to write.
Error WriteFields(Filesystem::Impl* fs, Attempt& attempt, const InodeRef& inode) {
  {
    ReaderMutexLock lock(&inode->mutex);
    if (!inode->lazy_dirty) return Error::kOk;
  }
  ASSIGN_OR_RETURN(const FreezeGate::Pass pass, fs->gate.Enter(attempt));
  return WriteLazyFields(fs, attempt, inode);
}

}  // namespace

Error Filesystem::Fsync(Attempt& attempt, OpenFile* file, const InodeRef& inode, bool data_only,
                        Done done) {
  Impl* fs = impl_.get();
  RETURN_IF_ERROR(fs->CheckAlive());
  if (!data_only && !read_only()) RETURN_IF_ERROR(WriteFields(fs, attempt, inode));
  if (file != nullptr) {
    // What failed before this call is told now, once; the pages are still dirty and tried again.
    const Error earlier = TakeError(file);
    if (earlier != Error::kOk) return earlier;
    done = [file, this, done = std::move(done)](Error error) {
      if (error != Error::kOk) IgnoreError(TakeError(file));  // told now
      done(error);
    };
  }
  if (fs->journal == nullptr) {  // mounted read-only
    done(Error::kOk);
    return Error::kOk;
  }
  const Tid tid = data_only ? inode->datasync_tid.load() : inode->sync_tid.load();
  std::make_shared<FsyncOperation>(fs, inode, tid, std::move(done))->Start();
  return Error::kOk;
}

Error Filesystem::TakeError(OpenFile* file) {
  const uint64_t now = file->inode->pages.error_sequence();
  if (now == file->error_sequence) return Error::kOk;
  file->error_sequence = now;
  return file->inode->pages.last_error();
}

Error Filesystem::Sync() {
  Impl* fs = impl_.get();
  RETURN_IF_ERROR(fs->CheckAlive());
  if (fs->journal == nullptr || read_only()) return Error::kOk;
  fs->flusher->FlushAll();
  const std::vector<InodeRef> lazy = fs->inodes->Collect([](Inode& inode) {
    ReaderMutexLock lock(&inode.mutex);
    return inode.lazy_dirty;
  });
  for (const InodeRef& inode : lazy) {
    RETURN_IF_ERROR(RunBlocking([&](Attempt& attempt) { return WriteFields(fs, attempt, inode); }));
  }
  RETURN_IF_ERROR(fs->journal->CommitAll(CommitReason::kSync));
  // Overwrites needed no commit; what was written before this flush is durable after it.
  return fs->options.barrier ? fs->device->Flush(IoKind::kSyncWrite) : Error::kOk;
}

}  // namespace sluice
