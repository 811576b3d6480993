// SPDX-License-Identifier: Apache-2.0
//
// Time by interface, so that tests bring their own.
#ifndef SLUICE_BASE_CLOCK_H_
#define SLUICE_BASE_CLOCK_H_

#include "base/units.h"

namespace sluice {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since 1970-01-01 UTC; what inode times are made of.
  virtual Nanoseconds WallTime() = 0;
  // Never goes back; for durations.
  virtual Nanoseconds MonotonicTime() = 0;

  // The machine's clocks. Not owned by the caller.
  static Clock* System();
};

}  // namespace sluice

#endif  // SLUICE_BASE_CLOCK_H_
