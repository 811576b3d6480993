// SPDX-License-Identifier: Apache-2.0
// fstool commands about large directories: mkfiles, checkfiles, rmfiles, dirscan.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <unordered_set>

#include "tests/tools/fstool.h"

namespace fstool {
namespace {

std::string FileName(const std::string& prefix, int64_t index) {
  char number[24];
  std::snprintf(number, sizeof(number), "%07lld", static_cast<long long>(index));
  return prefix + number;
}

uint64_t FileSeed(int64_t index) { return static_cast<uint64_t>(index) + 1000; }

int OpenDir(const std::string& path) {
  return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

int MakeFile(int dir, const std::string& name, int64_t size, int64_t index) {
  const int fd = openat(dir, name.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0644);
  if (fd < 0) return Fail("create %s: %s", name.c_str(), ErrnoName(errno).c_str());
  std::string data(static_cast<size_t>(size), '\0');
  FillPattern(FileSeed(index), 0, data.data(), data.size());
  const bool written = WriteAll(fd, data.data(), data.size(), 0);
  const int error = errno;
  if (close(fd) != 0 || !written) {
    return Fail("write %s: %s", name.c_str(), ErrnoName(error).c_str());
  }
  return 0;
}

int CheckFile(int dir, const std::string& name, int64_t size, int64_t index) {
  struct stat st;
  if (fstatat(dir, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    return Fail("stat %s: %s", name.c_str(), ErrnoName(errno).c_str());
  }
  if (!S_ISREG(st.st_mode) || st.st_size != size) {
    return Fail("%s has size %lld", name.c_str(), static_cast<long long>(st.st_size));
  }
  if (size == 0) return 0;
  const int fd = openat(dir, name.c_str(), O_RDONLY);
  std::string data(static_cast<size_t>(size), '\0');
  std::string want(static_cast<size_t>(size), '\0');
  FillPattern(FileSeed(index), 0, want.data(), want.size());
  const bool good = fd >= 0 && ReadAll(fd, data.data(), data.size(), 0) && data == want;
  if (fd >= 0) close(fd);
  return good ? 0 : Fail("%s has wrong content", name.c_str());
}

}  // namespace

// mkfiles DIR COUNT [SIZE] [PREFIX]: DIR/PREFIX0000000 and so on, with content that checkfiles
// knows.
int RunMakeFiles(const Args& args) {
  if (args.size() < 2) return 2;
  const int dir = OpenDir(args[0]);
  if (dir < 0) return Fail("open %s: %s", args[0].c_str(), ErrnoName(errno).c_str());
  const int64_t count = ParseNumber(args[1]);
  const int64_t size = args.size() > 2 ? ParseNumber(args[2]) : 0;
  const std::string prefix = args.size() > 3 ? args[3] : "f";
  for (int64_t i = 0; i < count; ++i) {
    if (MakeFile(dir, FileName(prefix, i), size, i) != 0) return 1;
  }
  close(dir);
  return 0;
}

// checkfiles DIR COUNT [SIZE] [PREFIX] [STEP]: readdir gives exactly those names, each once; every
// STEPth file is looked up and compared.
int RunCheckFiles(const Args& args) {
  if (args.size() < 2) return 2;
  const int64_t count = ParseNumber(args[1]);
  const int64_t size = args.size() > 2 ? ParseNumber(args[2]) : 0;
  const std::string prefix = args.size() > 3 ? args[3] : "f";
  const int64_t step = args.size() > 4 ? ParseNumber(args[4]) : 1;
  DIR* dir = opendir(args[0].c_str());
  if (dir == nullptr) return Fail("open %s: %s", args[0].c_str(), ErrnoName(errno).c_str());
  std::unordered_set<std::string> names;
  while (const dirent* entry = readdir(dir)) {
    if (!names.insert(entry->d_name).second) return Fail("%s listed twice", entry->d_name);
  }
  if (names.size() != static_cast<size_t>(count) + 2) {
    return Fail("%zu names listed, not %lld", names.size() - 2, static_cast<long long>(count));
  }
  for (int64_t i = 0; i < count; ++i) {
    const std::string name = FileName(prefix, i);
    if (names.count(name) == 0) return Fail("%s not listed", name.c_str());
    if (i % step == 0 && CheckFile(dirfd(dir), name, size, i) != 0) return 1;
  }
  closedir(dir);
  return 0;
}

// rmfiles DIR COUNT [PREFIX] [FIRST] [STEP]
int RunRemoveFiles(const Args& args) {
  if (args.size() < 2) return 2;
  const int dir = OpenDir(args[0]);
  if (dir < 0) return Fail("open %s: %s", args[0].c_str(), ErrnoName(errno).c_str());
  const int64_t count = ParseNumber(args[1]);
  const std::string prefix = args.size() > 2 ? args[2] : "f";
  const int64_t first = args.size() > 3 ? ParseNumber(args[3]) : 0;
  const int64_t step = args.size() > 4 ? ParseNumber(args[4]) : 1;
  for (int64_t i = first; i < count; i += step) {
    const std::string name = FileName(prefix, i);
    if (unlinkat(dir, name.c_str(), 0) != 0) {
      return Fail("unlink %s: %s", name.c_str(), ErrnoName(errno).c_str());
    }
  }
  close(dir);
  return 0;
}

namespace {

// Between two reads of the stream: adds some names and removes some that were added before, so that
// blocks split and entries move under the reader.
class Churn {
 public:
  explicit Churn(const std::string& path) : dir_(OpenDir(path)) {}
  ~Churn() {
    Step(0, 1 << 30);
    close(dir_);
  }
  Churn(const Churn&) = delete;
  Churn& operator=(const Churn&) = delete;

  bool Step(int adds, int removes) {
    for (int i = 0; i < adds; ++i) {
      if (MakeFile(dir_, FileName("churn-with-a-longer-name-", next_++), 0, 0) != 0) return false;
    }
    for (int i = 0; i < removes && first_ < next_; ++i) {
      const std::string name = FileName("churn-with-a-longer-name-", first_++);
      if (unlinkat(dir_, name.c_str(), 0) != 0) return false;
    }
    return true;
  }

 private:
  const int dir_;
  int64_t first_ = 0;
  int64_t next_ = 0;
};

int Scan(const std::string& path, int64_t count, int churn) {
  DIR* stream = opendir(path.c_str());
  if (stream == nullptr) return Fail("opendir: %s", ErrnoName(errno).c_str());
  Churn changes(path);
  std::map<std::string, int> seen;
  int64_t entries = 0;
  while (const dirent* entry = readdir(stream)) {
    if (entry->d_name[0] == 's') ++seen[entry->d_name];
    if (++entries % 50 == 0 && entries < 4 * count && !changes.Step(churn, churn / 2)) {
      return Fail("cannot change the directory: %s", ErrnoName(errno).c_str());
    }
  }
  closedir(stream);
  for (int64_t i = 0; i < count; ++i) {
    const int times = seen[FileName("s", i)];
    if (times != 1) return Fail("%s returned %d times", FileName("s", i).c_str(), times);
  }
  return 0;
}

// A position from telldir leads back to the same entry, also after other names have come and gone.
int SeekBack(const std::string& path) {
  DIR* stream = opendir(path.c_str());
  if (stream == nullptr) return Fail("opendir: %s", ErrnoName(errno).c_str());
  std::vector<std::pair<long, std::string>> positions;
  long at = telldir(stream);
  while (const dirent* entry = readdir(stream)) {
    positions.emplace_back(at, entry->d_name);
    at = telldir(stream);
  }
  Churn changes(path);
  if (!changes.Step(200, 200)) return 1;
  for (size_t i = 0; i < positions.size(); i += 1 + positions.size() / 40) {
    const auto& [position, name] = positions[positions.size() - 1 - i];
    if (name[0] != 's' || position == positions[0].first) continue;
    seekdir(stream, position);
    const dirent* entry = readdir(stream);
    if (entry == nullptr || name != entry->d_name) {
      return Fail("seekdir to %s gave %s", name.c_str(),
                  entry == nullptr ? "the end" : entry->d_name);
    }
  }
  rewinddir(stream);
  if (readdir(stream) == nullptr) return Fail("nothing after rewinddir");
  closedir(stream);
  return 0;
}

}  // namespace

// dirscan DIR COUNT: makes COUNT names that stay, and reads the directory three times while others
// are added and removed; each of the names that stay must be returned exactly once.
int RunDirScan(const Args& args) {
  if (args.size() != 2) return 2;
  const int64_t count = ParseNumber(args[1]);
  const Args make = {args[0], args[1], "0", "s"};
  if (RunMakeFiles(make) != 0) return 1;
  for (const int churn : {10, 2, 40}) {
    if (Scan(args[0], count, churn) != 0) return 1;
  }
  return SeekBack(args[0]);
}

}  // namespace fstool
