// SPDX-License-Identifier: Apache-2.0
//
// The background writer: writes dirty files that are old (30 s, looked for every 5 s) or when dirty
// memory passes the background ratio, in fair chunks, round robin over files. It starts no journal
// handle and holds no lock while it waits.
#ifndef SLUICE_WRITEBACK_FLUSHER_H_
#define SLUICE_WRITEBACK_FLUSHER_H_

#include <memory>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/units.h"
#include "writeback/flush_target.h"
#include "writeback/memory_budget.h"

namespace sluice {

struct FlusherOptions {
  Nanoseconds wake_interval = 5'000'000'000;
  Nanoseconds expire = 30'000'000'000;
  Clock* clock = Clock::System();
  bool manual = false;  // no thread
};

// Thread-safe.
class Flusher {
 public:
  Flusher(const FlusherOptions& options, MemoryBudget* budget);
  ~Flusher();  // stops

  // The target has become dirty (first dirty page since it was clean). Holds a reference until it
  // is clean again.
  void Add(std::shared_ptr<FlushTarget> target);

  // Writes everything that is dirty now and waits for it. May wait.
  void FlushAll();
  // From now on passes write nothing, but go on ending, so that writers who wait for memory look
  // again.
  void StopWriting();
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_WRITEBACK_FLUSHER_H_
