// SPDX-License-Identifier: Apache-2.0
#include <liburing.h>
#include <linux/falloc.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "block/io_engine.h"

namespace sluice {
namespace {

constexpr unsigned kCompletionBatch = 64;
// One transfer's length is a signed int in the kernel.
constexpr size_t kMaxPiece = size_t{1} << 30;
// Places in the table of registered files.
constexpr int kBufferedFile = 0;
constexpr int kDirectFile = 1;

// One ring. Submitters fill it under the mutex, with one system call per Start; one thread takes
// the completions. At most `depth` operations are in the ring, so the completion queue cannot
// overflow; the others wait in a queue. An operation's state changes hands under the mutex.
// Thread-safe.
class RingEngine final : public IoEngine {
 public:
  RingEngine(BackingFile* file, unsigned depth, IoCounters* counters, Finish finish)
      : file_(file), counters_(counters), finish_(std::move(finish)), depth_(depth) {}

  bool Init() {
    // One entry more than the depth, for the wake-up at the end.
    if (io_uring_queue_init(depth_ + 1, &ring_, IORING_SETUP_CLAMP) != 0) return false;
    const int files[] = {file_->buffered_fd(), file_->direct_fd()};
    fixed_files_ = io_uring_register_files(&ring_, files, file_->direct() ? 2 : 1) == 0;
    depth_ = std::min(depth_, ring_.sq.ring_entries - 1);
    thread_ = std::thread([this] { Reap(); });
    return true;
  }

  ~RingEngine() override {
    if (!thread_.joinable()) return;
    {
      MutexLock lock(&mutex_);
      while (unfinished_ > 0) idle_.Wait(&mutex_);
      io_uring_sqe* const sqe = io_uring_get_sqe(&ring_);
      io_uring_prep_nop(sqe);
      io_uring_sqe_set_data(sqe, nullptr);
      EnterLocked();
    }
    thread_.join();
    io_uring_queue_exit(&ring_);
  }

  void Start(std::span<IoOperation* const> operations) override {
    MutexLock lock(&mutex_);
    unfinished_ += operations.size();
    waiting_.insert(waiting_.end(), operations.begin(), operations.end());
    PumpLocked();
  }

 private:
  struct Completion {
    IoOperation* operation;
    int result;
    Error error = Error::kOk;
  };

  // Moves what fits from the queue into the ring.
  void PumpLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (in_ring_ < depth_ && !waiting_.empty()) {
      io_uring_sqe* const sqe = io_uring_get_sqe(&ring_);
      if (sqe == nullptr) break;  // entries that the kernel did not take yet; see EnterLocked
      Prepare(sqe, waiting_.front());
      waiting_.pop_front();
      ++in_ring_;
      counters_->Begin();
    }
    EnterLocked();
  }

  // Hands the prepared entries to the kernel. When it is short of memory they stay prepared, and
  // the next completion tries again; with none in flight there is none to wait for.
  void EnterLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (io_uring_sq_ready(&ring_) > 0) {
      const int submitted = io_uring_submit(&ring_);
      if (submitted >= 0 || submitted == -EINTR) continue;
      SLUICE_CHECK(submitted == -EAGAIN || submitted == -EBUSY);
      if (in_ring_ > io_uring_sq_ready(&ring_)) return;
      std::this_thread::yield();
    }
  }

  void Prepare(io_uring_sqe* sqe, IoOperation* operation) {
    const IoRequest& request = *operation->request;
    const int fd = Descriptor(operation->direct);
    switch (request.op) {
      case IoOp::kRead:
      case IoOp::kWrite:
        PrepareTransfer(sqe, operation, fd);
        break;
      case IoOp::kFlush:
        io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
        break;
      case IoOp::kDiscard:
        // Also for block devices: the kernel turns it into a discard that reads as zeros.
        io_uring_prep_fallocate(sqe, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                static_cast<off_t>(request.offset),
                                static_cast<off_t>(request.length));
        break;
    }
    if (fixed_files_) io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data(sqe, operation);
  }

  void PrepareTransfer(io_uring_sqe* sqe, IoOperation* operation, int fd) {
    const bool read = operation->request->op == IoOp::kRead;
    const iovec* const pieces = operation->cursor.data();
    const unsigned count = static_cast<unsigned>(operation->cursor.count());
    if (count == 1) {
      const unsigned length = static_cast<unsigned>(std::min(pieces->iov_len, kMaxPiece));
      if (read) {
        io_uring_prep_read(sqe, fd, pieces->iov_base, length, operation->offset);
      } else {
        io_uring_prep_write(sqe, fd, pieces->iov_base, length, operation->offset);
      }
    } else if (read) {
      io_uring_prep_readv(sqe, fd, pieces, count, operation->offset);
    } else {
      io_uring_prep_writev(sqe, fd, pieces, count, operation->offset);
    }
  }

