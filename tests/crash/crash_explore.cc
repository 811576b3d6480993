// SPDX-License-Identifier: Apache-2.0
//
// Runs the crash explorer's campaign (campaign.h) over several processes, or looks again at the
// state of a token. Exit status: 0 nothing was found, 1 something was, 2 the run itself failed.
#include <malloc.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "tests/crash/campaign.h"
#include "tests/crash/replay_token.h"

namespace sluice::crash {
namespace {

constexpr size_t kMaxTokens = 16;
constexpr size_t kTokenBytes = 4096;
// $CRASH_STATES for the unit tests' usual number of states per case: sanitizer runs ask for fewer.
constexpr uint64_t kUsualStates = 300;

// What a process tells of itself, in memory that all share.
struct Shard {
  std::atomic<uint64_t> workloads, impossible, states, recovery_states, violations, rounds;
  std::atomic<bool> ended;
  char tokens[kMaxTokens][kTokenBytes];
};

struct Total {
  CampaignCounts counts;
  bool all_ended = true;
  std::vector<std::string> tokens;
  double seconds = 0;
  double cpu_seconds = 0;  // of all processes, once they have ended
  uint64_t Rate(double per) const {
    return per > 0 ? static_cast<uint64_t>(static_cast<double>(counts.states) / per) : 0;
  }
};

std::string TokenOf(const std::string& violation) {
  const size_t at = violation.rfind("CRASH_TOKEN='");
  if (at == std::string::npos) return "";
  const size_t start = violation.find('\'', at) + 1;
  return violation.substr(start, violation.rfind('\'') - start);
}

void Store(const CampaignCounts& counts, Shard* shard) {
  shard->workloads = counts.workloads;
  shard->impossible = counts.impossible;
  shard->states = counts.states;
  shard->recovery_states = counts.recovery_states;
  shard->violations = counts.violations;
  shard->rounds = counts.rounds;
}

void RunShard(const CampaignOptions& options, Shard* shard) {
  size_t tokens = 0;
  const auto progress = [&](const CampaignCounts& counts) {
    Store(counts, shard);
    return true;
  };
  const auto violation = [&](const std::string& text) {
    std::fprintf(stderr, "%s\n", text.c_str());
    const std::string token = TokenOf(text);
    if (tokens >= kMaxTokens || token.size() >= kTokenBytes) return;
    std::memcpy(shard->tokens[tokens++], token.c_str(), token.size() + 1);
  };
  Store(RunCampaign(options, progress, violation), shard);
  shard->ended = true;
}

class Processes {
 public:
  Processes(CampaignOptions options, unsigned jobs) : options_(options), jobs_(jobs) {
    void* const memory = mmap(nullptr, sizeof(Shard) * jobs, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) shards_ = static_cast<Shard*>(memory);
  }
  ~Processes() {
    if (shards_ != nullptr) munmap(shards_, sizeof(Shard) * jobs_);
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  bool Start() {
    // The pipe ends when the last process has.
    if (shards_ == nullptr || pipe(pipe_) != 0) return false;
    options_.shards = jobs_;
    for (unsigned i = 0; i < jobs_; ++i) {
      options_.shard = i;
      const pid_t pid = fork();
      if (pid < 0) return false;
      if (pid == 0) {
        RunShard(options_, &shards_[i]);
        _exit(0);
      }
      ++running_;
    }
    close(pipe_[1]);
    return true;
  }

  Total Wait(bool show) {
    pollfd poll_fd = {.fd = pipe_[0], .events = POLLIN, .revents = 0};
    while (poll(&poll_fd, 1, 1000) == 0) {
      if (show) Show(Sum());
    }
    int status = 0;
    bool good = true;
    for (; running_ > 0 && wait(&status) > 0; --running_) good = good && status == 0;
    Total total = Sum();
    rusage usage = {};
    getrusage(RUSAGE_CHILDREN, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
      total.cpu_seconds +=
          static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    }
    total.all_ended = total.all_ended && good;
    if (show) std::fprintf(stderr, "\r\033[K");
    return total;
  }

 private:
  Total Sum() const {
    Total total;
    for (unsigned i = 0; i < jobs_; ++i) {
      const Shard& shard = shards_[i];
      total.counts.workloads += shard.workloads;
      total.counts.impossible += shard.impossible;
      total.counts.states += shard.states;
      total.counts.recovery_states += shard.recovery_states;
      total.counts.violations += shard.violations;
      total.counts.rounds =
          i == 0 ? shard.rounds.load() : std::min(total.counts.rounds, shard.rounds.load());
      total.all_ended = total.all_ended && shard.ended;
      for (size_t t = 0; t < kMaxTokens && shard.tokens[t][0] != '\0'; ++t) {
        total.tokens.emplace_back(shard.tokens[t]);
      }
    }
    total.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    return total;
  }

  static void Show(const Total& total) {
    std::fprintf(stderr, "\r\033[K%.0f s: %lu workloads, %lu states (%lu/s), %lu violations",
                 total.seconds, total.counts.workloads, total.counts.states,
                 total.Rate(total.seconds), total.counts.violations);
  }

  CampaignOptions options_;
  const unsigned jobs_;
  Shard* shards_ = nullptr;
  int pipe_[2] = {-1, -1};
  unsigned running_ = 0;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void Print(const Total& total, uint64_t seed, unsigned jobs, bool json) {
  const CampaignCounts& counts = total.counts;
  if (!json) {
    std::printf(
        "crash-explore: seed %lu, %lu workloads (%lu more are impossible), %lu states, %lu of them "
        "of recoveries, in %.1f s with %u processes: %lu states/s, %lu per second of processor "
        "time; "
        "%lu violations\n",
        seed, counts.workloads, counts.impossible, counts.states, counts.recovery_states,
        total.seconds, jobs, total.Rate(total.seconds), total.Rate(total.cpu_seconds),
        counts.violations);
    return;
  }
  const nlohmann::json summary = {
      {"seed", seed},
      {"workloads", counts.workloads},
      {"impossible_workloads", counts.impossible},
      {"states", counts.states},
      {"recovery_states", counts.recovery_states},
      {"rounds", counts.rounds},
      {"violations", counts.violations},
      {"seconds", total.seconds},
      {"processes", jobs},
      {"states_per_second", total.Rate(total.seconds)},
      {"states_per_cpu_second", total.Rate(total.cpu_seconds)},
      {"tokens", total.tokens},
  };
  std::printf("%s\n", summary.dump(2).c_str());
}

int Explore(CampaignOptions options, unsigned jobs, bool json) {
  Processes processes(options, jobs);
  if (!processes.Start()) {
    std::perror("crash-explore: cannot start");
    return 2;
  }
  const Total total = processes.Wait(isatty(STDERR_FILENO) != 0);
  Print(total, options.seed, jobs, json);
  if (total.counts.violations > 0) return 1;
  if (!total.all_ended) {
    std::fprintf(stderr, "crash-explore: a process did not come to its end\n");
    return 2;
  }
  if (options.seconds == 0 && total.counts.states < options.states) {
    std::fprintf(stderr, "crash-explore: %lu states are fewer than %lu\n", total.counts.states,
                 options.states);
    return 2;
  }
  return 0;
}

// Under sanitizers: the same share of everything.
void Scale(CampaignOptions* options) {
  const char* const wanted = std::getenv("CRASH_STATES");
  const uint64_t states = wanted == nullptr ? 0 : std::strtoull(wanted, nullptr, 10);
  if (states == 0 || states >= kUsualStates) return;
  options->stride = kUsualStates / states;
  options->states /= options->stride;
}

int Main(int argc, char** argv) {
  CLI::App app("Looks for crash states that break what the filesystem promises.", "crash-explore");
  CampaignOptions options;
  double hours = 0;
  unsigned jobs = static_cast<unsigned>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  bool json = false;
  std::string token;
  app.add_option("--hours", hours, "go on for so long, in rounds that look ever closer")
      ->check(CLI::PositiveNumber);
  app.add_option("--states", options.states, "without --hours: look at so many states at least");
  app.add_option("--seed", options.seed, "another seed takes other samples");
  app.add_option("--jobs", jobs, "processes; default: one per processor")
      ->check(CLI::Range(1, 256));
  app.add_flag("--json", json, "print the summary as JSON");
  app.add_option("--token", token, "look again at the state of this token only, and explain it");
  CLI11_PARSE(app, argc, argv);
  // Memory goes from one mount to the next, and not to the kernel between.
  mallopt(M_MMAP_THRESHOLD, 256 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  if (!token.empty()) return ReplayToken(token);
  options.seconds = hours * 3600;
  Scale(&options);
  return Explore(options, jobs, json);
}

}  // namespace
}  // namespace sluice::crash

int main(int argc, char** argv) { return sluice::crash::Main(argc, argv); }
