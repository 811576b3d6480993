// SPDX-License-Identifier: Apache-2.0
// fstool commands that write and judge one file: pattern, append, mmap, direct.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "tests/tools/fstool.h"

namespace fstool {
namespace {

constexpr size_t kPage = 4096;

// Index of the first byte of data[0, size) that is not the pattern's, or `size`.
size_t FirstWrong(uint64_t seed, uint64_t offset, const char* data, size_t size) {
  std::string want(size, '\0');
  FillPattern(seed, offset, want.data(), size);
  return static_cast<size_t>(std::mismatch(data, data + size, want.begin()).first - data);
}

int CheckPattern(int fd, int64_t offset, int64_t length, uint64_t seed) {
  std::string data(1 << 20, '\0');
  for (int64_t done = 0; done < length;) {
    const size_t n = static_cast<size_t>(std::min<int64_t>(length - done, 1 << 20));
    if (!ReadAll(fd, data.data(), n, offset + done)) {
      return Fail("cannot read %zu bytes at %lld: %s", n, static_cast<long long>(offset + done),
                  errno == 0 ? "end of file" : ErrnoName(errno).c_str());
    }
    const size_t wrong = FirstWrong(seed, static_cast<uint64_t>(offset + done), data.data(), n);
    if (wrong != n) {
      return Fail("wrong content at byte %lld: 0x%02x",
                  static_cast<long long>(offset + done + static_cast<int64_t>(wrong)),
                  static_cast<unsigned char>(data[wrong]));
    }
    done += static_cast<int64_t>(n);
  }
  return 0;
}

int WritePattern(int fd, int64_t offset, int64_t length, uint64_t seed, size_t chunk) {
  std::string data(chunk, '\0');
  for (int64_t done = 0; done < length;) {
    const size_t n =
        static_cast<size_t>(std::min<int64_t>(length - done, static_cast<int64_t>(chunk)));
    FillPattern(seed, static_cast<uint64_t>(offset + done), data.data(), n);
    if (!WriteAll(fd, data.data(), n, offset + done)) {
      return Fail("write at %lld: %s", static_cast<long long>(offset + done),
                  ErrnoName(errno).c_str());
    }
    done += static_cast<int64_t>(n);
  }
  return 0;
}

int CheckZero(int fd, int64_t offset, int64_t length) {
  std::string data(static_cast<size_t>(length), 'x');
  if (!ReadAll(fd, data.data(), data.size(), offset)) {
    return Fail("read at %lld: %s", static_cast<long long>(offset), ErrnoName(errno).c_str());
  }
  const size_t wrong = data.find_first_not_of('\0');
  if (wrong == std::string::npos) return 0;
  return Fail("byte %lld is not zero",
              static_cast<long long>(offset) + static_cast<long long>(wrong));
}

}  // namespace

// pattern write|check|zero FILE OFFSET LENGTH SEED [CHUNK]
int RunPattern(const Args& args) {
  if (args.size() < 5) return 2;
  const bool writing = args[0] == "write";
  const int fd = open(args[1].c_str(), writing ? O_WRONLY | O_CREAT : O_RDONLY, 0644);
  if (fd < 0) return Fail("open %s: %s", args[1].c_str(), ErrnoName(errno).c_str());
  const int64_t offset = ParseNumber(args[2]);
  const int64_t length = ParseNumber(args[3]);
  const uint64_t seed = static_cast<uint64_t>(ParseNumber(args[4]));
  const size_t chunk = args.size() > 5 ? static_cast<size_t>(ParseNumber(args[5])) : 1 << 17;
  int status = 2;
  if (writing) status = WritePattern(fd, offset, length, seed, chunk);
  if (args[0] == "check") status = CheckPattern(fd, offset, length, seed);
  if (args[0] == "zero") status = CheckZero(fd, offset, length);
  if (close(fd) != 0) return Fail("close: %s", ErrnoName(errno).c_str());
  return status;
}

namespace {

// Record number `index` of writer `writer`: 32 bytes, self-describing.
std::string AppendRecord(int writer, int index) {
  char record[64];
  std::snprintf(record, sizeof(record), "<%06d:%08d:%011u>..\n", writer, index,
                static_cast<unsigned>(writer) * 1000003u + static_cast<unsigned>(index));
  return std::string(record, 32);
}

int AppendWriter(const std::string& path, int writer, int count) {
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT, 0644);
  if (fd < 0) return Fail("open: %s", ErrnoName(errno).c_str());
  for (int i = 0; i < count; ++i) {
    const std::string record = AppendRecord(writer, i);
    if (write(fd, record.data(), record.size()) != static_cast<ssize_t>(record.size())) {
      return Fail("append: %s", ErrnoName(errno).c_str());
    }
  }
  return close(fd) == 0 ? 0 : Fail("close: %s", ErrnoName(errno).c_str());
}

int AppendCheck(const std::string& path, int writers, int count) {
  const int fd = open(path.c_str(), O_RDONLY);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0) return Fail("open: %s", ErrnoName(errno).c_str());
  if (st.st_size != off_t{32} * writers * count) {
    return Fail("size %lld, not %lld", static_cast<long long>(st.st_size),
                static_cast<long long>(off_t{32} * writers * count));
  }
  std::string data(static_cast<size_t>(st.st_size), '\0');
  if (!ReadAll(fd, data.data(), data.size(), 0)) return Fail("read: %s", ErrnoName(errno).c_str());
  close(fd);
  std::vector<int> next(static_cast<size_t>(writers), 0);
  for (size_t at = 0; at < data.size(); at += 32) {
    const int writer = std::atoi(data.substr(at + 1, 6).c_str());
    if (writer < 0 || writer >= writers) return Fail("torn record at %zu", at);
    int& index = next[static_cast<size_t>(writer)];
    if (data.compare(at, 32, AppendRecord(writer, index)) != 0) {
      return Fail("record at %zu is not number %d of writer %d", at, index, writer);
    }
    ++index;
  }
  return 0;
}

}  // namespace

