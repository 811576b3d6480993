// SPDX-License-Identifier: Apache-2.0
//
// A directory of the test's own that is gone when the test ends.
#ifndef SLUICE_TESTS_SUPPORT_TEMP_DIR_H_
#define SLUICE_TESTS_SUPPORT_TEMP_DIR_H_

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "base/check.h"

namespace sluice {

class TempDir {
 public:
  // In $TMPDIR, or in `parent`.
  explicit TempDir(const std::string& parent = std::filesystem::temp_directory_path()) {
    std::string pattern = parent + "/sluicefs-test.XXXXXX";
    SLUICE_CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace sluice

#endif  // SLUICE_TESTS_SUPPORT_TEMP_DIR_H_
