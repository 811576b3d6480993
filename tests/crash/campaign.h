// SPDX-License-Identifier: Apache-2.0
//
// Crash states of generated workloads (generator.h) in great numbers: in rounds, each of all
// sequences of one step in all settings, all sequences of two steps in one setting each, and some
// of three. Shards split the sequences between processes.
#ifndef SLUICE_TESTS_CRASH_CAMPAIGN_H_
#define SLUICE_TESTS_CRASH_CAMPAIGN_H_

#include <cstdint>
#include <functional>
#include <string>

namespace sluice::crash {

struct CampaignOptions {
  uint64_t seed = 1;
  // The end: after the first round's sequences of one and two steps, and so many states; or when
  // the time is over, if that is given.
  uint64_t states = 100000;
  double seconds = 0;
  uint64_t stride = 1;  // of the sequences of one and two steps one in so many is taken
  unsigned shard = 0, shards = 1;
  unsigned max_violations = 5;
};

struct CampaignCounts {
  uint64_t workloads = 0;
  uint64_t impossible = 0;       // sequences that cannot be performed
  uint64_t states = 0;           // looked at, different ones
  uint64_t recovery_states = 0;  // of them, those of a recovery that was interrupted
  uint64_t violations = 0;
  uint64_t rounds = 0;  // completed
};

// Called after each workload; false: stop.
using CampaignProgress = std::function<bool(const CampaignCounts& counts)>;
// Called with each violation's text; the token is at its end.
using OnViolation = std::function<void(const std::string& text)>;

CampaignCounts RunCampaign(const CampaignOptions& options, const CampaignProgress& progress,
                           const OnViolation& on_violation);

}  // namespace sluice::crash

#endif  // SLUICE_TESTS_CRASH_CAMPAIGN_H_
