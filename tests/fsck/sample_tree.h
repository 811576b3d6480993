// SPDX-License-Identifier: Apache-2.0
//
// An image with one of everything, unmounted cleanly, for the tests to damage.
#ifndef SLUICE_TESTS_FSCK_SAMPLE_TREE_H_
#define SLUICE_TESTS_FSCK_SAMPLE_TREE_H_

#include <memory>

#include "base/units.h"
#include "block/memory_device.h"

namespace sluice::testing {

struct SampleTree {
  std::unique_ptr<MemoryDevice> image;
  InodeNumber big_directory = 0;  // /big, 600 names, two levels
  InodeNumber directory = 0;      // /dir, holds sub, other, file, again
  InodeNumber sub = 0;            // /dir/sub
  InodeNumber other = 0;          // /dir/other, empty
  InodeNumber inner = 0;          // /dir/sub/inner, empty
  InodeNumber file = 0;           // /dir/file and /dir/again, one extent
  InodeNumber fragmented = 0;     // /fragmented, with an extent block
  InodeNumber long_symlink = 0;   // /long
  InodeNumber short_symlink = 0;  // /short
  InodeNumber fifo = 0;           // /fifo
};

// Made once in a process; 512 MiB, four groups. Tests work on clones of `image`.
const SampleTree& TheSampleTree();

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_FSCK_SAMPLE_TREE_H_
