// SPDX-License-Identifier: Apache-2.0
//
// Little-endian integers as they lie on disk: bytes, so that every structure made of them has
// alignment 1 and no padding, and may be laid over a block at any offset.
#ifndef SLUICE_FORMAT_ENDIAN_H_
#define SLUICE_FORMAT_ENDIAN_H_

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace sluice::format {

// T is an unsigned or signed integer of 2, 4 or 8 bytes.
template <typename T>
class Le {
 public:
  Le() = default;
  Le(T value) { Set(value); }           // NOLINT: implicit, an Le is its value
  operator T() const { return Get(); }  // NOLINT: implicit, an Le is its value
  Le& operator=(T value) {
    Set(value);
    return *this;
  }

 private:
  // memcpy and a conditional swap fold into one mov; a shift-and-or loop does not in g++ 12.
  T Get() const {
    T value;
    std::memcpy(&value, bytes_, sizeof(T));
    return Swap(value);
  }
  void Set(T value) {
    value = Swap(value);
    std::memcpy(bytes_, &value, sizeof(T));
  }
  static T Swap(T value) {
    if constexpr (std::endian::native == std::endian::little) {
      return value;
    } else if constexpr (sizeof(T) == 2) {
      return static_cast<T>(__builtin_bswap16(value));
    } else if constexpr (sizeof(T) == 4) {
      return static_cast<T>(__builtin_bswap32(value));
    } else {
      return static_cast<T>(__builtin_bswap64(value));
    }
  }

  uint8_t bytes_[sizeof(T)];
};

using Le16 = Le<uint16_t>;
using Le32 = Le<uint32_t>;
using Le64 = Le<uint64_t>;
using LeS64 = Le<int64_t>;

// What may be laid over bytes of a block: no padding, no pointers, no alignment.
template <typename T>
concept OnDisk = std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T> &&
                 std::has_unique_object_representations_v<T> && alignof(T) == 1;

}  // namespace sluice::format

#endif  // SLUICE_FORMAT_ENDIAN_H_
