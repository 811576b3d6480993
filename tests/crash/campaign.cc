// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/campaign.h"

#include <chrono>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/crash/explorer.h"
#include "tests/crash/generator.h"
#include "tests/crash/workloads.h"

namespace sluice::crash {
namespace {

constexpr CrashOptions kLimits = {.exhaustive = 5, .samples = 40};
// States per workload, by its length. Later rounds look at more of each.
constexpr uint64_t kStates[] = {60, 6, 12};
constexpr uint64_t kRecoveryStates = 2;
constexpr uint64_t kRecoveryEvery = 40;
// Sequences of three steps in a round.
constexpr uint64_t kLongSequences = 20000;

class Campaign {
 public:
  Campaign(const CampaignOptions& options, const CampaignProgress& progress,
           const OnViolation& on_violation)
      : options_(options), progress_(progress), on_violation_(on_violation) {}

  CampaignCounts Run() {
    for (round_ = 0; !over_; ++round_) {
      random_.seed(options_.seed * 1000003 + round_);
      Short();
      Long();
      if (!over_) ++counts_.rounds;
      if (options_.seconds == 0) break;
    }
    return counts_;
  }

 private:
  static std::chrono::steady_clock::time_point Now() { return std::chrono::steady_clock::now(); }

  // Counts the sequence's number and says whether it is this shard's.
  bool Mine() { return number_++ % options_.shards == options_.shard; }

  void Short() {
    const size_t settings = Settings().size();
    for (uint64_t i = 0; i < SequenceCount(1) * settings && !over_; ++i) {
      if (i % options_.stride == 0 && Mine()) One(1, Sequence(1, i / settings), i % settings);
    }
    for (uint64_t i = 0; i < SequenceCount(2) && !over_; ++i) {
      const uint64_t setting = random_() % settings;  // drawn for each: shards agree
      if (i % options_.stride == 0 && Mine()) One(2, Sequence(2, i), setting);
    }
  }

  void Long() {
    for (uint64_t i = 0; !over_; ++i) {
      const bool enough = options_.seconds > 0
                              ? i >= kLongSequences
                              : counts_.states >= options_.states / options_.shards + 1;
      if (enough) return;
      const uint64_t setting = random_() % Settings().size();
      const std::string sequence = RandomSequence(&random_);
      if (Mine()) One(3, sequence, setting);
    }
  }

  void One(size_t length, const std::string& sequence, size_t which) {
    const Setting& setting = Settings()[which];
    const std::string name = absl::StrCat(setting.name, ": ", sequence);
    const Recording recording = RunWorkload(sequence, setting);
    if (recording.impossible) {
      ++counts_.impossible;
    } else if (!recording.problem.empty()) {
      Violation(absl::StrCat(recording.problem, "\nCRASH_TOKEN='", name, "|'"));
    } else {
      ++counts_.workloads;
      Explore(length, name, recording);
    }
    over_ = !progress_(counts_) || over_ ||
            (options_.seconds > 0 &&
             std::chrono::duration<double>(Now() - start_).count() > options_.seconds);
  }

  void Explore(size_t length, const std::string& name, const Recording& recording) {
    CrashOptions limits = kLimits;
    limits.seed = options_.seed + round_;
    const Exploration exploration =
        crash::Explore(name, recording,
                       {.states = kStates[length - 1] * (1 + round_),
                        .recovery_states = kRecoveryStates,
                        .recovery_every = kRecoveryEvery,
                        .limits = limits,
                        .seen = &seen_,
                        .first = counts_.states - counts_.recovery_states});
    counts_.states += exploration.states + exploration.recovery_states;
    counts_.recovery_states += exploration.recovery_states;
    for (const std::string& violation : exploration.violations) Violation(violation);
  }

  void Violation(const std::string& text) {
    on_violation_(text);
    over_ = ++counts_.violations >= options_.max_violations;
  }

  const CampaignOptions& options_;
  const CampaignProgress& progress_;
  const OnViolation& on_violation_;
  const std::chrono::steady_clock::time_point start_ = Now();
  CampaignCounts counts_;
  std::mt19937_64 random_;
  SeenStates seen_;
  uint64_t round_ = 0;
  uint64_t number_ = 0;
  bool over_ = false;
};

}  // namespace

CampaignCounts RunCampaign(const CampaignOptions& options, const CampaignProgress& progress,
                           const OnViolation& on_violation) {
  return Campaign(options, progress, on_violation).Run();
}

}  // namespace sluice::crash
