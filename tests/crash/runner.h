// SPDX-License-Identifier: Apache-2.0
//
// Runs a workload on a real filesystem on a crash device and on the model, step by step, and keeps
// the device's log with a mark after each operation that has returned.
#ifndef SLUICE_TESTS_CRASH_RUNNER_H_
#define SLUICE_TESTS_CRASH_RUNNER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "block/crash_device.h"
#include "fs/filesystem.h"
#include "tests/crash/model.h"
#include "tests/crash/operation.h"

namespace sluice::crash {

// The same times in every run: a token must find the same bytes again.
class StepClock : public Clock {
 public:
  Nanoseconds WallTime() override { return now_ += 1000; }
  Nanoseconds MonotonicTime() override { return now_ += 1000; }

 private:
  Nanoseconds now_ = 1'700'000'000'000'000'000;
};

// What lies on the device before mkfs.
enum class Base {
  kPoison,
  kOlder,  // a filesystem with the same UUID, full of its own files, with a log in use
};

// What happens after each operation besides it.
enum class Between {
  kNothing,
  kWriteout,    // the flusher writes all data, which promises nothing
  kCommit,      // deletions, and a commit
  kCheckpoint,  // and a checkpoint
};

struct Setting {
  const char* name;
  Base base;
  Between between;
  bool near_wrap;  // the log's head is shortly before the end of the ring
  bool dirsync;    // mounted so
};

// A device between filesystem and crash device, for planted faults; absent: none.
using MakeDevice = std::function<std::unique_ptr<Device>(Device* below)>;

// Hooks are called from the workload's first operation on.
struct RunOptions {
  bool barrier = true;
  MakeDevice make_device;
  // At each ordering point of a commit or checkpoint.
  std::function<void(JournalPoint, const CrashDevice&)> on_point;
  // After each operation, before what Setting::between says.
  std::function<void(Filesystem*)> after_operation;
};

// The recording of one run.
struct Recording {
  std::string problem;      // why the workload itself is wrong or failed; the rest is void then
  bool impossible = false;  // it is wrong: the model says that an operation cannot be done
  std::string setting;
  History history;
  CrashLog log;
};

// The tree that every workload begins with:
//   A/ B/ A/C/  A/foo (6000 bytes)  A/bar (empty)  B/old (one page), all durable.
Recording RunWorkload(const std::string& workload, const Setting& setting,
                      const RunOptions& options = {});

// Options of every mount here: no threads, small caches, the given clock.
MountOptions CrashMountOptions(Clock* clock);

}  // namespace sluice::crash

#endif  // SLUICE_TESTS_CRASH_RUNNER_H_