  int Descriptor(bool direct) const {
    if (fixed_files_) return direct ? kDirectFile : kBufferedFile;
    return direct ? file_->direct_fd() : file_->buffered_fd();
  }

  // The completion thread.
  void Reap() {
    std::vector<Completion> batch;
    bool stop = false;
    while (!stop) {
      stop = Collect(&batch);
      size_t finished = 0;
      {
        MutexLock lock(&mutex_);
        finished = SettleLocked(&batch);
        PumpLocked();
      }
      for (size_t i = 0; i < finished; ++i) finish_(batch[i].operation, batch[i].error);
      if (finished > 0) {
        MutexLock lock(&mutex_);
        unfinished_ -= finished;
        if (unfinished_ == 0) idle_.SignalAll();
      }
    }
  }

  // Sleeps until there are completions and takes them; true at the end.
  bool Collect(std::vector<Completion>* batch) {
    batch->clear();
    io_uring_cqe* first = nullptr;
    int error = 0;
    do {
      error = io_uring_wait_cqe(&ring_, &first);
    } while (error == -EINTR || error == -EAGAIN);
    SLUICE_CHECK(error == 0);
    io_uring_cqe* cqes[kCompletionBatch];
    const unsigned count = io_uring_peek_batch_cqe(&ring_, cqes, kCompletionBatch);
    bool stop = false;
    for (unsigned i = 0; i < count; ++i) {
      auto* const operation = static_cast<IoOperation*>(io_uring_cqe_get_data(cqes[i]));
      if (operation == nullptr) {
        stop = true;
      } else {
        batch->push_back({operation, cqes[i]->res});
      }
    }
    io_uring_cq_advance(&ring_, count);
    return stop;
  }

  // Puts the finished operations first and returns how many they are; the others, which have a
  // rest to transfer, go back into the queue, ahead of what has not been started.
  size_t SettleLocked(std::vector<Completion>* batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    size_t finished = 0;
    for (Completion completion : *batch) {
      --in_ring_;
      counters_->End();
      if (Finished(&completion)) {
        (*batch)[finished++] = completion;
      } else {
        waiting_.push_front(completion.operation);
      }
    }
    return finished;
  }

  // False: the operation must go on.
  bool Finished(Completion* completion) {
    IoOperation* const operation = completion->operation;
    const int result = completion->result;
    if (result == -EINTR || result == -EAGAIN) return false;
    switch (operation->request->op) {
      case IoOp::kFlush:
        completion->error = file_->FlushResult(-result);
        return true;
      case IoOp::kDiscard:
        completion->error = ErrorFromErrno(-result);
        return true;
      case IoOp::kRead:
      case IoOp::kWrite:
        break;
    }
    if (result <= 0) {
      completion->error = result == 0 ? Error::kIo : TransferError(-result);
      return true;
    }
    operation->offset += static_cast<uint64_t>(result);
    operation->cursor.Advance(static_cast<uint64_t>(result));
    return operation->cursor.done();
  }

  BackingFile* const file_;
  IoCounters* const counters_;
  const Finish finish_;
  unsigned depth_;  // both constant after Init
  bool fixed_files_ = false;
  io_uring ring_ = {};  // the submission side under the mutex, the completion side the thread's
  Mutex mutex_;
  CondVar idle_;
  std::deque<IoOperation*> waiting_ ABSL_GUARDED_BY(mutex_);
  unsigned in_ring_ ABSL_GUARDED_BY(mutex_) = 0;   // prepared or with the kernel
  size_t unfinished_ ABSL_GUARDED_BY(mutex_) = 0;  // from Start until Done has returned
  std::thread thread_;
};

}  // namespace

std::unique_ptr<IoEngine> MakeRingEngine(BackingFile* file, unsigned depth, IoCounters* counters,
                                         IoEngine::Finish finish) {
  auto engine =
      std::make_unique<RingEngine>(file, std::max(depth, 1u), counters, std::move(finish));
  if (!engine->Init()) return nullptr;
  return engine;
}

}  // namespace sluice
