// SPDX-License-Identifier: Apache-2.0
//
// Standing still: freeze, for a copy of the image while it is mounted, and shutdown, which stops
// the filesystem at once and for good, as a crash would (ext4's EXT4_IOC_SHUTDOWN).
#include <string>

#include "base/log.h"
#include "fs/filesystem.h"
#include "fs/filesystem_impl.h"

namespace sluice {
namespace {

// Everything dirty goes to its place, the log empties, and the image says that it is clean. The
// gate is closed: nobody makes anything dirty meanwhile.
Error Quiesce(Filesystem::Impl* fs) {
  fs->flusher->FlushAll();
  RETURN_IF_ERROR(WriteAllLazyFields(fs));
  RETURN_IF_ERROR(fs->journal->Flush());
  const bool dirty =
      !fs->inodes->Collect([](Inode& inode) { return inode.pages.dirty_pages() > 0; }).empty();
  if (dirty) return Error::kIo;
  return WriteStateBits(fs, 0, format::kStateMounted);
}

}  // namespace

Error Filesystem::Freeze() {
  Impl* fs = impl_.get();
  RETURN_IF_ERROR(fs->CheckAlive());
  if (fs->journal == nullptr || read_only()) return Error::kReadOnly;
  // Deletions give up their claims now rather than being cut in two; what comes later waits.
  fs->inodes->DrainReaper();
  RETURN_IF_ERROR(fs->gate.BeginClose());
  const Error error = Quiesce(fs);
  if (error != Error::kOk) {
    LogError("the filesystem could not be frozen: ", std::string(ErrorText(error)));
    // It may have been marked clean.
    if (!fs->journal->aborted()) IgnoreError(WriteStateBits(fs, format::kStateMounted, 0));
  }
  fs->gate.EndClose(error == Error::kOk);
  return error;
}

Error Filesystem::Thaw() {
  Impl* fs = impl_.get();
  RETURN_IF_ERROR(fs->gate.BeginOpen());
  // Before anybody changes anything: the image is in use again.
  const Error error =
      fs->shut_down.load() ? Error::kOk : WriteStateBits(fs, format::kStateMounted, 0);
  if (error != Error::kOk) {
    LogError("the filesystem could not be thawed: ", std::string(ErrorText(error)));
  }
  fs->gate.EndOpen(error == Error::kOk);
  return error;
}

Error Filesystem::Shutdown(ShutdownMode mode) {
  Impl* fs = impl_.get();
  if (fs->journal == nullptr) {
    fs->shut_down.store(true);
    return Error::kOk;
  }
  bool closed = false;
  if (mode == ShutdownMode::kFlushAll && !fs->shut_down.load()) {
    const Error error = Freeze();
    // Frozen already, everything is where it should be.
    if (error != Error::kOk && error != Error::kBusy) return error;
    closed = error == Error::kOk;
  }
  if (fs->shut_down.exchange(true)) {
    if (closed) IgnoreError(Thaw());
    return Error::kOk;
  }
  LogWarning("shutting down the filesystem on request");
  fs->flusher->StopWriting();
  if (mode == ShutdownMode::kFlushLog) IgnoreError(fs->journal->CommitAll(CommitReason::kSync));
  fs->journal->Abort(Error::kShutdown, "shut down on request");
  // Whoever is parked comes in and is told.
  fs->gate.WaitSettled();
  IgnoreError(Thaw());
  return Error::kOk;
}

}  // namespace sluice
