// SPDX-License-Identifier: Apache-2.0
//
// See open_files.h.
#include "fs/fuse/open_files.h"

#include <utility>

namespace sluice {

uint64_t OpenFiles::Add(std::unique_ptr<OpenFile> file) {
  OpenFile* const raw = file.release();
  MutexLock lock(&mutex_);
  files_.insert(raw);
  return reinterpret_cast<uint64_t>(raw);
}

std::unique_ptr<OpenFile> OpenFiles::Remove(uint64_t handle) {
  OpenFile* const raw = Get(handle);
  MutexLock lock(&mutex_);
  files_.erase(raw);
  return std::unique_ptr<OpenFile>(raw);
}

void OpenFiles::ReleaseAll(Filesystem* fs) {
  absl::flat_hash_set<OpenFile*> left;
  {
    MutexLock lock(&mutex_);
    left.swap(files_);
  }
  for (OpenFile* raw : left) fs->Release(std::unique_ptr<OpenFile>(raw));
}

}  // namespace sluice
