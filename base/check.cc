// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace sluice {

void CheckFailed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "sluicefs: %s:%d: broken invariant: %s\n", file, line, what);
  std::abort();
}

}  // namespace sluice
