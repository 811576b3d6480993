// SPDX-License-Identifier: Apache-2.0
//
// Looks at one state that a crash has left: mounts it, walks it, judges it, uses it, unmounts it
// and has it checked.
#ifndef SLUICE_TESTS_CRASH_STATE_CHECKER_H_
#define SLUICE_TESTS_CRASH_STATE_CHECKER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "block/memory_device.h"
#include "tests/crash/model.h"
#include "tests/crash/runner.h"
#include "tests/crash/tree.h"

namespace sluice::crash {

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

// How much is done with a state.
enum class Depth : uint8_t {
  kRecover,  // mounted, judged, unmounted, checked
  kUse,      // checked before the mount too; its files grow, another is written and still there
             // after a second mount
};

// One at a time in a process: it listens to the log.
class StateChecker {
 public:
  // `history` outlives this.
  explicit StateChecker(const History& history) : history_(history) {}

  // A token must lead to the same bytes, whatever was looked at before: call this first.
  void StartOver();

  // Returns what is wrong with what a crash left behind operation `returned`, or nothing.
  // `fingerprint` gets the recovered tree's, if not null.
  std::string Check(MemoryDevice* device, size_t returned, Depth depth,
                    std::string* fingerprint = nullptr);

  // Parts of it, for a mount that is to be crashed itself.
  std::string Mount(Device* device, std::unique_ptr<Filesystem>* fs);
  std::string CheckMounted(Filesystem* fs, size_t returned, Tree* tree);

 private:
  std::string Use(Filesystem* fs);
  std::string Grow(Filesystem* fs, const Tree& tree);
  std::string CheckUse(Device* device);

  const History& history_;
  StepClock clock_;
  ErrorLog errors_;
};

}  // namespace sluice::crash

#endif  // SLUICE_TESTS_CRASH_STATE_CHECKER_H_
