// SPDX-License-Identifier: Apache-2.0
//
// Everything that a mounted filesystem shows to who walks it.
#ifndef SLUICE_TESTS_CRASH_TREE_H_
#define SLUICE_TESTS_CRASH_TREE_H_

#include <map>
#include <string>

#include "base/units.h"
#include "fs/filesystem.h"

namespace sluice::crash {

struct TreeNode {
  Attributes attributes;
  std::string content;                         // of a file; a symlink's target
  std::map<std::string, InodeNumber> entries;  // of a directory, without "." and ".."
};

struct Tree {
  std::map<InodeNumber, TreeNode> nodes;
};

// Reads the whole tree. Returns what is wrong with it in itself (a directory in two places, a name
// twice, something that cannot be read), or nothing.
std::string ReadTree(Filesystem* fs, Tree* tree);

// A text that is the same exactly if the trees are, but for times.
std::string Fingerprint(const Tree& tree);
// One line per name, for a person.
std::string Describe(const Tree& tree);

}  // namespace sluice::crash

#endif  // SLUICE_TESTS_CRASH_TREE_H_
