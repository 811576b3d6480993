// SPDX-License-Identifier: Apache-2.0
// fstool fsx: random reads, writes, truncates and mapped accesses of one file, each judged against
// a copy in memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <set>
#include <string>

#include "tests/tools/fstool.h"

namespace fstool {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kLimit = 512 * 1024;

struct FsxOptions {
  bool map = false;
  bool direct = false;
  bool hole = false;
};

class Fsx {
 public:
  Fsx(const std::string& path, uint64_t seed, const FsxOptions& options)
      : path_(path), random_(seed), options_(options) {}

  bool Open(int flags) {
    fd_ = open(path_.c_str(), O_RDWR | flags, 0644);
    if (fd_ >= 0 && options_.direct) direct_ = open(path_.c_str(), O_RDWR | O_DIRECT);
    return fd_ >= 0 && (!options_.direct || direct_ >= 0);
  }

  void Close() {
    close(fd_);
    if (direct_ >= 0) close(direct_);
  }

  bool Step() {
    const uint64_t dice = random_.Below(100);
    if (dice < 30) return Write();
    if (dice < 55) return Read();
    if (dice < 65) return Truncate();
    if (dice < 75) return options_.map ? MapWrite() : Write();
    if (dice < 82) return options_.map ? MapRead() : Read();
    if (dice < 92) return options_.direct ? DirectIo() : Read();
    if (dice < 96) return options_.hole ? Punch() : Truncate();
    return Reopen();
  }

  bool CheckAll() {
    Log("check all", 0, model_.size());
    struct stat st;
    if (fstat(fd_, &st) != 0 || static_cast<size_t>(st.st_size) != model_.size()) {
      return Fail("size %lld, not %zu", static_cast<long long>(st.st_size), model_.size()) == 0;
    }
    return Compare(fd_, 0, model_.size());
  }

  bool Save(const std::string& path) const {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0) return false;
    const bool good = WriteAll(fd, model_.data(), model_.size(), 0);
    return close(fd) == 0 && good;
  }

  void PrintLog() const {
    for (const std::string& line : log_) std::fprintf(stderr, "  %s\n", line.c_str());
  }

 private:
  void Log(const char* what, size_t offset, size_t size) {
    char line[96];
    std::snprintf(line, sizeof(line), "%zu: %s [%zu, %zu)", step_++, what, offset, offset + size);
    log_.emplace_back(line);
    if (log_.size() > 40) log_.pop_front();
  }

  size_t Offset() { return random_.Below(kLimit - 70000); }
  size_t Size() { return 1 + random_.Below(random_.Below(3) == 0 ? 65536 : 5000); }

  void Grow(size_t size) {
    if (model_.size() < size) model_.resize(size, '\0');
  }

  std::string NewData(size_t offset, size_t size) {
    std::string data(size, '\0');
    FillPattern(random_.Next(), offset, data.data(), size);
    Grow(offset + size);
    std::copy(data.begin(), data.end(), model_.begin() + static_cast<long>(offset));
    return data;
  }

  bool Write() {
    const size_t offset = Offset();
    const std::string data = NewData(offset, Size());
    Log("write", offset, data.size());
    if (WriteAll(fd_, data.data(), data.size(), static_cast<off_t>(offset))) return true;
    return Fail("write: %s", ErrnoName(errno).c_str()) == 0;
  }

  bool Compare(int fd, size_t offset, size_t size) {
    std::string data(size, '?');
    if (size != 0 && !ReadAll(fd, data.data(), size, static_cast<off_t>(offset))) {
      return Fail("read: %s", ErrnoName(errno).c_str()) == 0;
    }
    return CompareBytes(data.data(), offset, size);
  }

  bool CompareBytes(const char* data, size_t offset, size_t size) {
    for (size_t i = 0; i < size; ++i) {
      if (data[i] == model_[offset + i]) continue;
      return Fail("byte %zu is 0x%02x, not 0x%02x", offset + i, static_cast<unsigned char>(data[i]),
                  static_cast<unsigned char>(model_[offset + i])) == 0;
    }
    return true;
  }

  bool Read() {
    if (model_.empty()) return true;
    const size_t offset = random_.Below(model_.size());
    const size_t size = std::min(Size(), model_.size() - offset);
    Log("read", offset, size);
    return Compare(fd_, offset, size);
  }

  bool Truncate() {
    const size_t size = random_.Below(kLimit);
    Log("truncate", size, 0);
    model_.resize(size, '\0');
    if (ftruncate(fd_, static_cast<off_t>(size)) == 0) return true;
    return Fail("ftruncate: %s", ErrnoName(errno).c_str()) == 0;
  }

