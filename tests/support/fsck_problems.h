// SPDX-License-Identifier: Apache-2.0
//
// The checker's opinion of an image, as a text for a failing test.
#ifndef SLUICE_TESTS_SUPPORT_FSCK_PROBLEMS_H_
#define SLUICE_TESTS_SUPPORT_FSCK_PROBLEMS_H_

#include <string>

#include "block/device.h"
#include "fsck/check.h"

namespace sluice::testing_support {

// Empty if the image, after a replay in memory, is as the format says. Notes are no problems.
inline std::string FsckProblems(Device* device) {
  CheckReport report;
  CheckOptions options;
  options.max_findings = 20;
  const Error error = CheckImage(device, options, &report);
  if (error != Error::kOk) {
    return "fsck: " + std::string(ErrorText(error)) + ": " + report.message;
  }
  std::string problems;
  for (const Finding& finding : report.findings) {
    if (InfoOf(finding.id).severity == Severity::kError) problems += Describe(finding) + "\n";
  }
  if (problems.empty() && !report.clean()) problems = "fsck: not clean, and says nothing";
  return problems;
}

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_SUPPORT_FSCK_PROBLEMS_H_
