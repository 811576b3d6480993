// SPDX-License-Identifier: Apache-2.0
//
// What the superblock's second sector says about the image, and what happens when damage is met.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/aligned_buffer.h"
#include "base/log.h"
#include "fs/filesystem.h"
#include "fs/filesystem_impl.h"

namespace sluice {
namespace {

// Places of damage remembered, so that each is told once; more than this are not told at all.
constexpr size_t kMaxReported = 1000;

uint64_t PlaceOf(InodeNumber ino, BlockNumber block, std::string_view what) {
  return absl::HashOf(ino, block, what);
}

// Notes the damage for the state sector; false if it is known already.
bool Note(Filesystem::Impl* fs, InodeNumber ino, BlockNumber block, std::string_view what) {
  MutexLock lock(&fs->state_mutex);
  if (fs->reported.size() >= kMaxReported) return false;
  if (!fs->reported.insert(PlaceOf(ino, block, what)).second) return false;
  format::SuperSector1& state = fs->state;
  const Nanoseconds now = fs->Now();
  if (state.error_count == 0) state.first_error_time = now;
  state.error_count = state.error_count + 1;
  state.last_error_time = now;
  state.last_error_inode = ino;
  state.last_error_block = block;
  std::memset(state.last_error_text, 0, sizeof(state.last_error_text));
  std::memcpy(state.last_error_text, what.data(),
              std::min(what.size(), sizeof(state.last_error_text) - 1));
  state.state = state.state | format::kStateError;
  return true;
}

// On the reaper's thread. Also after the journal has stopped: the sector is not the log's affair,
// and who mounts or checks the image next must know.
void RecordError(Filesystem::Impl* fs) {
  if (!fs->shut_down.load()) {
    const Error error = WriteState(fs);
    if (error != Error::kOk) {
      LogError("the error could not be noted in the superblock: ", std::string(ErrorText(error)));
    }
  }
  if (fs->options.on_error != OnError::kPanic) return;
  LogError("stopping, as errors=panic asks");
  std::abort();
}

Error WriteStateSector(Device* device, const format::Superblock& super) {
  AlignedBuffer block(kBlockSize);
  format::SerializeSuperblock(super, 0, format::BlockSpan(block.data(), kBlockSize));
  RETURN_IF_ERROR(device->Write(kSectorSize, block.span().subspan(kSectorSize, kSectorSize)));
  return device->Flush();
}

}  // namespace

Error WriteState(Filesystem::Impl* fs) {
  format::Superblock super = fs->super;
  {
    MutexLock lock(&fs->state_mutex);
    while (fs->writing_state) fs->state_written.Wait(&fs->state_mutex);
    fs->writing_state = true;
    fs->state.last_write = fs->Now();
    super.state = fs->state;
  }
  const Error result = WriteStateSector(fs->device, super);
  MutexLock lock(&fs->state_mutex);
  fs->writing_state = false;
  fs->state_written.SignalAll();
  return result;
}

Error WriteStateBits(Filesystem::Impl* fs, uint32_t set, uint32_t clear) {
  {
    MutexLock lock(&fs->state_mutex);
    fs->state.state = (fs->state.state & ~clear) | set;
  }
  return WriteState(fs);
}

void JournalStopped(Filesystem::Impl* fs, Error error, const std::string& reason) {
  if (!fs->read_only.exchange(true)) {
    LogError("the journal has stopped; the filesystem is now read-only");
  }
  if (fs->shut_down.load()) return;
  const std::string text = absl::StrCat("journal: ", reason, ": ", std::string(ErrorText(error)));
  if (!Note(fs, 0, 0, text)) return;
  fs->inodes->Post([fs] { RecordError(fs); });
}

void Filesystem::ReportCorruption(InodeNumber ino, BlockNumber block, std::string_view what) {
  Impl* fs = impl_.get();
  if (!Note(fs, ino, block, what)) return;
  LogError("corruption in ", fs->options.mountpoint.empty() ? "the image" : fs->options.mountpoint,
           ": inode ", ino, ", block ", block, ": ", std::string(what), "; run fsck.sluicefs");
  if (fs->journal == nullptr || fs->inodes == nullptr) return;  // read-only, or still mounting
  if (fs->options.on_error == OnError::kRemountReadOnly && !fs->read_only.exchange(true)) {
    LogError("the filesystem is now read-only, as errors=remount-ro asks");
  }
  fs->inodes->Post([fs] { RecordError(fs); });
}

}  // namespace sluice
