// SPDX-License-Identifier: Apache-2.0
//
// What an administrator asks of a mount through ioctls: freeze, thaw, shutdown.
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "fs/fuse/ioctl_numbers.h"
#include "fs/fuse/operations.h"
#include "fs/fuse/replies.h"

namespace sluice {
namespace {

// Runs `action`, which may wait, and replies.
template <typename Action>
void RunForRoot(fuse_req_t req, Action action) {
  if (!CallerOf(req).privileged()) {
    fuse_reply_err(req, EPERM);
    return;
  }
  FuseServer* const server = FuseServer::Of(req);
  server->RunOnWorker([=] {
    const Error error = action(server->fs());
    if (error == Error::kOk) {
      fuse_reply_ioctl(req, 0, nullptr, 0);
    } else {
      ReplyError(req, error);
    }
  });
}

// The caller waits in its ioctl: what it points to stays.
uint32_t FlagFromCaller(pid_t caller, const void* argument) {
  uint32_t flag = kGoingDefault;
  const iovec ours = {&flag, sizeof(flag)};
  const iovec theirs = {const_cast<void*>(argument), sizeof(flag)};
  if (process_vm_readv(caller, &ours, 1, &theirs, 1, 0) == ssize_t{sizeof(flag)}) return flag;
  LogWarning("the shutdown's flags cannot be read from process ", caller,
             ": everything is flushed");
  return kGoingDefault;
}

void Shutdown(fuse_req_t req, uint32_t flag) {
  ShutdownMode mode;
  switch (flag) {
    case kGoingDefault:
      mode = ShutdownMode::kFlushAll;
      break;
    case kGoingLogFlush:
      mode = ShutdownMode::kFlushLog;
      break;
    case kGoingNoLogFlush:
      mode = ShutdownMode::kNoFlush;
      break;
    default:
      fuse_reply_err(req, EINVAL);
      return;
  }
  RunForRoot(req, [mode](Filesystem& fs) { return fs.Shutdown(mode); });
}

}  // namespace

bool HandleAdminIoctl(fuse_req_t req, unsigned command, const void* argument, const void* in,
                      size_t in_size) {
  switch (command) {
    case kIoctlFreeze:
      RunForRoot(req, [](Filesystem& fs) { return fs.Freeze(); });
      return true;
    case kIoctlThaw:
      RunForRoot(req, [](Filesystem& fs) { return fs.Thaw(); });
      return true;
    case kIoctlShutdown: {
      uint32_t flag = kGoingDefault;
      if (in_size < sizeof(flag)) return false;
      std::memcpy(&flag, in, sizeof(flag));
      Shutdown(req, flag);
      return true;
    }
    case kIoctlGoingDown: {
      const Caller caller = CallerOf(req);
      // Of others nothing is read, nor said in the log; they are refused in any case.
      Shutdown(req, caller.privileged() ? FlagFromCaller(caller.pid, argument) : kGoingDefault);
      return true;
    }
    default:
      return false;
  }
}

}  // namespace sluice
