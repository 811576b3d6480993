// SPDX-License-Identifier: Apache-2.0
//
// One valid example of each structure, for the tests to damage.
#ifndef SLUICE_TESTS_FORMAT_SAMPLE_BLOCKS_H_
#define SLUICE_TESTS_FORMAT_SAMPLE_BLOCKS_H_

#include <array>
#include <string_view>
#include <vector>

#include "format/directory.h"
#include "format/extent.h"
#include "format/geometry.h"
#include "format/inode.h"
#include "format/log_record.h"
#include "format/superblock.h"

namespace sluice::format::testing {

inline constexpr uint64_t kSeed = 0x1122334455667788;
inline constexpr uint64_t kHashSeed = 0x99aabbccddeeff00;

using Block = std::array<std::byte, kBlockSize>;

// A superblock of `blocks` blocks; one journal run of 1024 blocks at the end of group 0.
Superblock SampleSuperblock(uint64_t blocks, uint32_t inodes_per_group = 8192,
                            uint32_t flex_shift = 4);

// A regular file's inode with two extents, sealed for `ino`.
Inode SampleInode(InodeNumber ino);

// A leaf with `names`, in key order.
Block SampleDirLeaf(const std::vector<std::string_view>& names);

// An index of `children` children, 1, 2, ..., whose first key is 0.
Block SampleDirIndex(uint32_t children);

// A leaf node of `count` extents of 10 blocks each, with holes of 10 between.
Block SampleExtentLeaf(uint32_t count);

JournalSuper SampleJournalSuper();

}  // namespace sluice::format::testing

#endif  // SLUICE_TESTS_FORMAT_SAMPLE_BLOCKS_H_
