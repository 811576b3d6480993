// SPDX-License-Identifier: Apache-2.0
//
// See receive_buffer.h.
#include "fs/fuse/receive_buffer.h"

#include <sys/mman.h>

#include <utility>

#include "base/check.h"

namespace sluice {

ReceiveBuffer::ReceiveBuffer() {
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  SLUICE_CHECK(memory != MAP_FAILED);
  memory_ = static_cast<std::byte*>(memory);
}

ReceiveBuffer::~ReceiveBuffer() { munmap(memory_, kBytes); }

std::unique_ptr<ReceiveBuffer> ReceiveBufferPool::Take() {
  {
    MutexLock lock(&mutex_);
    if (!free_.empty()) {
      std::unique_ptr<ReceiveBuffer> buffer = std::move(free_.back());
      free_.pop_back();
      return buffer;
    }
  }
  return std::make_unique<ReceiveBuffer>();
}

void ReceiveBufferPool::Give(std::unique_ptr<ReceiveBuffer> buffer) {
  MutexLock lock(&mutex_);
  if (free_.size() < kMostKept) free_.push_back(std::move(buffer));
}

}  // namespace sluice