// append run|check FILE WRITERS COUNT: many processes append records; each must be there once,
// whole, and in its writer's order.
int RunAppend(const Args& args) {
  if (args.size() != 4) return 2;
  const int writers = static_cast<int>(ParseNumber(args[2]));
  const int count = static_cast<int>(ParseNumber(args[3]));
  if (args[0] == "check") return AppendCheck(args[1], writers, count);
  for (int writer = 0; writer < writers; ++writer) {
    if (fork() == 0) _exit(AppendWriter(args[1], writer, count));
  }
  int failed = 0;
  for (int status = 0; wait(&status) > 0;) {
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) failed = 1;
  }
  return failed != 0 ? 1 : AppendCheck(args[1], writers, count);
}

namespace {

sigjmp_buf g_bus_jump;

void OnBus(int) { siglongjmp(g_bus_jump, 1); }

// True if reading *at raises SIGBUS.
bool ReadRaisesBus(const volatile char* at) {
  struct sigaction action = {};
  struct sigaction old = {};
  action.sa_handler = OnBus;
  sigaction(SIGBUS, &action, &old);
  volatile bool raised = true;  // its value must outlive the jump
  if (sigsetjmp(g_bus_jump, 1) == 0) {
    const char value = *at;
    static_cast<void>(value);
    raised = false;
  }
  sigaction(SIGBUS, &old, nullptr);
  return raised;
}

// `strict` adds a store past the end of the file. The kernel must not let it become content when
// the file grows; for a FUSE file it does, in a way that no daemon can see.
int MmapSequence(int fd, char* map, bool strict) {
  constexpr size_t kSize = 16 * kPage;
  if (!std::all_of(map, map + kSize, [](char c) { return c == 0; })) {
    return Fail("a fresh hole is not zero");
  }
  FillPattern(11, 0, map, kSize);
  if (msync(map, kSize, MS_SYNC) != 0) return Fail("msync: %s", ErrnoName(errno).c_str());
  if (CheckPattern(fd, 0, kSize, 11) != 0) return Fail("read() after a store through the map");
  if (WritePattern(fd, 3 * kPage + 100, 5000, 12, 5000) != 0) return 1;
  if (FirstWrong(12, 3 * kPage + 100, map + 3 * kPage + 100, 5000) != 5000) {
    return Fail("the map does not show a write()");
  }
  if (ftruncate(fd, 4 * kPage + 10) != 0) return Fail("ftruncate: %s", ErrnoName(errno).c_str());
  if (!ReadRaisesBus(map + 8 * kPage)) return Fail("no SIGBUS beyond the end");
  if (strict) map[4 * kPage + 20] = 'x';
  if (ftruncate(fd, kSize) != 0) return Fail("ftruncate: %s", ErrnoName(errno).c_str());
  if (CheckZero(fd, 4 * kPage + 10, kSize - 4 * kPage - 10) != 0) return 1;
  FillPattern(13, 8 * kPage, map + 8 * kPage, 8 * kPage);
  return 0;
}

}  // namespace

