// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/generator.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace sluice::crash {
namespace {

struct Change {
  const char* text;
  const char* file;       // what an fsync of the file names; empty: nothing is left to name
  const char* directory;  // and one of the directory
};

constexpr Change kChanges[] = {
    {"create A/new", "A/new", "A"},
    {"append A/foo 3000", "A/foo", "A"},
    {"append A/bar 5000", "A/bar", "A"},
    {"write A/foo 0 4096", "A/foo", "A"},
    {"write A/foo 1000 700", "A/foo", "A"},
    {"write A/foo 5000 4000", "A/foo", "A"},
    {"write A/bar 9000 100", "A/bar", "A"},
    {"mmap A/foo 4200 900", "A/foo", "A"},
    {"mmap A/foo 100 5000", "A/foo", "A"},
    {"mkdir A/D", "A/D", "A"},
    {"link A/foo A/link", "A/foo", "A"},
    {"link A/foo B/link", "B/link", "B"},
    {"unlink A/foo", "", "A"},
    {"unlink A/bar", "", "A"},
    {"unlink B/old", "", "B"},
    {"rmdir A/C", "", "A"},
    {"rename A/foo A/new", "A/new", "A"},
    {"rename A/bar A/foo", "A/foo", "A"},
    {"rename A/foo B/new", "B/new", "A"},
    {"rename A/foo B/old", "B/old", "B"},
    {"rename A/C B/D", "B/D", "B"},
    {"exchange A/foo B/old", "A/foo", "B"},
    {"exchange A/C B/old", "A/C", "A"},
    {"symlink A/link A/foo", "", "A"},
    {"truncate A/foo 0", "A/foo", "A"},
    {"truncate A/foo 1000", "A/foo", "A"},
    {"truncate A/foo 9000", "A/foo", "A"},
    {"fallocate A/foo 4096 12288", "A/foo", "A"},
    {"fallocate_keep A/foo 8192 8192", "A/foo", "A"},
    {"punch A/foo 0 4096", "A/foo", "A"},
    {"punch A/foo 1000 3000", "A/foo", "A"},
    {"zero A/foo 500 9000", "A/foo", "A"},
    {"chmod A/foo 600", "A/foo", "A"},
};

std::vector<std::string> MakeSteps() {
  std::vector<std::string> steps;
  for (const Change& change : kChanges) {
    const auto add = [&](const char* how, const char* what) {
      steps.push_back(absl::StrCat(change.text, *how == '\0' ? "" : "; ", how, what));
    };
    add("", "");
    add("sync", "");
    add("fsync ", change.directory);
    if (*change.file == '\0') continue;
    add("fsync ", change.file);
    add("fdatasync ", change.file);
  }
  return steps;
}

const std::vector<std::string>& Steps() {
  static const std::vector<std::string> steps = MakeSteps();
  return steps;
}

}  // namespace

uint64_t StepCount() { return Steps().size(); }

uint64_t SequenceCount(unsigned length) {
  return length == 1 ? StepCount() : StepCount() * StepCount();
}

std::string Sequence(unsigned length, uint64_t index) {
  SLUICE_CHECK(index < SequenceCount(length));
  if (length == 1) return Steps()[index];
  return absl::StrCat(Steps()[index / StepCount()], "; ", Steps()[index % StepCount()]);
}

std::string RandomSequence(std::mt19937_64* random) {
  const auto step = [&] { return Steps()[(*random)() % StepCount()]; };
  const std::string first = step();
  const std::string second = step();
  return absl::StrCat(first, "; ", second, "; ", step());
}

}  // namespace sluice::crash
