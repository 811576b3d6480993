// SPDX-License-Identifier: Apache-2.0
//
// Going into the background without losing errors: the parent stays until the child says how the
// start went, and exits with the child's code. The child keeps stderr until then.
#ifndef SLUICE_FS_FUSE_LAUNCH_H_
#define SLUICE_FS_FUSE_LAUNCH_H_

namespace sluice {

// Thread-compatible.
class Launch {
 public:
  // Foreground: no second process, ReportReady does nothing.
  Launch() = default;
  ~Launch();
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  // Forks. Returns in the child only; the parent waits for the child's report and exits with its
  // code. Before any thread exists. False when the system cannot.
  [[nodiscard]] bool GoToBackground();

  // In the child: leaves the terminal (new session, standard files to /dev/null, messages to
  // syslog, working directory /) and lets the parent exit with 0.
  void ReportReady();

 private:
  int report_fd_ = -1;
};

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_LAUNCH_H_