  // Maps the pages of [offset, offset + size) and hands the bytes to `use`.
  template <typename Use>
  bool WithMap(size_t offset, size_t size, Use use) {
    const size_t start = offset / kPage * kPage;
    void* map = mmap(nullptr, offset + size - start, PROT_READ | PROT_WRITE, MAP_SHARED, fd_,
                     static_cast<off_t>(start));
    if (map == MAP_FAILED) return Fail("mmap: %s", ErrnoName(errno).c_str()) == 0;
    bool good = use(static_cast<char*>(map) + (offset - start));
    if (random_.Below(2) == 0 && msync(map, offset + size - start, MS_SYNC) != 0) {
      good = Fail("msync: %s", ErrnoName(errno).c_str()) == 0;
    }
    munmap(map, offset + size - start);
    return good;
  }

  bool MapWrite() {
    if (model_.empty()) return true;
    const size_t offset = random_.Below(model_.size());
    const std::string data = NewData(offset, std::min(Size(), model_.size() - offset));
    Log("map write", offset, data.size());
    return WithMap(offset, data.size(), [&](char* at) {
      std::copy(data.begin(), data.end(), at);
      return true;
    });
  }

  bool MapRead() {
    if (model_.empty()) return true;
    const size_t offset = random_.Below(model_.size());
    const size_t size = std::min(Size(), model_.size() - offset);
    Log("map read", offset, size);
    return WithMap(offset, size, [&](char* at) { return CompareBytes(at, offset, size); });
  }

  bool DirectIo() {
    const size_t offset = Offset() / kPage * kPage;
    const size_t size = (1 + random_.Below(16)) * kPage;
    alignas(4096) static char buffer[16 * kPage];
    if (random_.Below(2) == 0) {
      Log("direct write", offset, size);
      const std::string data = NewData(offset, size);
      std::copy(data.begin(), data.end(), buffer);
      if (WriteAll(direct_, buffer, size, static_cast<off_t>(offset))) return true;
      return Fail("direct write: %s", ErrnoName(errno).c_str()) == 0;
    }
    if (offset >= model_.size()) return true;
    Log("direct read", offset, size);
    const ssize_t n = pread(direct_, buffer, size, static_cast<off_t>(offset));
    const size_t want = std::min(size, model_.size() - offset);
    if (n < 0 || static_cast<size_t>(n) != want) return Fail("direct read: %zd", n) == 0;
    return CompareBytes(buffer, offset, want);
  }

  bool Punch() {
    const size_t offset = Offset();
    const size_t size = Size();
    Log("punch", offset, size);
    const size_t end = std::min(offset + size, model_.size());
    if (offset < end)
      std::fill(model_.begin() + static_cast<long>(offset), model_.begin() + static_cast<long>(end),
                '\0');
    if (fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                  static_cast<off_t>(size)) == 0) {
      return true;
    }
    return Fail("punch: %s", ErrnoName(errno).c_str()) == 0;
  }

  bool Reopen() {
    Log("reopen", 0, 0);
    if (random_.Below(2) == 0 && fsync(fd_) != 0) return Fail("fsync") == 0;
    Close();
    return Open(0) || Fail("open: %s", ErrnoName(errno).c_str()) == 0;
  }

  const std::string path_;
  Random random_;
  const FsxOptions options_;
  int fd_ = -1;
  int direct_ = -1;
  std::string model_;
  size_t step_ = 0;
  std::deque<std::string> log_;
};

}  // namespace

// fsx FILE OPS SEED SAVE [map] [direct] [hole]: SAVE gets what the file must hold at the end.
int RunFsx(const Args& args) {
  if (args.size() < 4) return 2;
  const std::set<std::string> words(args.begin() + 4, args.end());
  const FsxOptions options = {words.count("map") != 0, words.count("direct") != 0,
                              words.count("hole") != 0};
  Fsx fsx(args[0], static_cast<uint64_t>(ParseNumber(args[2])), options);
  if (!fsx.Open(O_CREAT | O_TRUNC)) return Fail("open: %s", ErrnoName(errno).c_str());
  const int64_t ops = ParseNumber(args[1]);
  for (int64_t i = 0; i < ops; ++i) {
    if ((fsx.Step() && (i % 1000 != 999 || fsx.CheckAll()))) continue;
    fsx.PrintLog();
    return Fail("fsx failed at operation %lld, seed %s", static_cast<long long>(i),
                args[2].c_str());
  }
  if (!fsx.CheckAll() || !fsx.Save(args[3])) {
    fsx.PrintLog();
    return 1;
  }
  fsx.Close();
  return 0;
}

}  // namespace fstool
