// SPDX-License-Identifier: Apache-2.0
//
// Parts of the FUSE protocol that are newer than the kernel header of Debian 12 (7.38), and the
// opcodes that libfuse 3.14 does not know.
#ifndef SLUICE_FS_FUSE_FUSE_PROTOCOL_H_
#define SLUICE_FS_FUSE_FUSE_PROTOCOL_H_

#include <linux/fuse.h>

#include <cstdint>

namespace sluice {

inline constexpr uint32_t kOpcodeSyncfs = 50;
inline constexpr uint32_t kOpcodeTmpfile = 51;
inline constexpr uint32_t kOpcodeStatx = 52;

inline constexpr uint64_t kInitDirectIoAllowMmap = uint64_t{1} << 36;
inline constexpr uint32_t kOpenParallelDirectWrites = 1u << 6;
inline constexpr uint32_t kSetattrKillSuidgid = 1u << 11;

struct StatxIn {
  uint32_t getattr_flags;
  uint32_t reserved;
  uint64_t handle;
  uint32_t statx_flags;
  uint32_t statx_mask;
};
static_assert(sizeof(StatxIn) == 24);

struct StatxTime {
  int64_t seconds;
  uint32_t nanoseconds;
  int32_t reserved;
};

struct StatxAttributes {
  uint32_t mask;
  uint32_t block_size;
  uint64_t attributes;
  uint32_t links;
  uint32_t uid;
  uint32_t gid;
  uint16_t mode;
  uint16_t spare0;
  uint64_t inode;
  uint64_t size;
  uint64_t sectors;
  uint64_t attributes_mask;
  StatxTime access;
  StatxTime birth;
  StatxTime change;
  StatxTime modification;
  uint32_t rdev_major;
  uint32_t rdev_minor;
  uint32_t dev_major;
  uint32_t dev_minor;
  uint64_t spare2[14];
};
static_assert(sizeof(StatxAttributes) == 256);

struct StatxOut {
  uint64_t valid_seconds;
  uint32_t valid_nanoseconds;
  uint32_t flags;
  uint64_t spare[2];
  StatxAttributes stat;
};
static_assert(sizeof(StatxOut) == 288);

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_FUSE_PROTOCOL_H_
