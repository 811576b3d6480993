// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/replay_token.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "format/block_header.h"
#include "tests/crash/explorer.h"
#include "tests/crash/workloads.h"

namespace sluice::crash {
namespace {

struct Case {
  const Setting* setting;
  std::string workload;
};

const Setting* SettingNamed(std::string_view name) {
  for (const Setting& setting : Settings()) {
    if (setting.name == name) return &setting;
  }
  return nullptr;
}

// "<setting>: <workload>" of generated ones, "[recovery of ]<workload's name>/<setting>" of others.
std::optional<Case> FindCase(std::string name) {
  const size_t colon = name.find(": ");
  if (colon != std::string::npos) {
    const Setting* const setting = SettingNamed(name.substr(0, colon));
    if (setting == nullptr) return std::nullopt;
    return Case{setting, name.substr(colon + 2)};
  }
  constexpr std::string_view kRecovery = "recovery of ";
  if (name.starts_with(kRecovery)) name.erase(0, kRecovery.size());
  const size_t slash = name.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const Setting* const setting = SettingNamed(name.substr(slash + 1));
  for (const Workload& workload : Workloads()) {
    if (setting != nullptr && workload.name == name.substr(0, slash)) {
      return Case{setting, workload.text};
    }
  }
  return std::nullopt;
}

const char* BetweenText(Between between) {
  switch (between) {
    case Between::kNothing:
      return "nothing";
    case Between::kWriteout:
      return "the flusher writes all data";
    case Between::kCommit:
      return "a commit";
    case Between::kCheckpoint:
      return "a commit and a checkpoint";
  }
  return "?";
}

void PrintSetting(const Setting& setting) {
  std::printf("setting \"%s\": mkfs on %s; %safter each operation: %s%s\n", setting.name,
              setting.base == Base::kPoison ? "poison" : "an older filesystem of the same UUID",
              setting.dirsync ? "mounted with dirsync; " : "", BetweenText(setting.between),
              setting.near_wrap ? "; the log's head shortly before the ring's end" : "");
}

std::string PromiseText(const History& history, size_t moment) {
  const Promise& promise = history.promise(moment);
  std::string text = absl::StrCat("names of moment ", promise.metadata);
  for (const auto& [file, since] : promise.data) {
    absl::StrAppend(&text, ", data of file ", file, " of moment ", since);
  }
  return text;
}

void PrintWorkload(const Recording& recording, size_t returned) {
  const History& history = recording.history;
  std::printf("moment 0: A/ B/ A/C/ A/foo (6000 bytes) A/bar (empty) B/old (4096), durable\n");
  for (size_t moment = 1; moment <= history.last(); ++moment) {
    const NodeId file = history.written(moment);
    std::printf("moment %zu: %-30s%s; promised: %s%s\n", moment,
                history.operation(moment).text.c_str(),
                file == 0 ? "" : absl::StrCat(" [file ", file, "]").c_str(),
                PromiseText(history, moment).c_str(),
                moment == returned + 1 ? "   <-- may have been under way" : "");
    if (moment == returned) std::printf("--- the crash came after this had returned ---\n");
  }
}

const char* KindText(uint16_t kind) {
  switch (static_cast<format::BlockKind>(kind)) {
    case format::BlockKind::kGroupTable:
      return "group table";
    case format::BlockKind::kExtent:
      return "extent block";
    case format::BlockKind::kDirectory:
      return "directory block";
    case format::BlockKind::kXattr:
      return "xattr block";
    case format::BlockKind::kOrphan:
      return "orphan file";
    case format::BlockKind::kLogDescriptor:
      return "log: descriptor and images";
    case format::BlockKind::kLogRevoke:
      return "log: revokes, descriptor, images";
    case format::BlockKind::kLogCommit:
      return "log: commit record";
    default:
      return "metadata";
  }
}

// What somebody has written, by its first bytes.
std::string ContentsText(const CrashLog::Write& write) {
  if (write.data.empty()) return "discarded";
  format::BlockHeader header;
  std::memcpy(&header, write.data.data(), sizeof(header));
  if (header.magic == format::kBlockMagic) return KindText(header.kind);
  const auto* const bytes = reinterpret_cast<const char*>(write.data.data());
  return History::DescribeBytes({bytes, kSectorSize}, 0);
}

void PrintState(const CrashStates& states, const CrashLog& log) {
  const std::vector<CrashStates::Unflushed> writes = states.Describe();
  std::printf("%zu writes were not flushed at the crash:\n", writes.size());
  for (const CrashStates::Unflushed& unflushed : writes) {
    const CrashLog::Write& write = *log.writes[unflushed.write];
    std::printf("  write %lu: block %lu + %lu, %lu bytes: %s (%s)\n", unflushed.write,
                write.offset / kBlockSize, write.offset % kBlockSize, write.length,
                unflushed.what.c_str(), ContentsText(write).c_str());
  }
}

}  // namespace

int ReplayToken(const std::string& token) {
  const size_t bar = token.find('|');
  const std::string name = token.substr(0, bar);
  const std::optional<Case> found = FindCase(name);
  if (bar == std::string::npos || !found) {
    std::printf("this is no token: %s\n", token.c_str());
    return 2;
  }
  const std::string state = token.substr(bar + 1);
  PrintSetting(*found->setting);
  const Recording recording = RunWorkload(found->workload, *found->setting);
  if (!recording.problem.empty()) {
    std::printf("the workload fails before any crash:\n%s\n", recording.problem.c_str());
    return 1;
  }
  const std::vector<std::string> fields = absl::StrSplit(state, '|');
  CrashStates states(recording.log);
  if (states.GoTo(fields[0]) != Error::kOk) {
    std::printf("the token is of another version of the program: this run writes otherwise\n");
    return 2;
  }
  PrintWorkload(recording, states.Mark().value_or(0));
  PrintState(states, recording.log);
  if (fields.size() > 1) std::printf("and the recovery is cut off itself: %s\n", fields[1].c_str());
  const Exploration exploration = Revisit(name, recording, state);
  for (const std::string& violation : exploration.violations) {
    std::printf("\nVIOLATION: %s\n", violation.c_str());
  }
  if (!exploration.violations.empty()) return 1;
  std::printf("\nthe state is allowed, and recovers and works\n");
  return 0;
}

}  // namespace sluice::crash
