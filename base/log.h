// SPDX-License-Identifier: Apache-2.0
//
// One-line messages for the person who runs the filesystem: what happened, to what, what to do.
// Not for tracing. They go to stderr until a program installs a sink (the daemon: syslog).
#ifndef SLUICE_BASE_LOG_H_
#define SLUICE_BASE_LOG_H_

#include <functional>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace sluice {

enum class LogLevel { kInfo, kWarning, kError };

using LogSink = std::function<void(LogLevel, std::string_view line)>;

// Replaces the sink; an empty one brings stderr back. Thread-safe.
void SetLogSink(LogSink sink);

// Writes one line (no newline in it). Thread-safe.
void LogLine(LogLevel level, std::string_view line);

template <typename... Args>
void LogInfo(const Args&... args) {
  LogLine(LogLevel::kInfo, absl::StrCat(args...));
}
template <typename... Args>
void LogWarning(const Args&... args) {
  LogLine(LogLevel::kWarning, absl::StrCat(args...));
}
template <typename... Args>
void LogError(const Args&... args) {
  LogLine(LogLevel::kError, absl::StrCat(args...));
}

}  // namespace sluice

#endif  // SLUICE_BASE_LOG_H_
