// SPDX-License-Identifier: Apache-2.0
//
// Owned memory that a device may read and write directly (page aligned).
#ifndef SLUICE_BASE_ALIGNED_BUFFER_H_
#define SLUICE_BASE_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "base/check.h"
#include "base/units.h"

namespace sluice {

// Move-only; thread-compatible. Contents are uninitialised.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // `size` in bytes; rounded up to a whole block for the allocation.
  explicit AlignedBuffer(size_t size)
      : data_(static_cast<std::byte*>(
            std::aligned_alloc(kBlockSize, BlocksForBytes(size) * kBlockSize))),
        size_(size) {
    SLUICE_CHECK(size == 0 || data_ != nullptr);
  }

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  std::span<std::byte> span() { return {data_.get(), size_}; }
  std::span<const std::byte> span() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* pointer) const { std::free(pointer); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_BASE_ALIGNED_BUFFER_H_
