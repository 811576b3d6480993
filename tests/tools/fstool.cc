// SPDX-License-Identifier: Apache-2.0
// Entry point of fstool and the helpers its commands share.
#include "tests/tools/fstool.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>

namespace fstool {

std::string ErrnoName(int error) {
  if (error == 0) return "0";
  const char* name = strerrorname_np(error);
  return name != nullptr ? name : "E" + std::to_string(error);
}

int Fail(const char* format, ...) {
  std::fflush(stdout);
  std::fputs("fstool: ", stderr);
  va_list list;
  va_start(list, format);
  std::vfprintf(stderr, format, list);
  va_end(list);
  std::fputc('\n', stderr);
  return 1;
}

int64_t ParseNumber(const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const int64_t value = std::strtoll(text.c_str(), &end, 0);
  int shift = 0;
  switch (*end) {
    case 'k':
      shift = 10;
      break;
    case 'm':
      shift = 20;
      break;
    case 'g':
      shift = 30;
      break;
    case 't':
      shift = 40;
      break;
    default:
      break;
  }
  if (shift != 0) ++end;
  if (errno != 0 || end == text.c_str() || *end != '\0') {
    std::exit(Fail("not a number: %s", text.c_str()) + 1);
  }
  return value * (int64_t{1} << shift);
}

uint64_t Random::Next() {
  state_ += 0x9e3779b97f4a7c15ULL;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

namespace {

uint64_t PatternWord(uint64_t seed, uint64_t index) {
  return Random(seed * 0x2545f4914f6cdd1dULL + index).Next() | 0x0101010101010101ULL;
}

}  // namespace

char PatternByte(uint64_t seed, uint64_t offset) {
  return static_cast<char>(PatternWord(seed, offset / 8) >> (8 * (offset % 8)));
}

void FillPattern(uint64_t seed, uint64_t offset, char* out, size_t size) {
  size_t done = 0;
  while (done < size) {
    const uint64_t at = offset + done;
    const uint64_t word = PatternWord(seed, at / 8);
    for (uint64_t b = at % 8; b < 8 && done < size; ++b) {
      out[done++] = static_cast<char>(word >> (8 * b));
    }
  }
}

bool WriteAll(int fd, const char* data, size_t size, off_t offset) {
  while (size > 0) {
    const ssize_t n = pwrite(fd, data, size, offset);
    if (n < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    data += n;
    offset += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

bool ReadAll(int fd, char* data, size_t size, off_t offset) {
  while (size > 0) {
    const ssize_t n = pread(fd, data, size, offset);
    if (n < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    if (n == 0) {
      errno = 0;
      return false;
    }
    data += n;
    offset += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

namespace {

// One ioctl on a directory.
int CallOnDirectory(const std::string& path, unsigned long request, void* argument) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY);
  if (fd < 0) return Fail("open %s: %s", path.c_str(), ErrnoName(errno).c_str());
  const int rc = ioctl(fd, request, argument);
  const int error = errno;
  close(fd);
  return rc == 0 ? 0 : Fail("ioctl: %s", ErrnoName(error).c_str());
}

}  // namespace

// shutdown DIR [flush|log|none]: FS_IOC_GOINGDOWN. Without flushing the log (the default) it is the
// nearest thing to a killed daemon that a kernel filesystem offers.
int RunShutdown(const Args& args) {
  if (args.empty() || args.size() > 2) return 2;
  const std::map<std::string, uint32_t> modes = {{"flush", 0}, {"log", 1}, {"none", 2}};
  const auto mode = modes.find(args.size() == 2 ? args[1] : "none");
  if (mode == modes.end()) return 2;
  uint32_t flag = mode->second;
  return CallOnDirectory(args[0], _IOR('X', 125, uint32_t), &flag);
}

// freeze DIR, thaw DIR: sluicefs' own ioctls, since the kernel has none for FUSE.
int RunFreeze(const Args& args) {
  return args.size() == 1 ? CallOnDirectory(args[0], _IO(0x5C, 1), nullptr) : 2;
}
int RunThaw(const Args& args) {
  return args.size() == 1 ? CallOnDirectory(args[0], _IO(0x5C, 2), nullptr) : 2;
}

// hold FILE...: opens the files, prints "ready", and keeps them open until stdin ends. "-u FILE"
// also unlinks it; "-w FILE" opens it for writing and appends a line first.
int RunHold(const Args& args) {
  char mode = 0;
  for (const std::string& arg : args) {
    if (arg == "-u" || arg == "-w") {
      mode = arg[1];
      continue;
    }
    const int flags = mode == 'w' ? O_RDWR | O_CREAT | O_APPEND : O_RDONLY;
    const int fd = open(arg.c_str(), flags, 0644);
    if (fd < 0) return Fail("open %s: %s", arg.c_str(), ErrnoName(errno).c_str());
    if (mode == 'w' && write(fd, "held\n", 5) != 5) return Fail("write %s", arg.c_str());
    if (mode == 'u' && unlink(arg.c_str()) != 0) return Fail("unlink %s", arg.c_str());
    mode = 0;
  }
  std::puts("ready");
  std::fflush(stdout);
  char c;
  while (read(STDIN_FILENO, &c, 1) > 0) {
  }
  return 0;
}

}  // namespace fstool

int main(int argc, char** argv) {
  using fstool::Args;
  const std::map<std::string, int (*)(const Args&)> commands = {
      {"ops", fstool::RunOps},
      {"pattern", fstool::RunPattern},
      {"append", fstool::RunAppend},
      {"mmap", fstool::RunMmap},
      {"direct", fstool::RunDirect},
      {"mkfiles", fstool::RunMakeFiles},
      {"checkfiles", fstool::RunCheckFiles},
      {"rmfiles", fstool::RunRemoveFiles},
      {"dirscan", fstool::RunDirScan},
      {"syncwriter", fstool::RunSyncWriter},
      {"syncverify", fstool::RunSyncVerify},
      {"fsx", fstool::RunFsx},
      {"stress", fstool::RunStress},
      {"shutdown", fstool::RunShutdown},
      {"freeze", fstool::RunFreeze},
      {"thaw", fstool::RunThaw},
      {"hold", fstool::RunHold},
  };
  const auto command = argc > 1 ? commands.find(argv[1]) : commands.end();
  const int status = command == commands.end() ? 2 : command->second(Args(argv + 2, argv + argc));
  if (status == 2) {
    std::fputs("usage: fstool COMMAND ARGS, COMMAND one of:", stderr);
    for (const auto& [name, unused] : commands) std::fprintf(stderr, " %s", name.c_str());
    std::fputc('\n', stderr);
  }
  return status;
}
