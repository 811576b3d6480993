// SPDX-License-Identifier: Apache-2.0
//
// Serves one mounted filesystem: owns the worker pool, runs operations as attempts, and hands the
// requests that libfuse lacks to their operations.
//
// An operation is a callable `Error operation(Attempt&)`. kOk means that it has replied, or will
// from a completion; kWouldBlock that it has changed nothing and wants to be run again after
// Attempt::Wait(); any other error is the reply. The first attempt runs on the receive thread and
// allocates nothing; one that must wait is moved, with the request's buffer, to a worker. One that
// asks to be parked (a frozen filesystem) waits in memory alone, and goes to a worker when resumed.
#ifndef SLUICE_FS_FUSE_FUSE_SERVER_H_
#define SLUICE_FS_FUSE_FUSE_SERVER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "base/error.h"
#include "block/attempt.h"
#include "fs/filesystem.h"
#include "fs/fuse/errno_map.h"
#include "fs/fuse/open_files.h"
#include "fs/fuse/session.h"
#include "fs/fuse/worker_pool.h"

namespace sluice {

// A request that libfuse does not know, and how to answer it.
struct RawRequest {
  Session* session;
  fuse_in_header header;

  void Fail(int error) const { session->ReplyRaw(header.unique, error, {}); }
  void Reply(std::span<const std::byte> payload) const {
    session->ReplyRaw(header.unique, 0, payload);
  }
};

// Thread-safe.
class FuseServer : public Session::Handler {
 public:
  // `on_destroy` runs when the kernel sends DESTROY, after Finish(): it must make the image clean.
  FuseServer(Filesystem* fs, std::function<void()> on_destroy)
      : fs_(fs), on_destroy_(std::move(on_destroy)), workers_(kMostWorkers) {}

  // The server behind a request of libfuse's.
  static FuseServer* Of(fuse_req_t req) {
    return static_cast<FuseServer*>(static_cast<Session*>(fuse_req_userdata(req))->handler());
  }

  // Before the session starts.
  void Attach(Session* session) { session_ = session; }

  Filesystem& fs() { return *fs_; }
  Session& session() { return *session_; }
  OpenFiles& open_files() { return open_files_; }

  // When the session has ended and nothing is in flight: lets go of everything that the kernel
  // held, so that the filesystem can be unmounted.
  void Finish();

  // From INIT on: whether the kernel follows buffered O_SYNC writes with an FSYNC.
  void set_protocol_minor(unsigned minor) { kernel_syncs_writes_ = minor >= 45; }
  bool kernel_syncs_writes() const { return kernel_syncs_writes_; }

  // Runs `operation` as the class comment says. For requests of libfuse's (`fuse_req_t`) and raw
  // ones (`RawRequest`).
  template <typename Request, typename Operation>
  void Run(Request request, Operation operation);

  // Runs `operation`, which may wait, on a worker.
  template <typename Operation>
  void RunOnWorker(Operation operation);

  // Sends the reply of a finished operation: at once, or, if something must be durable first (sync
  // and dirsync mounts), from a worker that has waited for it. Returns kOk.
  template <typename Reply>
  Error ReplyWhenFinished(fuse_req_t req, Attempt& attempt, Reply reply);

  bool HandleRaw(const fuse_in_header& header, std::span<const std::byte> argument) override;
  void HandleDestroy() override;

 private:
  static constexpr int kMostWorkers = 64;

  template <typename Request, typename Operation>
  class PuntedJob;
  template <typename Operation>
  class WorkerJob;

  Filesystem* const fs_;
  const std::function<void()> on_destroy_;
  Session* session_ = nullptr;
  OpenFiles open_files_;
  std::atomic<bool> kernel_syncs_writes_{false};
  WorkerPool workers_;
};

// All operations that libfuse decodes.
fuse_lowlevel_ops MakeFuseOperations();

inline void ReplyError(fuse_req_t req, Error error) { fuse_reply_err(req, ErrnoOf(error)); }
inline void ReplyError(const RawRequest& request, Error error) { request.Fail(ErrnoOf(error)); }

template <typename Request, typename Operation>
class FuseServer::PuntedJob : public WorkerPool::Job {
 public:
  PuntedJob(FuseServer* server, Request request, Operation operation, Attempt attempt)
      : server_(server),
        request_(request),
        operation_(std::move(operation)),
        attempt_(std::move(attempt)),
        buffer_(Session::TakeCurrentBuffer()) {}
  ~PuntedJob() override {
    if (buffer_ != nullptr) server_->session().buffers().Give(std::move(buffer_));
  }

  PuntedJob(PuntedJob&&) = default;

  // Goes on with an operation that met something to wait for: on a worker, or when resumed.
  static void Start(std::unique_ptr<PuntedJob> job) {
    FuseServer* const server = job->server_;
    const Attempt::ParkFunction park = job->attempt_.TakePark();
    if (park == nullptr) return server->workers_.Submit(std::move(job));
    // It belongs to whoever resumes it.
    park([server, parked = job.release()] {
      server->workers_.Submit(std::unique_ptr<PuntedJob>(parked));
    });
  }

  void Run() override {
    Error error = attempt_.must_wait() ? attempt_.Wait() : Error::kOk;
    for (;;) {
      if (error == Error::kOk) error = operation_(attempt_);
      if (!WouldBlock(error)) break;
      if (attempt_.parks()) return Start(std::make_unique<PuntedJob>(std::move(*this)));
      error = attempt_.Wait();
    }
    if (error != Error::kOk) ReplyError(request_, error);
  }

 private:
  FuseServer* const server_;
  const Request request_;
  Operation operation_;
  Attempt attempt_;
  std::unique_ptr<ReceiveBuffer> buffer_;  // the operation's names and data live here
};

template <typename Operation>
class FuseServer::WorkerJob : public WorkerPool::Job {
 public:
  explicit WorkerJob(Operation operation) : operation_(std::move(operation)) {}
  void Run() override { operation_(); }

 private:
  Operation operation_;
};

template <typename Request, typename Operation>
void FuseServer::Run(Request request, Operation operation) {
  Attempt attempt;
  const Error error = operation(attempt);
  if (WouldBlock(error)) [[unlikely]] {
    PuntedJob<Request, Operation>::Start(std::make_unique<PuntedJob<Request, Operation>>(
        this, request, std::move(operation), std::move(attempt)));
  } else if (error != Error::kOk) {
    ReplyError(request, error);
  }
}

template <typename Operation>
void FuseServer::RunOnWorker(Operation operation) {
  workers_.Submit(std::make_unique<WorkerJob<Operation>>(std::move(operation)));
}

template <typename Reply>
Error FuseServer::ReplyWhenFinished(fuse_req_t req, Attempt& attempt, Reply reply) {
  if (!attempt.must_finish()) [[likely]] {
    reply();
    return Error::kOk;
  }
  RunOnWorker([req, attempt = std::move(attempt), reply = std::move(reply)]() mutable {
    const Error error = attempt.Finish();
    if (error == Error::kOk) {
      reply();
    } else {
      ReplyError(req, error);
    }
  });
  return Error::kOk;
}

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_FUSE_SERVER_H_
