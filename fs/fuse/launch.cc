// SPDX-License-Identifier: Apache-2.0
//
// See launch.h. The report is one byte, sent only for success; a child that exits instead is asked
// for its exit code.
#include "fs/fuse/launch.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "base/log.h"
#include "fs/fuse/command_line.h"

namespace sluice {
namespace {

int ExitCodeOfChild(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return kExitInternal;
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::fprintf(stderr, "sluicefs: died by signal %d while mounting\n", WTERMSIG(status));
  return kExitInternal;
}

[[noreturn]] void WaitAndExit(pid_t child, int report_fd) {
  char byte;
  ssize_t got;
  do {
    got = read(report_fd, &byte, 1);
  } while (got < 0 && errno == EINTR);
  _exit(got == 1 ? kExitSuccess : ExitCodeOfChild(child));
}

void SendToSyslog(LogLevel level, std::string_view line) {
  const int priority = level == LogLevel::kError     ? LOG_ERR
                       : level == LogLevel::kWarning ? LOG_WARNING
                                                     : LOG_INFO;
  syslog(priority, "%.*s", static_cast<int>(line.size()), line.data());
}

void LeaveTerminal() {
  setsid();
  // The directory that we were started in must stay free to be unmounted.
  if (chdir("/") != 0) LogWarning("cannot change to /");
  openlog("sluicefs", LOG_PID, LOG_DAEMON);
  SetLogSink(SendToSyslog);
  const int null_fd = open("/dev/null", O_RDWR);
  if (null_fd < 0) return;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null_fd, fd);
  if (null_fd > STDERR_FILENO) close(null_fd);
}

}  // namespace

Launch::~Launch() {
  if (report_fd_ >= 0) close(report_fd_);
}

bool Launch::GoToBackground() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    return false;
  }
  if (child > 0) {
    close(ends[1]);
    WaitAndExit(child, ends[0]);
  }
  close(ends[0]);
  report_fd_ = ends[1];
  return true;
}

void Launch::ReportReady() {
  if (report_fd_ < 0) return;
  LeaveTerminal();
  const char ready = 0;
  // The parent may have been killed: the mount stands all the same.
  (void)!write(report_fd_, &ready, 1);
  close(report_fd_);
  report_fd_ = -1;
}

}  // namespace sluice
