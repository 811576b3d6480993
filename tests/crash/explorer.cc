// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/explorer.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "tests/crash/deterministic_random.h"
#include "tests/crash/judge.h"
#include "tests/crash/tree.h"
#include "tests/support/fs_fixture.h"
#include "tests/support/fsck_problems.h"

namespace sluice::crash {
namespace {

using testing_support::Files;
using testing_support::FsckProblems;

constexpr uint64_t kDefaultStates = 300;
// One state of so many is checked before its recovery too, and mounted once more after its use.
constexpr uint64_t kRemountEvery = 8;
constexpr char kAfterwards[] = "used after the crash";

// What the program logs while a state is looked at: errors are violations.
class ErrorLog {
 public:
  ErrorLog() {
    SetLogSink([this](LogLevel level, std::string_view line) {
      if (level == LogLevel::kError) absl::StrAppend(&lines_, std::string(line), "\n");
    });
  }
  ~ErrorLog() { SetLogSink({}); }
  std::string Take() { return std::exchange(lines_, {}); }

 private:
  std::string lines_;
};

bool AllStates() {
  const char* const wanted = std::getenv("CRASH_STATES");
  return wanted != nullptr && std::string_view(wanted) == "all";
}

uint64_t StatesWanted(const ExploreOptions& options) {
  if (options.states != 0) return options.states;
  const char* const wanted = std::getenv("CRASH_STATES");
  if (wanted == nullptr) return kDefaultStates;
  if (AllStates()) return UINT64_MAX;
  return std::strtoull(wanted, nullptr, 10);
}

CrashOptions Limits(bool all) {
  if (all) return {};
  return {.exhaustive = 7, .samples = 60};
}

class Explorer {
 public:
  Explorer(const std::string& name, const Recording& recording, const ExploreOptions& options)
      : name_(name), recording_(recording), options_(options) {}

  Exploration Run() {
    const char* const token = std::getenv("CRASH_TOKEN");
    if (token == nullptr) {
      Enumerate();
    } else {
      Replay(token);
    }
    return std::move(result_);
  }

 private:
  void Enumerate();
  void Replay(const std::string& token);
  void Violation(const std::string& token, const std::string& what);
  void StartOver();
  // Looks at one state of the run.
  void Look(const CrashStates& states);
  // Crashes the mount of a state of the run again, in up to so many states, or the one of a token.
  void LookAtRecovery(const CrashStates& states, const std::string& inner_token);

  std::string CheckState(MemoryDevice* device, size_t returned, bool remount,
                         std::string* fingerprint);
  std::string CheckMounted(Filesystem* fs, size_t returned, Tree* tree);
  std::string Mount(Device* device, std::unique_ptr<Filesystem>* fs);
  std::string Use(Filesystem* fs);
  std::string Grow(Filesystem* fs, const Tree& tree);
  std::string CheckUse(Device* device);

