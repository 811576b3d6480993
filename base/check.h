// SPDX-License-Identifier: Apache-2.0
//
// Assertions about our own state, never about bytes from disk or input from a caller. CHECK is on
// in every build: a filesystem that goes on with a broken invariant writes damage.
#ifndef SLUICE_BASE_CHECK_H_
#define SLUICE_BASE_CHECK_H_

namespace sluice {

// Prints where and what, then aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* what);

}  // namespace sluice

#define SLUICE_CHECK(condition)                              \
  do {                                                       \
    if (!(condition)) [[unlikely]]                           \
      ::sluice::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

// For checks too costly for a release build.
#ifdef NDEBUG
#define SLUICE_DCHECK(condition)  \
  do {                            \
    if (false) (void)(condition); \
  } while (false)
#else
#define SLUICE_DCHECK(condition) SLUICE_CHECK(condition)
#endif

#endif  // SLUICE_BASE_CHECK_H_
