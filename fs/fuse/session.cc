// SPDX-License-Identifier: Apache-2.0
//
// See session.h.
#include "fs/fuse/session.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace sluice {
namespace {

// What the receive thread is working on.
struct CurrentRequest {
  std::unique_ptr<ReceiveBuffer> buffer;
  bool kill_suidgid = false;
  uint32_t open_flags = 0;
};
thread_local CurrentRequest current;

bool ExpectsReply(uint32_t opcode) {
  return opcode != FUSE_FORGET && opcode != FUSE_BATCH_FORGET && opcode != FUSE_INTERRUPT &&
         opcode != FUSE_NOTIFY_REPLY;
}

// Replies to these are not counted: notifications have no request, and an INTERRUPT (odd unique) is
// answered only sometimes.
bool IsCountedReply(const fuse_out_header& header) {
  return header.unique != 0 && (header.unique & 1) == 0;
}

bool LacksInLibfuse(uint32_t opcode) {
  return opcode == kOpcodeSyncfs || opcode == kOpcodeTmpfile || opcode == kOpcodeStatx;
}

template <typename T>
T ArgumentAs(std::span<const std::byte> argument) {
  T value{};
  std::memcpy(&value, argument.data(), std::min(sizeof(value), argument.size()));
  return value;
}

bool WantsKillSuidgid(uint32_t opcode, std::span<const std::byte> argument) {
  switch (opcode) {
    case FUSE_WRITE:
      return (ArgumentAs<fuse_write_in>(argument).write_flags & FUSE_WRITE_KILL_SUIDGID) != 0;
    case FUSE_SETATTR:
      return (ArgumentAs<fuse_setattr_in>(argument).valid & kSetattrKillSuidgid) != 0;
    case FUSE_OPEN:
      return (ArgumentAs<fuse_open_in>(argument).open_flags & FUSE_OPEN_KILL_SUIDGID) != 0;
    default:
      return false;
  }
}

uint64_t OfferedFlags(std::span<const std::byte> argument) {
  const fuse_init_in init = ArgumentAs<fuse_init_in>(argument);
  return init.flags | (uint64_t{init.flags2} << 32);
}

}  // namespace

Session::Session(int fd, const fuse_lowlevel_ops& operations, Handler* handler, bool debug)
    : transport_(fd), handler_(handler) {
  std::string name = "sluicefs";
  std::string debug_option = "-d";
  std::array<char*, 3> argv = {name.data(), debug ? debug_option.data() : nullptr, nullptr};
  fuse_args args = FUSE_ARGS_INIT(debug ? 2 : 1, argv.data());
  fuse_ = fuse_session_new(&args, &operations, sizeof(operations), this);
  fuse_opt_free_args(&args);
  fuse_custom_io io{};
  io.writev = &Session::WriteHook;
  io.read = &Session::ReadHook;
  if (fuse_ != nullptr && fuse_session_custom_io(fuse_, &io, fd) == 0) return;
  if (fuse_ != nullptr) fuse_session_destroy(fuse_);
  fuse_ = nullptr;
  close(fd);  // libfuse has not taken it; the kernel ends the connection
}

Session::~Session() {
  if (fuse_ != nullptr) fuse_session_destroy(fuse_);
}

void Session::Start(int threads, std::function<void()> on_end) {
  on_end_ = std::move(on_end);
  receiving_ = threads;
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { ReceiveLoop(); });
    pthread_setname_np(threads_.back().native_handle(), "sluice-fuse");
  }
}

bool Session::WaitReady() {
  MutexLock lock(&mutex_);
  while (!ready_ && !ended_) changed_.Wait(&mutex_);
  return ready_;
}

void Session::Join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Session::Drain() { WaitForTokens(0); }

void Session::ReceiveLoop() {
  for (;;) {
    if (current.buffer == nullptr) current.buffer = buffers_.Take();
    const ssize_t size = transport_.Receive(current.buffer->data(), ReceiveBuffer::capacity());
    if (size == 0) continue;
    if (size < 0) {
      if (size != -ENODEV && size != -ECONNABORTED) {
        LogError("reading from /dev/fuse: ", std::strerror(static_cast<int>(-size)));
      }
      break;
    }
    Process(static_cast<size_t>(size));
  }
  current.buffer.reset();
  if (--receiving_ > 0) return;
  {
    MutexLock lock(&mutex_);
    ended_ = true;
    changed_.SignalAll();
  }
  on_end_();
}