  const std::string& name_;
  const Recording& recording_;
  const ExploreOptions& options_;
  StepClock clock_;
  ErrorLog errors_;
  Exploration result_;
};

void Explorer::Violation(const std::string& token, const std::string& what) {
  result_.violations.push_back(absl::StrCat(what, "\nCRASH_TOKEN='", name_, "|", token, "'"));
}

void Explorer::Enumerate() {
  const bool all = options_.states == 0 && AllStates();
  const CrashOptions limits = Limits(all);
  uint64_t wanted = StatesWanted(options_);
  if (!all) {
    CrashStates count(recording_.log, limits);
    while (count.Next()) ++result_.possible;
  }
  CrashStates states(recording_.log, limits);
  for (uint64_t i = 0; states.Next(); ++i) {
    // Evenly spread: state i is taken when the share passes a whole number.
    if (!all && wanted < result_.possible &&
        (i + 1) * wanted / result_.possible == i * wanted / result_.possible) {
      continue;
    }
    Look(states);
    if (result_.violations.size() >= options_.max_violations) break;
  }
  if (all) result_.possible = states.count();
}

void Explorer::Replay(const std::string& token) {
  const std::vector<std::string> fields = absl::StrSplit(token, '|');
  if (fields.size() < 2 || fields[0] != name_) {
    result_.skipped = true;
    return;
  }
  CrashStates states(recording_.log);
  if (states.GoTo(fields[1]) != Error::kOk) {
    result_.violations.push_back("the token is not of this version of the case");
  } else if (fields.size() > 2) {
    LookAtRecovery(states, fields[2]);
  } else {
    Look(states);
  }
}

// A token must lead to the same bytes, whatever was looked at before.
void Explorer::StartOver() {
  RestartRandom();
  clock_ = StepClock();
}

void Explorer::Look(const CrashStates& states) {
  StartOver();
  const size_t returned = states.Mark().value_or(0);
  const bool remount = result_.states++ % kRemountEvery == 0;
  const std::string problem = CheckState(states.Materialize().get(), returned, remount, nullptr);
  if (!problem.empty()) return Violation(states.Token(), problem);
  if (options_.recovery_states > 0) LookAtRecovery(states, "");
}

void Explorer::LookAtRecovery(const CrashStates& states, const std::string& inner_token) {
  StartOver();
  const size_t returned = states.Mark().value_or(0);
  CrashDevice device(states.Materialize()->Image());
  std::unique_ptr<Filesystem> fs;
  std::string problem = Mount(&device, &fs);
  Tree tree;
  if (problem.empty()) problem = CheckMounted(fs.get(), returned, &tree);
  fs.reset();
  if (!problem.empty()) return Violation(states.Token(), problem);
  const std::string expected = Fingerprint(tree);

  const CrashLog log = device.TakeLog();
  const auto look = [&](const CrashStates& inner) {
    ++result_.recovery_states;
    std::string got;
    problem = CheckState(inner.Materialize().get(), returned, false, &got);
    if (problem.empty() && got != expected) {
      problem = absl::StrCat("the interrupted recovery leads elsewhere:\n", got, "instead of\n",
                             expected);
    }
    if (!problem.empty()) Violation(absl::StrCat(states.Token(), "|", inner.Token()), problem);
  };
  CrashStates inner(log, {.exhaustive = 6, .samples = 20});
  if (!inner_token.empty()) {
    if (inner.GoTo(inner_token) == Error::kOk) return look(inner);
    result_.violations.push_back("the token is not of this version of the case");
    return;
  }
  CrashStates count(log, {.exhaustive = 6, .samples = 20});
  uint64_t possible = 0;
  while (count.Next()) ++possible;
  const uint64_t wanted = std::min(options_.recovery_states, possible);
  for (uint64_t i = 0; inner.Next(); ++i) {
    if ((i + 1) * wanted / possible == i * wanted / possible) continue;
    look(inner);
    if (result_.violations.size() >= options_.max_violations) return;
  }
}

std::string Explorer::Mount(Device* device, std::unique_ptr<Filesystem>* fs) {
  std::string message;
  auto mounted = Filesystem::Mount(device, CrashMountOptions(&clock_), &message);
  if (!mounted.ok()) {
    return absl::StrCat("does not mount: ", message, " (", std::string(ErrorText(mounted.error())),
                        ")\n", errors_.Take());
  }
  *fs = std::move(mounted).value();
  const std::string errors = errors_.Take();
  return errors.empty() ? "" : "the mount complains: " + errors;
}

std::string Explorer::CheckMounted(Filesystem* fs, size_t returned, Tree* tree) {
  std::string problem = ReadTree(fs, tree);
  const std::string errors = errors_.Take();
  if (problem.empty() && !errors.empty()) problem = "it complains: " + errors;
  if (!problem.empty()) return absl::StrCat(problem, "\nthere is:\n", Describe(*tree));
  return Judge(recording_.history, returned, *tree);
}

std::string Explorer::CheckState(MemoryDevice* device, size_t returned, bool remount,
                                 std::string* fingerprint) {
  std::string problem = remount ? FsckProblems(device) : "";
  if (!problem.empty()) return "before the recovery: " + problem;
  std::unique_ptr<Filesystem> fs;
  problem = Mount(device, &fs);
  Tree tree;
  if (problem.empty()) problem = CheckMounted(fs.get(), returned, &tree);
  if (fingerprint != nullptr) *fingerprint = Fingerprint(tree);
  if (problem.empty()) problem = Grow(fs.get(), tree);
  if (problem.empty()) problem = Use(fs.get());
  if (!problem.empty()) return problem;
  if (fs->Unmount() != Error::kOk) return "does not unmount: " + errors_.Take();
  fs.reset();
  problem = FsckProblems(device);
  if (!problem.empty()) return "after the recovery: " + problem;
  return remount ? CheckUse(device) : "";
}

// What a crash has left behind the end of a file does not come to light when the file grows.
std::string Explorer::Grow(Filesystem* fs, const Tree& tree) {
  const Files files(fs);
  for (const auto& [ino, node] : tree.nodes) {
    const uint64_t size = node.attributes.size;
    if (!S_ISREG(node.attributes.mode) || size % kBlockSize == 0) continue;
    const auto inode =
        RunBlocking([&, id = ino](Attempt& attempt) { return fs->GetInode(attempt, id); });
    if (!inode.ok()) return "a file is gone: " + std::string(ErrorText(inode.error()));
    AttributeChange change;
    change.size = size + kBlockSize;
    if (!files.SetAttributes(*inode, change).ok()) return "a file cannot grow: " + errors_.Take();
    const Result<std::string> content = files.Read(*inode, 0, *change.size);
    if (!content.ok() || *content != node.content + std::string(kBlockSize, '\0')) {
      return absl::StrCat("inode ", ino, " shows what lay behind its end of ", size, "\n",
                          Describe(tree));
    }
  }
  return "";
}

// A file is created, written and synced.
std::string Explorer::Use(Filesystem* fs) {
  const Files files(fs);
  const Result<InodeRef> file = files.Create(files.Root(), kAfterwards);
  if (!file.ok()) {
    return "no file can be created: " + std::string(ErrorText(file.error())) + errors_.Take();
  }
  Error error = files.Write(*file, 0, kAfterwards);
  Error synced = Error::kWouldBlock;
  if (error == Error::kOk) {
    error = RunBlocking([&](Attempt& attempt) {
      return fs->Fsync(attempt, nullptr, *file, false, [&](Error e) { synced = e; });
    });
  }
  if (error == Error::kOk) error = synced;
  if (error == Error::kOk) return "";
  return "it cannot be used: " + std::string(ErrorText(error)) + errors_.Take();
}

std::string Explorer::CheckUse(Device* device) {
  std::unique_ptr<Filesystem> fs;
  std::string problem = Mount(device, &fs);
  if (!problem.empty()) return "the second time: " + problem;
  {
    const Files files(fs.get());
    const Result<InodeRef> file = files.Lookup(files.Root(), kAfterwards);
    if (!file.ok()) return "what was created after the recovery is gone";
    const Result<std::string> text = files.Read(*file, 0, 100);
    if (!text.ok() || *text != kAfterwards) {
      return "what was synced after the recovery is gone";
    }
  }
  return fs->Unmount() == Error::kOk ? "" : "does not unmount the second time";
}

}  // namespace

Exploration Explore(const std::string& name, const Recording& recording,
                    const ExploreOptions& options) {
  return Explorer(name, recording, options).Run();
}

}  // namespace sluice::crash
