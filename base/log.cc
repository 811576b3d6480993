// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <cstdio>
#include <utility>

#include "base/mutex.h"

namespace sluice {
namespace {

struct SinkHolder {
  Mutex mutex;
  LogSink sink ABSL_GUARDED_BY(mutex);
};

SinkHolder& Holder() {
  static SinkHolder holder;
  return holder;
}

}  // namespace

void SetLogSink(LogSink sink) {
  SinkHolder& holder = Holder();
  MutexLock lock(&holder.mutex);
  holder.sink = std::move(sink);
}

void LogLine(LogLevel level, std::string_view line) {
  SinkHolder& holder = Holder();
  MutexLock lock(&holder.mutex);
  if (holder.sink) {
    holder.sink(level, line);
    return;
  }
  std::fprintf(stderr, "sluicefs: %.*s\n", static_cast<int>(line.size()), line.data());
}

}  // namespace sluice