// mmap run|check FILE [strict]: shared stores, msync, and truncation under a mapping; check judges
// the result after a remount.
int RunMmap(const Args& args) {
  if (args.size() < 2) return 2;
  const int fd = open(args[1].c_str(), O_RDWR | O_CREAT, 0644);
  if (fd < 0) return Fail("open: %s", ErrnoName(errno).c_str());
  if (args[0] == "run") {
    if (ftruncate(fd, 16 * kPage) != 0) return Fail("ftruncate: %s", ErrnoName(errno).c_str());
    void* map = mmap(nullptr, 16 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return Fail("mmap: %s", ErrnoName(errno).c_str());
    if (MmapSequence(fd, static_cast<char*>(map), args.size() > 2) != 0) return 1;
    munmap(map, 16 * kPage);
  }
  int bad = CheckPattern(fd, 0, 3 * kPage + 100, 11);
  bad |= CheckPattern(fd, 3 * kPage + 100, 4 * kPage + 10 - (3 * kPage + 100), 12);
  bad |= CheckZero(fd, 4 * kPage + 10, 4 * kPage - 10);
  bad |= CheckPattern(fd, 8 * kPage, 8 * kPage, 13);
  close(fd);
  return bad;
}

namespace {

int DirectSequence(int direct, int buffered, char* buffer) {
  FillPattern(21, 0, buffer, 16 * kPage);
  if (!WriteAll(direct, buffer, 16 * kPage, 0)) {
    return Fail("direct write: %s", ErrnoName(errno).c_str());
  }
  if (CheckPattern(buffered, 0, 16 * kPage, 21) != 0) return Fail("buffered read of direct write");
  if (WritePattern(buffered, 4 * kPage, 2 * kPage, 22, 1000) != 0) return 1;
  std::memset(buffer, 0, 16 * kPage);
  if (!ReadAll(direct, buffer, 16 * kPage, 0)) {
    return Fail("direct read: %s", ErrnoName(errno).c_str());
  }
  if (FirstWrong(22, 4 * kPage, buffer + 4 * kPage, 2 * kPage) != 2 * kPage) {
    return Fail("direct read does not show the buffered write");
  }
  FillPattern(23, 20 * kPage, buffer, kPage);
  if (!WriteAll(direct, buffer, kPage, 20 * kPage)) {
    return Fail("direct write beyond the end: %s", ErrnoName(errno).c_str());
  }
  if (CheckZero(buffered, 16 * kPage, 4 * kPage) != 0) return 1;
  FillPattern(24, 5 * kPage, buffer, kPage);
  if (!WriteAll(direct, buffer, kPage, 5 * kPage)) return Fail("direct overwrite");
  return CheckPattern(buffered, 5 * kPage, kPage, 24);
}

// An odd offset is either refused or done right, never done wrong.
int DirectUnaligned(int direct, int buffered, char* buffer) {
  FillPattern(25, 30 * kPage + 7, buffer, 1000);
  const ssize_t n = pwrite(direct, buffer, 1000, 30 * kPage + 7);
  if (n < 0) {
    return errno == EINVAL ? 0 : Fail("unaligned direct write: %s", ErrnoName(errno).c_str());
  }
  return CheckPattern(buffered, 30 * kPage + 7, n, 25);
}

}  // namespace

// direct run|check FILE: O_DIRECT beside buffered access of the same file.
int RunDirect(const Args& args) {
  if (args.size() != 2) return 2;
  const int buffered = open(args[1].c_str(), O_RDWR | O_CREAT, 0644);
  if (buffered < 0) return Fail("open: %s", ErrnoName(errno).c_str());
  int bad = 0;
  if (args[0] == "run") {
    const int direct = open(args[1].c_str(), O_RDWR | O_DIRECT);
    if (direct < 0) return Fail("open O_DIRECT: %s", ErrnoName(errno).c_str());
    void* buffer = nullptr;
    if (posix_memalign(&buffer, kPage, 16 * kPage) != 0) return Fail("no memory");
    bad = DirectSequence(direct, buffered, static_cast<char*>(buffer));
    if (bad == 0) bad = DirectUnaligned(direct, buffered, static_cast<char*>(buffer));
    std::free(buffer);
    if (close(direct) != 0) bad = Fail("close");
  }
  bad |= CheckPattern(buffered, 0, 4 * kPage, 21);
  bad |= CheckPattern(buffered, 4 * kPage, kPage, 22);
  bad |= CheckPattern(buffered, 5 * kPage, kPage, 24);
  bad |= CheckPattern(buffered, 6 * kPage, 10 * kPage, 21);
  bad |= CheckZero(buffered, 16 * kPage, 4 * kPage);
  bad |= CheckPattern(buffered, 20 * kPage, kPage, 23);
  close(buffered);
  return bad;
}

}  // namespace fstool
