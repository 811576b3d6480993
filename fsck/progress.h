// SPDX-License-Identifier: Apache-2.0
//
// How far a check is, for a person at a terminal or for the program behind -C.
#ifndef SLUICE_FSCK_PROGRESS_H_
#define SLUICE_FSCK_PROGRESS_H_

#include <string>

#include "fsck/check.h"

namespace sluice {

// Thread-compatible.
class Progress {
 public:
  // `fd` as of -C: negative for none; 0: a line on the terminal, if stdout is one; else lines of
  // "pass done total image" to that descriptor, as e2fsck(8) writes them.
  Progress(int fd, std::string image);

  void Update(CheckPass pass, uint64_t done, uint64_t total);
  // Removes the line from the terminal.
  void Clear();

 private:
  int fd_;
  const std::string image_;
  bool line_ = false;
  int last_pass_ = 0;
  uint64_t last_step_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_FSCK_PROGRESS_H_
