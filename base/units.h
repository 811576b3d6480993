// SPDX-License-Identifier: Apache-2.0
//
// The quantities that every room counts in.
#ifndef SLUICE_BASE_UNITS_H_
#define SLUICE_BASE_UNITS_H_

#include <cstddef>
#include <cstdint>

namespace sluice {

using BlockNumber = uint64_t;  // physical block of the image
using FileBlock = uint64_t;    // logical block within a file
using BlockCount = uint64_t;
using InodeNumber = uint64_t;  // 1 is the root directory; 0 is none
using GroupNumber = uint32_t;
using Tid = uint64_t;         // transaction id; never reused within an image
using Nanoseconds = int64_t;  // since the epoch, or a duration

inline constexpr uint32_t kBlockShift = 12;
inline constexpr uint32_t kBlockSize = 1u << kBlockShift;
inline constexpr uint32_t kSectorSize = 512;
inline constexpr BlockNumber kNoBlock = 0;  // block 0 is the superblock, never a file's

constexpr uint64_t BlocksForBytes(uint64_t bytes) {
  return (bytes >> kBlockShift) + ((bytes & (kBlockSize - 1)) != 0 ? 1 : 0);
}

}  // namespace sluice

#endif  // SLUICE_BASE_UNITS_H_