void Session::Process(size_t size) {
  // A copy: an operation may take the buffer away.
  fuse_in_header header;
  if (size < sizeof(header)) return;
  std::memcpy(&header, current.buffer->data(), sizeof(header));
  const std::span<const std::byte> argument(current.buffer->data() + sizeof(header),
                                            size - sizeof(header));
  AddTokens(ExpectsReply(header.opcode) ? 2 : 1);
  current.kill_suidgid = WantsKillSuidgid(header.opcode, argument);
  current.open_flags = 0;
  if (header.opcode == FUSE_DESTROY) {
    ProcessDestroy(header);
  } else if (LacksInLibfuse(header.opcode)) {
    if (!handler_->HandleRaw(header, argument)) ReplyRaw(header.unique, ENOSYS, {});
  } else {
    if (header.opcode == FUSE_INIT) {
      init_unique_ = header.unique;
      init_offered_ = OfferedFlags(argument);
    }
    fuse_buf buffer{};
    buffer.size = size;
    buffer.mem = current.buffer->data();
    fuse_session_process_buf(fuse_, &buffer);
  }
  RemoveToken();
}

void Session::ProcessDestroy(const fuse_in_header& header) {
  WaitForTokens(2);  // our own
  handler_->HandleDestroy();
  ReplyRaw(header.unique, 0, {});
}

void Session::ReplyRaw(uint64_t unique, int error, std::span<const std::byte> payload) {
  fuse_out_header header{};
  header.unique = unique;
  header.error = -error;
  header.len = static_cast<uint32_t>(sizeof(header) + payload.size());
  const iovec pieces[] = {{&header, sizeof(header)},
                          {const_cast<std::byte*>(payload.data()), payload.size()}};
  // A failure means that the request was aborted or the connection is gone: nobody is left to tell.
  (void)transport_.Reply(pieces, payload.empty() ? 1 : 2);
  RemoveToken();
}

std::unique_ptr<ReceiveBuffer> Session::TakeCurrentBuffer() { return std::move(current.buffer); }

bool Session::CurrentKillsSuidgid() { return current.kill_suidgid; }

void Session::AddToNextOpenReply(uint32_t open_flags) { current.open_flags = open_flags; }

ssize_t Session::OnReply(iovec* pieces, int count) {
  fuse_out_header header;
  std::memcpy(&header, pieces[0].iov_base, sizeof(header));
  const bool is_init = header.unique == init_unique_ && header.unique != 0;
  // fuse_open_out ends the replies to OPEN and CREATE.
  if (current.open_flags != 0 && count == 2 && header.error == 0 &&
      pieces[1].iov_len >= sizeof(fuse_open_out)) {
    std::byte* open =
        static_cast<std::byte*>(pieces[1].iov_base) + pieces[1].iov_len - sizeof(fuse_open_out);
    fuse_open_out reply;
    std::memcpy(&reply, open, sizeof(reply));
    reply.open_flags |= std::exchange(current.open_flags, 0);
    std::memcpy(open, &reply, sizeof(reply));
  }
  const ssize_t sent = is_init ? SendInitReply(pieces, count) : transport_.Reply(pieces, count);
  if (IsCountedReply(header)) RemoveToken();
  return sent;
}

// Asks for what libfuse 3.14 does not know, as far as the kernel has offered it.
ssize_t Session::SendInitReply(iovec* pieces, int count) {
  fuse_init_out init;
  if (count == 2 && pieces[1].iov_len == sizeof(init)) {
    std::memcpy(&init, pieces[1].iov_base, sizeof(init));
    const uint64_t wanted =
        (FUSE_HANDLE_KILLPRIV_V2 | kInitDirectIoAllowMmap | FUSE_INIT_EXT) & init_offered_;
    init.flags |= static_cast<uint32_t>(wanted);
    if ((init.flags & FUSE_INIT_EXT) != 0) init.flags2 |= static_cast<uint32_t>(wanted >> 32);
    std::memcpy(pieces[1].iov_base, &init, sizeof(init));
  }
  const ssize_t sent = transport_.Reply(pieces, count);
  MutexLock lock(&mutex_);
  ready_ = sent >= 0;
  changed_.SignalAll();
  return sent;
}

void Session::AddTokens(int tokens) {
  MutexLock lock(&mutex_);
  tokens_ += tokens;
}

// Under the mutex, so that a thread that sees the last token gone, and then destroys the session,
// comes after the one that gave it back.
void Session::RemoveToken() {
  MutexLock lock(&mutex_);
  SLUICE_DCHECK(tokens_ > 0);
  --tokens_;
  if (waiting_for_tokens_) changed_.SignalAll();
}

void Session::WaitForTokens(int most) {
  MutexLock lock(&mutex_);
  waiting_for_tokens_ = true;
  while (tokens_ > most) changed_.Wait(&mutex_);
  waiting_for_tokens_ = false;
}

ssize_t Session::WriteHook(int, iovec* pieces, int count, void* session) {
  return static_cast<Session*>(session)->OnReply(pieces, count);
}

// Requests are read by ReceiveLoop itself; libfuse wants the hook to exist.
ssize_t Session::ReadHook(int, void* data, size_t size, void* session) {
  return static_cast<Session*>(session)->transport_.Receive(static_cast<std::byte*>(data), size);
}

}  // namespace sluice
