// SPDX-License-Identifier: Apache-2.0
//
// The superblock, its copies, the journal.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "format/debug_string.h"
#include "format/journal_device.h"
#include "format/log_record.h"
#include "fsck/check_state.h"

namespace sluice {

namespace {

using format::ConstBlockSpan;
using format::Superblock;

bool HasMagic(const std::byte* sector) {
  return *format::As<format::Le64>(sector) == format::kSuperMagic;
}

// Whether block 0 held a superblock of ours: one of its sectors still says so, or it was wiped. An
// old backup within another filesystem's image is not a filesystem.
bool WasOurs(ConstBlockSpan block) {
  return HasMagic(block.data()) || HasMagic(block.data() + kSectorSize) ||
         std::all_of(block.begin(), block.end(), [](std::byte b) { return b == std::byte{0}; });
}

// A backup cannot be told from a file's data that looks like one, but for the group it names.
bool FindBackup(CheckState* state, Superblock* super, GroupNumber* where) {
  const uint64_t blocks = state->device()->size() >> kBlockShift;
  AlignedBuffer block(kBlockSize);
  for (uint64_t start = format::kBlocksPerGroup; start < blocks; start += format::kBlocksPerGroup) {
    const GroupNumber group = static_cast<GroupNumber>(start / format::kBlocksPerGroup);
    if (!format::IsBackupGroup(group)) continue;
    if (state->device()->Read(start << kBlockShift, block.span()) != Error::kOk) continue;
    const ConstBlockSpan span(block.data(), kBlockSize);
    if (format::ParseSuperblock(span, super, nullptr) != Error::kOk) continue;
    if (super->fixed.backup_group != group) continue;
    *where = group;
    return true;
  }
  return false;
}

Error UseBackup(CheckState* state, Error error, std::string reason, bool was_ours) {
  CheckReport* report = state->report();
  report->message = reason;
  if (error == Error::kNewerFormat) return error;
  if (!was_ours) {
    report->message = "not a sluicefs image";
    return Error::kUnknownFormat;
  }
  if (!FindBackup(state, &report->super, &state->backup_used)) {
    absl::StrAppend(&report->message, ", and no backup of it is good");
    return error;
  }
  report->message.clear();
  // What the image's state was is not known: backups do not follow it.
  report->super.state.state = report->super.state.state | format::kStateMounted;
  Finding* finding = state->Report(FindingId::kSuperblockBad);
  finding->text = std::move(reason);
  finding->group = state->backup_used;
  return Error::kOk;
}

Error ReadPrimary(CheckState* state) {
  CheckReport* report = state->report();
  if (state->device()->size() < kBlockSize) {
    report->message = "not a sluicefs image: it is too small";
    return Error::kUnknownFormat;
  }
  AlignedBuffer block(kBlockSize);
  const ConstBlockSpan span(block.data(), kBlockSize);
  const Error read = state->device()->Read(0, block.span());
  if (read != Error::kOk) {
    return UseBackup(state, read, absl::StrCat("it cannot be read: ", std::string(ErrorText(read))),
                     true);
  }
  std::string reason;
  const Error error = format::ParseSuperblock(span, &report->super, &reason);
  if (error != Error::kOk) return UseBackup(state, error, reason, WasOurs(span));
  if (report->super.fixed.backup_group != 0) {
    return UseBackup(state, Error::kCorrupt, "it is the copy of a backup", true);
  }
  if (report->super.state_was_bad) state->Report(FindingId::kStateSectorBad);
  return Error::kOk;
}

void CheckBackup(CheckState* state, GroupNumber group) {
  const BlockNumber block = state->geometry.GroupStart(group);
  Superblock copy;
  std::string reason;
  const Error error = format::ParseSuperblock(state->ReadOne(block), &copy, &reason);
  if (error == Error::kOk) {
    format::SuperSector0 expected = state->report()->super.fixed;
    expected.backup_group = group;
    expected.checksum = uint64_t{copy.fixed.checksum};
    if (std::memcmp(&expected, &copy.fixed, sizeof(expected)) == 0) return;
    reason = "it differs from the superblock";
  }
  state->bad_backups.push_back(group);
  Finding* finding = state->Report(FindingId::kBackupBad);
  finding->group = group;
  finding->block = block;
  finding->text = reason;
}

void NoteRecordedError(CheckState* state) {
  const format::SuperSector1& sector = state->report()->super.state;
  if ((sector.state & format::kStateError) == 0 || state->report()->super.state_was_bad) return;
  Finding* finding = state->Report(FindingId::kErrorRecorded);
  finding->ino = sector.last_error_inode;
  finding->block = sector.last_error_block;
  finding->count = sector.error_count;
  finding->text = format::PrintableText(sector.last_error_text, sizeof(sector.last_error_text));
}

void CheckSlots(CheckState* state) {
  // A crash may tear the slot that was being written; of a clean image both are good.
  if ((state->report()->super.state.state & format::kStateMounted) != 0) return;
  for (uint32_t slot = 0; slot < format::kLogFirst; ++slot) {
    if (JournalSlotIsGood(state, slot)) continue;
    uint64_t contiguous = 0;
    Finding* finding = state->Report(FindingId::kJournalSlotBad);
    finding->found = slot;
    finding->block = state->log.DeviceOffset(slot, &contiguous) >> kBlockShift;
  }
}

Error ReplayLog(CheckState* state, OpenMode mode) {
  if (state->log.state.tail_block == 0) return Error::kOk;
  if (!mode.replay_for_good) state->UseOverlay();
  std::string problem;
  const Result<ReplayReport> replay =
      Replay(state->device(), state->geometry, &state->log, &problem);
  if (replay.ok()) {
    state->report()->replay = *replay;
    return Error::kOk;
  }
  // Nothing is damaged, but what is on the device is neither the old state nor the new one.
  if (replay.error() == Error::kNoSpace) {
    state->report()->message = absl::StrCat("the journal cannot be replayed: ", problem);
    return replay.error();
  }
  Finding* finding = state->Report(FindingId::kJournalDamaged);
  finding->text = problem.empty() ? std::string(ErrorText(replay.error())) : problem;
  return Error::kOk;
}

}  // namespace

bool JournalSlotIsGood(CheckState* state, uint32_t slot) {
  uint64_t contiguous = 0;
  const uint64_t offset = state->log.DeviceOffset(slot, &contiguous);
  format::JournalSuper super;
  std::memcpy(&super, state->ReadOne(offset >> kBlockShift).data(), sizeof(super));
  return format::CheckJournalSuper(state->seed(), super, state->log.blocks()) == Error::kOk;
}

Error HealJournalSlots(CheckState* state) {
  for (uint32_t slot = 0; slot < format::kLogFirst; ++slot) {
    if (JournalSlotIsGood(state, slot)) continue;
    // The one that is not in use is written.
    RETURN_IF_ERROR(state->log.WriteState(state->device()));
    RETURN_IF_ERROR(state->device()->Flush());
  }
  return Error::kOk;
}

Error OpenSuperblock(CheckState* state, bool* usable) {
  *usable = false;
  CheckReport* report = state->report();
  RETURN_IF_ERROR(ReadPrimary(state));
  if (format::MustBeReadOnly(report->super)) {
    report->message = absl::StrCat("unknown features 0x",
                                   absl::Hex(uint32_t{report->super.fixed.feature_ro_compat}));
    return Error::kNewerFormat;
  }
  const uint64_t blocks = state->device()->size() >> kBlockShift;
  if (blocks < report->super.fixed.block_count) {
    Finding* finding = state->Report(FindingId::kImageTruncated);
    finding->found = blocks;
    finding->expected = report->super.fixed.block_count;
    return Error::kOk;
  }
  if (format::HasExternalJournal(report->super.fixed) &&
      blocks < report->super.fixed.block_count + LogArea(report->super).blocks()) {
    report->message = "its journal is on another device, which was not given";
    return Error::kNoDevice;
  }
  const Result<format::Geometry> geometry = format::Geometry::Make(report->super);
  if (!geometry.ok()) {
    state->Report(FindingId::kLayoutImpossible);
    return Error::kOk;
  }
  state->geometry = *geometry;
  *usable = true;
  return Error::kOk;
}

Result<Superblock> FindSuperblock(Device* image, std::string* message) {
  CheckReport report;
  const CheckOptions options;
  CheckState state(image, options, &report);
  const Error error = ReadPrimary(&state);
  *message = report.message;
  if (error != Error::kOk) return error;
  return report.super;
}

void OpenLog(CheckState* state) {
  state->log = LogArea(state->report()->super);
  state->log_ok = state->log.ReadState(state->device()) == Error::kOk;
}

Error OpenPass(CheckState* state, OpenMode mode, bool* usable) {
  RETURN_IF_ERROR(OpenSuperblock(state, usable));
  if (!*usable) return Error::kOk;
  NoteRecordedError(state);
  for (GroupNumber group = 1; group < state->geometry.group_count(); ++group) {
    if (format::IsBackupGroup(group)) CheckBackup(state, group);
  }
  OpenLog(state);
  if (!state->log_ok) {
    state->Report(FindingId::kJournalSuperBad);
    return Error::kOk;
  }
  if (state->log.state.error != 0) state->Report(FindingId::kJournalAborted);
  CheckSlots(state);
  RETURN_IF_ERROR(ReplayLog(state, mode));
  const bool crashed = (state->report()->super.state.state & format::kStateMounted) != 0;
  return mode.replay_for_good && crashed ? HealJournalSlots(state) : Error::kOk;
}

}  // namespace sluice
