// SPDX-License-Identifier: Apache-2.0
//
// Memory for one request, laid out so that the payload of a WRITE starts on a page:
//
//   | unused ... | fuse_in_header 40 | fuse_write_in 40 | payload, page-aligned ... |
//   0           4016                                   4096
//
// A request that must wait takes its whole buffer along: names and data stay where they are, and
// nothing is copied.
#ifndef SLUICE_FS_FUSE_RECEIVE_BUFFER_H_
#define SLUICE_FS_FUSE_RECEIVE_BUFFER_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "base/mutex.h"

namespace sluice {

inline constexpr size_t kMaxWrite = size_t{1} << 20;

// Thread-compatible.
class ReceiveBuffer {
 public:
  ReceiveBuffer();
  ~ReceiveBuffer();
  ReceiveBuffer(const ReceiveBuffer&) = delete;
  ReceiveBuffer& operator=(const ReceiveBuffer&) = delete;

  // Where the request's header goes, and the room from there.
  std::byte* data() { return memory_ + kHeaderOffset; }
  static constexpr size_t capacity() { return kBytes - kHeaderOffset; }

  // The page-aligned part, for those who only want such memory.
  std::byte* payload() { return memory_ + kPage; }
  static constexpr size_t payload_capacity() { return kMaxWrite; }

 private:
  static constexpr size_t kPage = 4096;
  static constexpr size_t kHeaderOffset = kPage - 80;
  static constexpr size_t kBytes = kPage + kMaxWrite + kPage;

  std::byte* memory_;
};

// Keeps a few buffers whose pages are already there. Thread-safe.
class ReceiveBufferPool {
 public:
  std::unique_ptr<ReceiveBuffer> Take() ABSL_LOCKS_EXCLUDED(mutex_);
  void Give(std::unique_ptr<ReceiveBuffer> buffer) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr size_t kMostKept = 32;

  Mutex mutex_;
  std::vector<std::unique_ptr<ReceiveBuffer>> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_RECEIVE_BUFFER_H_
