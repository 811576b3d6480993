// SPDX-License-Identifier: Apache-2.0
//
// The log's incarnations come from getrandom(2). A crash token must find the same bytes again, so
// this program brings its own: a sequence that is the same in each case that begins with a mkfs.
#include "tests/crash/deterministic_random.h"

#include <sys/random.h>

#include <cstring>

namespace {
thread_local unsigned char next_byte = 1;
}  // namespace

extern "C" ssize_t getrandom(void* buffer, size_t length, unsigned) {
  std::memset(buffer, next_byte, length);
  next_byte = static_cast<unsigned char>(next_byte == 255 ? 1 : next_byte + 1);
  return static_cast<ssize_t>(length);
}

namespace sluice::crash {

void RestartRandom() { next_byte = 1; }

}  // namespace sluice::crash
