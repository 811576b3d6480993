// SPDX-License-Identifier: Apache-2.0
//
// Whether what a crash has left is allowed, judged by content.
//
// - The namespace (names, types, hard links, link counts, permissions, targets, sizes) is that of
//   one moment, no earlier than what was promised. A write of several steps may have its file at a
//   size between, at a page's end.
// - A sector of a file's data is one that the file had at one later moment (torn means: another
//   sector may be of another moment): not older than the last promise for its data, and not older
//   than when the size of the judged moment came to reach its bytes, since a size is never durable
//   before the data under it. Bytes past the end at such a moment count as zeros.
// - Anything else (poison, bytes of another file, of another place, of an older life of the block)
//   is a violation.
#ifndef SLUICE_TESTS_CRASH_JUDGE_H_
#define SLUICE_TESTS_CRASH_JUDGE_H_

#include <string>

#include "tests/crash/model.h"
#include "tests/crash/tree.h"

namespace sluice::crash {

// `returned`: operations that had returned before the crash; one more may have been under way.
// Returns what is wrong, or nothing.
std::string Judge(const History& history, size_t returned, const Tree& tree);

}  // namespace sluice::crash

#endif  // SLUICE_TESTS_CRASH_JUDGE_H_
