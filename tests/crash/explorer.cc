// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/explorer.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/crash/state_checker.h"
#include "tests/crash/tree.h"

namespace sluice::crash {
namespace {

constexpr uint64_t kDefaultStates = 300;
constexpr CrashOptions kFew = {.exhaustive = 7, .samples = 60};
constexpr CrashOptions kFewOfRecovery = {.exhaustive = 6, .samples = 20};

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

CrashOptions Limits(const ExploreOptions& options) {
  if (options.limits) return *options.limits;
  return options.states == 0 && AllStates() ? CrashOptions() : kFew;
}

// Item `i` of `possible` is one of `wanted` that are spread evenly.
bool Takes(uint64_t i, uint64_t wanted, uint64_t possible) {
  return wanted >= possible || (i + 1) * wanted / possible != i * wanted / possible;
}

class Explorer {
 public:
  Explorer(const std::string& name, const Recording& recording, const ExploreOptions& options)
      : name_(name), recording_(recording), options_(options), checker_(recording.history) {
    // A state depends on the operations up to the one under way.
    uint64_t hash = XXH3_64bits(recording.setting.data(), recording.setting.size());
    prefixes_.push_back(hash);
    for (size_t moment = 1; moment <= recording.history.last(); ++moment) {
      const std::string& text = recording.history.operation(moment).text;
      prefixes_.push_back(hash = XXH3_64bits_withSeed(text.data(), text.size(), hash));
    }
  }

  void Enumerate();
  void Replay(const std::string& token);
  Exploration Take() { return std::move(result_); }

 private:
  void Violation(const std::string& token, const std::string& what);
  bool Known(const CrashStates& states, bool insert);
  // Looks at one state of the run.
  void Look(const CrashStates& states);
  bool LookAt(const CrashStates& states, Depth depth);
  // Crashes the mount of a state of the run again, in up to so many states, or the one of a token.
  void LookAtRecovery(const CrashStates& states, const std::string& inner_token);

  const std::string& name_;
  const Recording& recording_;
  const ExploreOptions& options_;
  StateChecker checker_;
  std::vector<uint64_t> prefixes_;
  Exploration result_;
};

void Explorer::Violation(const std::string& token, const std::string& what) {
  result_.violations.push_back(absl::StrCat(what, "\nCRASH_TOKEN='", name_, "|", token, "'"));
}

bool Explorer::Known(const CrashStates& states, bool insert) {
  if (options_.seen == nullptr) return false;
  const uint64_t mark = states.Mark().value_or(0);
  const uint64_t under_way = std::min<uint64_t>(mark + 1, recording_.history.last());
  const uint64_t key[] = {states.ContentHash(), mark, prefixes_[under_way]};
  const uint64_t hash = XXH3_64bits(key, sizeof(key));
  return insert ? !options_.seen->insert(hash).second : options_.seen->contains(hash);
}

void Explorer::Enumerate() {
  const CrashOptions limits = Limits(options_);
  const uint64_t wanted = StatesWanted(options_);
  const bool all = wanted == UINT64_MAX;
  if (!all) {
    CrashStates count(recording_.log, limits);
    while (count.Next()) {
      if (!Known(count, false)) ++result_.possible;
    }
    if (result_.possible == 0) return;
  }
  CrashStates states(recording_.log, limits);
  for (uint64_t i = 0; states.Next();) {
    if (Known(states, false)) continue;
    if (!all && !Takes(i++, wanted, result_.possible)) continue;
    Known(states, true);
    Look(states);
    if (result_.violations.size() >= options_.max_violations) break;
  }
  if (all) result_.possible = states.count();
}

void Explorer::Replay(const std::string& token) {
  const std::vector<std::string> fields = absl::StrSplit(token, '|');
  CrashStates states(recording_.log);
  if (states.GoTo(fields[0]) != Error::kOk) {
    result_.violations.push_back("the token is not of this version of the case");
  } else if (fields.size() > 1) {
    LookAtRecovery(states, fields[1]);
  } else if (LookAt(states, Depth::kRecover)) {
    LookAt(states, Depth::kUse);
  }
}

bool Explorer::LookAt(const CrashStates& states, Depth depth) {
  checker_.StartOver();
  const std::string problem =
      checker_.Check(states.Materialize().get(), states.Mark().value_or(0), depth);
  if (!problem.empty()) Violation(states.Token(), problem);
  return problem.empty();
}

void Explorer::Look(const CrashStates& states) {
  const uint64_t number = options_.first + result_.states++;
  const Depth depth = number % options_.use_every == 0 ? Depth::kUse : Depth::kRecover;
  if (!LookAt(states, depth)) return;
  if (options_.recovery_states > 0 && number % options_.recovery_every == 0) {
    LookAtRecovery(states, "");
  }
}

void Explorer::LookAtRecovery(const CrashStates& states, const std::string& inner_token) {
  checker_.StartOver();
  const size_t returned = states.Mark().value_or(0);
  CrashDevice device(states.Materialize()->Image());
  std::unique_ptr<Filesystem> fs;
  std::string problem = checker_.Mount(&device, &fs);
  Tree tree;
  if (problem.empty()) problem = checker_.CheckMounted(fs.get(), returned, &tree);
  fs.reset();
  if (!problem.empty()) return Violation(states.Token(), problem);
  const std::string expected = Fingerprint(tree);

  const CrashLog log = device.TakeLog();
  const auto look = [&](const CrashStates& inner) {
    ++result_.recovery_states;
    std::string got;
    problem = checker_.Check(inner.Materialize().get(), returned, Depth::kRecover, &got);
    if (problem.empty() && got != expected) {
      problem = absl::StrCat("the interrupted recovery leads elsewhere:\n", got, "instead of\n",
                             expected);
    }
    if (!problem.empty()) Violation(absl::StrCat(states.Token(), "|", inner.Token()), problem);
  };
  CrashStates inner(log, kFewOfRecovery);
  if (!inner_token.empty()) {
    if (inner.GoTo(inner_token) == Error::kOk) return look(inner);
    result_.violations.push_back("the token is not of this version of the case");
    return;
  }
  CrashStates count(log, kFewOfRecovery);
  uint64_t possible = 0;
  while (count.Next()) ++possible;
  for (uint64_t i = 0; inner.Next(); ++i) {
    if (!Takes(i, options_.recovery_states, possible)) continue;
    look(inner);
    if (result_.violations.size() >= options_.max_violations) return;
  }
}

}  // namespace

Exploration Explore(const std::string& name, const Recording& recording,
                    const ExploreOptions& options) {
  const char* const wanted = std::getenv("CRASH_TOKEN");
  if (wanted != nullptr) {
    const std::string token(wanted);
    const size_t bar = token.find('|');
    if (bar != std::string::npos && token.substr(0, bar) == name) {
      return Revisit(name, recording, token.substr(bar + 1));
    }
    Exploration other;
    other.skipped = true;
    return other;
  }
  Explorer explorer(name, recording, options);
  explorer.Enumerate();
  return explorer.Take();
}

Exploration Revisit(const std::string& name, const Recording& recording, const std::string& state) {
  const ExploreOptions options;
  Explorer explorer(name, recording, options);
  explorer.Replay(state);
  return explorer.Take();
}

}  // namespace sluice::crash
