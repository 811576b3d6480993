// SPDX-License-Identifier: Apache-2.0
//
// Descriptors: OpenFile objects as the kernel's file handles.
#ifndef SLUICE_FS_FUSE_OPEN_FILES_H_
#define SLUICE_FS_FUSE_OPEN_FILES_H_

#include <fcntl.h>

#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "base/mutex.h"
#include "fs/filesystem.h"

namespace sluice {

inline bool OpensForWriting(int flags) { return (flags & O_ACCMODE) != O_RDONLY; }
inline bool OpensForSync(int flags) { return (flags & (O_SYNC | O_DSYNC)) != 0; }

// The descriptors that the kernel holds. It releases each, unless the connection is aborted: then
// ReleaseAll does. Thread-safe.
class OpenFiles {
 public:
  // The descriptor's handle in requests.
  uint64_t Add(std::unique_ptr<OpenFile> file) ABSL_LOCKS_EXCLUDED(mutex_);
  static OpenFile* Get(uint64_t handle) { return reinterpret_cast<OpenFile*>(handle); }
  std::unique_ptr<OpenFile> Remove(uint64_t handle) ABSL_LOCKS_EXCLUDED(mutex_);
  // Only when no request is in flight.
  void ReleaseAll(Filesystem* fs) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Mutex mutex_;
  absl::flat_hash_set<OpenFile*> files_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_OPEN_FILES_H_
