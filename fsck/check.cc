// SPDX-License-Identifier: Apache-2.0
#include "fsck/check.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fsck/check_state.h"

namespace sluice {

namespace {

bool SameFinding(const Finding& a, const Finding& b) {
  return a.id == b.id && a.ino == b.ino && a.other == b.other && a.group == b.group &&
         a.block == b.block;
}

// What was asked for and is no longer found has been repaired.
void NoteRepaired(const std::vector<const Finding*>& accepted, RepairOutcome* outcome) {
  for (Finding& finding : outcome->before.findings) {
    if (std::ranges::find(accepted, &finding) == accepted.end()) continue;
    finding.repaired = std::ranges::none_of(
        outcome->after.findings, [&](const Finding& left) { return SameFinding(finding, left); });
  }
}

bool Found(const CheckReport& report, FindingId id) {
  return std::ranges::any_of(report.findings, [id](const Finding& f) { return f.id == id; });
}

// A filesystem with errors must not be passed over by the next check.
Error NoteResult(Device* device, Nanoseconds now, const CheckReport& report, LogArea* log) {
  if (!report.complete || Found(report, FindingId::kSuperblockBad)) return Error::kOk;
  if (report.errors == 0) {
    if (log->state.error != 0) {
      log->state.error = 0;
      RETURN_IF_ERROR(log->WriteState(device));
    }
    return WriteCheckedState(device, report.super, now, /*checked=*/true);
  }
  if ((report.super.state.state & format::kStateError) != 0) return Error::kOk;
  format::Superblock super = report.super;
  super.state.state = super.state.state | format::kStateError;
  return WriteCheckedState(device, super, now, /*checked=*/false);
}

uint64_t Sum(const std::vector<GroupInfo>& groups, uint64_t (*value)(const GroupInfo&)) {
  uint64_t sum = 0;
  for (const GroupInfo& group : groups) sum += value(group);
  return sum;
}

std::string ReasonToCheck(const CheckState& state, const CheckReport& report) {
  if (state.backup_used != 0) return "its superblock is damaged";
  if (report.super.state_was_bad) return "the state in its superblock is damaged";
  if (!state.log_ok) return "its journal is damaged";
  if (report.errors != 0) return "its group table is damaged";
  if ((report.super.state.state & format::kStateError) != 0 || state.log.state.error != 0) {
    return "it was marked as having errors";
  }
  if ((report.super.state.state & format::kStateMounted) != 0 || state.log.state.tail_block != 0) {
    return "it was not cleanly unmounted";
  }
  return "";
}

}  // namespace

Error RunPasses(CheckState* state, OpenMode mode) {
  bool usable = false;
  RETURN_IF_ERROR(OpenPass(state, mode, &usable));
  if (!usable) return Error::kOk;
  RETURN_IF_ERROR(GroupsPass(state));
  RETURN_IF_ERROR(InodesPass(state));
  RETURN_IF_ERROR(SharedPass(state));
  OrphansPass(state);
  RETURN_IF_ERROR(NamesPass(state));
  LinksPass(state);
  RETURN_IF_ERROR(BitmapsPass(state));
  MarkRepairable(state);
  if (state->options().find_paths) RETURN_IF_ERROR(PathsPass(state));
  state->report()->complete = true;
  return Error::kOk;
}

Error CheckImage(Device* device, const CheckOptions& options, CheckReport* report) {
  *report = {};
  CheckState state(device, options, report);
  return RunPasses(&state, {.replay_for_good = false});
}

Error CheckAndRepair(Device* device, const CheckOptions& options, const ApproveRepair& approve,
                     Nanoseconds now, RepairOutcome* outcome) {
  *outcome = {};
  CheckState state(device, options, &outcome->before);
  RETURN_IF_ERROR(RunPasses(&state, {.replay_for_good = true}));
  if (!outcome->before.complete) {
    outcome->after = outcome->before;
    return Error::kOk;
  }
  std::vector<const Finding*> accepted;
  for (const Finding& finding : outcome->before.findings) {
    // A replay writes the journal's superblock; that is not asked for.
    const bool replayed = finding.id == FindingId::kJournalSlotBad && outcome->before.replay.needed;
    if (finding.repairable && (replayed || approve(finding))) accepted.push_back(&finding);
  }
  if (accepted.empty()) {
    outcome->after = outcome->before;
  } else {
    RETURN_IF_ERROR(ApplyRepairs(&state, device, accepted));
    outcome->wrote_repairs = true;
    RETURN_IF_ERROR(CheckImage(device, options, &outcome->after));
    NoteRepaired(accepted, outcome);
  }
  return NoteResult(device, now, outcome->after, &state.log);
}

Error SummarizeImage(Device* device, ImageSummary* summary) {
  *summary = {};
  CheckReport report;
  const CheckOptions options;
  CheckState state(device, options, &report);
  bool usable = false;
  const Error error = OpenSuperblock(&state, &usable);
  summary->super = report.super;
  summary->message = report.message;
  RETURN_IF_ERROR(error);
  if (!usable) {
    summary->reason = "its superblock is damaged";
    return Error::kOk;
  }
  OpenLog(&state);
  RETURN_IF_ERROR(GroupsPass(&state));
  summary->log_empty = state.log_ok && state.log.state.tail_block == 0;
  summary->used_inodes =
      state.geometry.inode_count() -
      Sum(state.groups, [](const GroupInfo& group) -> uint64_t { return group.desc.free_inodes; });
  summary->used_blocks =
      state.geometry.block_count() -
      Sum(state.groups, [](const GroupInfo& group) -> uint64_t { return group.desc.free_blocks; });
  summary->reason = ReasonToCheck(state, report);
  summary->only_replay = summary->reason == "it was not cleanly unmounted";
  return Error::kOk;
}

Error ReplayOnly(Device* device, Nanoseconds now, ReplayReport* replay, std::string* problem) {
  CheckReport report;
  const CheckOptions options;
  CheckState state(device, options, &report);
  bool usable = false;
  RETURN_IF_ERROR(OpenSuperblock(&state, &usable));
  if (!usable) return Error::kCorrupt;
  OpenLog(&state);
  if (!state.log_ok) return Error::kCorrupt;
  ASSIGN_OR_RETURN(*replay, Replay(device, state.geometry, &state.log, problem));
  RETURN_IF_ERROR(HealJournalSlots(&state));
  return WriteCheckedState(device, report.super, now, /*checked=*/false);
}

}  // namespace sluice
