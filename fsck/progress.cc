// SPDX-License-Identifier: Apache-2.0
#include "fsck/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

namespace sluice {

namespace {

constexpr uint64_t kSteps = 200;  // of a pass that are shown

}  // namespace

Progress::Progress(int fd, std::string image) : fd_(fd), image_(std::move(image)) {
  if (fd_ == 0 && ::isatty(STDOUT_FILENO) == 0) fd_ = -1;
}

void Progress::Update(CheckPass pass, uint64_t done, uint64_t total) {
  if (fd_ < 0 || total == 0) return;
  const uint64_t step = done * kSteps / total;
  if (static_cast<int>(pass) == last_pass_ && step == last_step_) return;
  last_pass_ = static_cast<int>(pass);
  last_step_ = step;
  if (fd_ == 0) {
    std::printf("\r%s: pass %d of 3, %3ju %% ", image_.c_str(), last_pass_,
                static_cast<uintmax_t>(step * 100 / kSteps));
    std::fflush(stdout);
    line_ = true;
    return;
  }
  // Who listens may have gone; the check goes on without it.
  if (::dprintf(fd_, "%d %ju %ju %s\n", last_pass_, static_cast<uintmax_t>(done),
                static_cast<uintmax_t>(total), image_.c_str()) < 0) {
    fd_ = -1;
  }
}

void Progress::Clear() {
  if (line_) std::printf("\r\033[K");
  line_ = false;
}

}  // namespace sluice
