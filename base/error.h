// SPDX-License-Identifier: Apache-2.0
//
// The one error vocabulary below the programs' edges: POSIX outcomes, storage faults, and the
// internal "must wait" answer of the attempt protocol (block/attempt.h). An Error is one byte, so
// that a frequent negative answer (a missing name) costs nothing. Messages for people are made at
// the edges. errno becomes an Error only in block/ and in main programs; an Error becomes errno
// only in fs/fuse/.
#ifndef SLUICE_BASE_ERROR_H_
#define SLUICE_BASE_ERROR_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace sluice {

// X(name, text for a person)
#define SLUICE_ERRORS(X)                                     \
  X(kNotFound, "no such file or directory")                  \
  X(kExists, "file exists")                                  \
  X(kNotDirectory, "not a directory")                        \
  X(kIsDirectory, "is a directory")                          \
  X(kNotEmpty, "directory not empty")                        \
  X(kNoSpace, "no space left on device")                     \
  X(kQuota, "quota exceeded")                                \
  X(kFileTooLarge, "file too large")                         \
  X(kNameTooLong, "file name too long")                      \
  X(kInvalid, "invalid argument")                            \
  X(kNotPermitted, "operation not permitted")                \
  X(kAccess, "permission denied")                            \
  X(kCrossDevice, "invalid cross-device link")               \
  X(kTooManyLinks, "too many links")                         \
  X(kLoop, "too many levels of symbolic links")              \
  X(kBusy, "device or resource busy")                        \
  X(kReadOnly, "read-only file system")                      \
  X(kNoData, "no data available")                            \
  X(kRange, "result too large")                              \
  X(kOverflow, "value too large for defined data type")      \
  X(kStale, "stale file handle")                             \
  X(kNoEntryAtOffset, "no such data or hole")                \
  X(kBadDescriptor, "bad file descriptor")                   \
  X(kInterrupted, "interrupted")                             \
  X(kNoMemory, "cannot allocate memory")                     \
  X(kNotSupported, "operation not supported")                \
  X(kNotImplemented, "function not implemented")             \
  X(kIo, "input/output error")                               \
  X(kCorrupt, "structure needs cleaning")                    \
  X(kUnknownFormat, "not a sluicefs image")                  \
  X(kNewerFormat, "image needs a newer version of sluicefs") \
  X(kNoDevice, "no such device")                             \
  X(kShutdown, "filesystem has been shut down")              \
  X(kWouldBlock, "would have to wait")                       \
  X(kHandleTooLarge, "operation does not fit into the journal")

// kOk is success. [[nodiscard]] on the type: every function that returns an Error must be looked
// at.
enum class [[nodiscard]] Error : uint8_t{kOk = 0,
#define SLUICE_ERROR_ENUM(name, text) name,
                                         SLUICE_ERRORS(SLUICE_ERROR_ENUM)
#undef SLUICE_ERROR_ENUM
};

// The text for a person; never empty.
std::string_view ErrorText(Error error);

// Says in the code that an error is dropped on purpose; the line above gives the reason.
inline void IgnoreError(Error) {}

// A value or an Error other than kOk. Thread-compatible.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(Error error) : error_(error) {  // NOLINT: implicit, so that `return Error::kX` reads well
    SLUICE_CHECK(error != Error::kOk);
  }
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit by design

  bool ok() const { return value_.has_value(); }
  Error error() const { return error_; }
  T& value() & {
    SLUICE_CHECK(ok());
    return *value_;
  }
  const T& value() const& {
    SLUICE_CHECK(ok());
    return *value_;
  }
  T&& value() && {
    SLUICE_CHECK(ok());
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::optional<T> value_;
  Error error_ = Error::kOk;
};

}  // namespace sluice

#define SLUICE_CONCAT_INNER(a, b) a##b
#define SLUICE_CONCAT(a, b) SLUICE_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expression` (an Error) is not kOk.
#define RETURN_IF_ERROR(expression)                        \
  do {                                                     \
    const ::sluice::Error sluice_error = (expression);     \
    if (sluice_error != ::sluice::Error::kOk) [[unlikely]] \
      return sluice_error;                                 \
  } while (false)

// `ASSIGN_OR_RETURN(auto x, F());` where F returns a Result.
#define ASSIGN_OR_RETURN(declaration, expression) \
  SLUICE_ASSIGN_OR_RETURN_IMPL(SLUICE_CONCAT(sluice_result_, __LINE__), declaration, expression)
#define SLUICE_ASSIGN_OR_RETURN_IMPL(result, declaration, expression) \
  auto result = (expression);                                         \
  if (!result.ok()) [[unlikely]]                                      \
    return result.error();                                            \
  declaration = std::move(result).value()

#endif  // SLUICE_BASE_ERROR_H_
