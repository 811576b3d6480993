// SPDX-License-Identifier: Apache-2.0
//
// The states a crash device could be in after a power cut (the model: block/crash_device.h), made
// from its log one after the other.
//
// Between two completed flushes the set of possible states only grows, so the log is cut into
// epochs that end where a flush completes (and where the log ends), and each epoch is enumerated
// at its end: with the durable contents, its unflushed writes, and its last mark. That covers a
// crash after every single event, and judges each state by the most that had been promised.
//
// In an epoch with at most `exhaustive` sectors unflushed: every subset of sectors. With at most
// `exhaustive` writes: every subset of whole writes, each write torn at up to 16 places with all,
// none and all earlier of the others, and samples/4 random mixtures with torn sectors.
// Otherwise: each write alone missing, each alone there, each prefix, and `samples` random
// mixtures from the seed. Where overlapping writes were in flight together, in different orders.
// States with the same contents and the same mark are made once.
#ifndef SLUICE_BLOCK_CRASH_STATES_H_
#define SLUICE_BLOCK_CRASH_STATES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/error.h"
#include "block/crash_device.h"
#include "block/memory_device.h"
#include "block/memory_image.h"

namespace sluice {

struct CrashOptions {
  unsigned exhaustive = 12;  // at most 20
  unsigned samples = 2000;   // for each epoch that is too large
  uint64_t seed = 1;
};

// Thread-compatible. The devices it makes are independent of it and of each other.
class CrashStates {
 public:
  // `log` outlives this.
  explicit CrashStates(const CrashLog& log, const CrashOptions& options = {});
  ~CrashStates();
  CrashStates(const CrashStates&) = delete;
  CrashStates& operator=(const CrashStates&) = delete;

  // Goes to the next state that has not been seen; false at the end.
  bool Next();

  // The state as a device that may be written to. A view: costs what the state differs in.
  std::unique_ptr<MemoryDevice> Materialize() const;
  // Text that makes exactly this state again from a log of the same workload.
  std::string Token() const;
  // For a person: what became of each write that was not flushed at the crash.
  struct Unflushed {
    uint64_t write;    // its index in the log
    std::string what;  // "there", "lost", or "torn, ..."
  };
  std::vector<Unflushed> Describe() const;
  // The last mark before the crash.
  std::optional<uint64_t> Mark() const { return mark_; }

  // The same for equal contents of all logs with equal bases.
  uint64_t ContentHash() const { return StateHash(); }

  uint64_t count() const { return seen_.size(); }  // states so far

  // Goes to the state that `token` names, and makes Materialize and Mark work for it. kInvalid:
  // not a token, or this log is of another run (the contents would differ). Only forwards; a fresh
  // object reaches all states.
  Error GoTo(const std::string& token);

 private:
  // A write that takes part in a state, with the sectors that made it; empty mask: all.
  struct Part {
    uint64_t write;
    std::vector<bool> mask;
  };
  // A write that may take part in the epoch.
  struct Pending {
    uint64_t write;
    uint64_t submitted, completed;  // positions in the log
    std::vector<uint64_t> change;   // per sector: what it does to the contents' hash
    uint64_t whole_change = 0;      // all of them
  };
  enum class Phase : uint8_t { kSectors, kSubsets, kTears, kSingles, kSamples, kEnd };

  bool NextEpoch();
  void AdvanceTo(uint64_t position);
  void MakeDurable(uint64_t write);
  void CollectPending();
  void StartPhase(Phase phase);
  bool Step();  // one candidate of the current phase into parts_; false: the phase is over

  bool StepSectors();
  bool StepSubsets();
  bool StepTears();
  bool StepSingles();
  void Sample();
  std::vector<bool> RandomMask(size_t sectors);
  void AddWhole(size_t pending) { parts_.push_back({pending_[pending].write, {}}); }

  // Puts parts_, sorted by submission, into another order that is possible.
  enum class Order : uint8_t { kLatestFirst, kRandom };
  void Reorder(Order order);
  void FindOverlaps();
  uint64_t StateHash() const;
  const Pending& PendingOf(uint64_t write) const;

  const CrashLog& log_;
  const CrashOptions options_;
  std::mt19937_64 random_;

  // Of each write and flush.
  std::vector<uint64_t> submitted_, completed_;

  // The epoch.
  uint64_t position_ = 0;  // events before its end
  bool started_ = false;
  std::shared_ptr<MemoryImage> durable_;
  uint64_t durable_hash_ = 0;
  std::vector<bool> is_durable_;
  std::vector<Pending> pending_;
  std::vector<size_t> pending_index_;  // of a write
  size_t pending_sectors_ = 0;
  bool overlaps_ = false;             // some pending writes share a sector
  bool concurrent_overlaps_ = false;  // and were in flight together
  std::optional<uint64_t> mark_;

  // Where the enumeration of the epoch stands.
  Phase phase_ = Phase::kEnd;
  uint64_t step_ = 0;

  std::vector<Part> parts_;  // the state, in the order of application
  absl::flat_hash_set<uint64_t> seen_;
};

}  // namespace sluice

#endif  // SLUICE_BLOCK_CRASH_STATES_H_
