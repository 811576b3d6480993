// SPDX-License-Identifier: Apache-2.0
//
// Linked into a test program, it makes the fixture of tests/support/fs_fixture.h check its image
// after each test.
#include "tests/support/fs_fixture.h"
#include "tests/support/fsck_problems.h"

namespace sluice::testing_support {
namespace {

[[maybe_unused]] const bool kRegistered = [] {
  CheckAfterTest() = FsckProblems;
  return true;
}();

}  // namespace
}  // namespace sluice::testing_support
