// SPDX-License-Identifier: Apache-2.0
//
// The conversation with the kernel: receive threads, the opcodes that libfuse 3.14 lacks, the INIT
// flags it does not know, and the count of requests in flight that makes a clean end possible.
//
// Every request is read here, then given to the handler (opcodes that libfuse lacks) or to libfuse,
// which decodes it and calls an operation on the same thread. Every reply of libfuse passes
// OnReply(). A receive thread must not wait for a device: operations that would wait take the
// request's buffer along (TakeCurrentBuffer) and are finished by another thread.
#ifndef SLUICE_FS_FUSE_SESSION_H_
#define SLUICE_FS_FUSE_SESSION_H_

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "fs/fuse/fuse_protocol.h"
#include "fs/fuse/receive_buffer.h"
#include "fs/fuse/transport.h"

namespace sluice {

// Thread-safe.
class Session {
 public:
  // What the session serves.
  class Handler {
   public:
    virtual ~Handler() = default;
    // A request that libfuse does not know; `argument` is what follows the header and lives as
    // long as the request's buffer. False: answer ENOSYS. True: the handler answers, now or later,
    // with ReplyRaw().
    virtual bool HandleRaw(const fuse_in_header& header, std::span<const std::byte> argument) = 0;
    // The kernel is done (DESTROY, fuseblk only) and waits for our answer: no other request is in
    // flight. Called on a receive thread; may block.
    virtual void HandleDestroy() = 0;
  };

  // `fd` becomes the session's. `operations` get this session as their userdata.
  Session(int fd, const fuse_lowlevel_ops& operations, Handler* handler, bool debug);
  // The threads must have ended (Join).
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // False when libfuse refuses to set up.
  [[nodiscard]] bool valid() const { return fuse_ != nullptr; }
  Handler* handler() const { return handler_; }

  // `on_end` is called by the last receive thread to end, once.
  void Start(int threads, std::function<void()> on_end);
  // True once the kernel's INIT has been answered; false when the connection ended before.
  [[nodiscard]] bool WaitReady() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for the receive threads (the connection must end: unmount).
  void Join();
  // Waits until no request is being worked on. Only when no new ones can come.
  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);

  // Answers a request given to HandleRaw: a positive errno, or 0 and a payload.
  void ReplyRaw(uint64_t unique, int error, std::span<const std::byte> payload);

  // Inside an operation, on the receive thread: the buffer that holds the operation's arguments
  // becomes the caller's, who returns it through buffers().Give().
  static std::unique_ptr<ReceiveBuffer> TakeCurrentBuffer();
  // Inside an operation, on the receive thread: the caller's set-id bits are to be dropped (the
  // kernel's wish in WRITE, SETATTR and OPEN, which libfuse 3.14 does not hand on).
  static bool CurrentKillsSuidgid();
  // For the OPEN or CREATE reply that the calling thread sends next: FOPEN_* bits without a field
  // in libfuse 3.14.
  static void AddToNextOpenReply(uint32_t open_flags);

  ReceiveBufferPool& buffers() { return buffers_; }

 private:
  void ReceiveLoop() ABSL_LOCKS_EXCLUDED(mutex_);
  void Process(size_t size);
  void ProcessDestroy(const fuse_in_header& header);
  ssize_t OnReply(iovec* pieces, int count);
  ssize_t SendInitReply(iovec* pieces, int count);

  // Tokens count the reply still owed and the thread still busy with a request; at zero nothing is
  // in flight.
  void AddTokens(int tokens) ABSL_LOCKS_EXCLUDED(mutex_);
  void RemoveToken() ABSL_LOCKS_EXCLUDED(mutex_);
  void WaitForTokens(int most) ABSL_LOCKS_EXCLUDED(mutex_);

  static ssize_t WriteHook(int fd, iovec* pieces, int count, void* session);
  static ssize_t ReadHook(int fd, void* data, size_t size, void* session);

  DevFuseTransport transport_;
  Handler* const handler_;
  fuse_session* fuse_ = nullptr;
  ReceiveBufferPool buffers_;
  std::vector<std::thread> threads_;
  std::function<void()> on_end_;

  std::atomic<uint64_t> init_unique_{0};
  std::atomic<uint64_t> init_offered_{0};  // the flags that the kernel's INIT had
  std::atomic<int> receiving_{0};          // receive threads not yet ended

  Mutex mutex_;
  CondVar changed_;
  int tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  bool waiting_for_tokens_ ABSL_GUARDED_BY(mutex_) = false;
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_SESSION_H_
