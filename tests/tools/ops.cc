// SPDX-License-Identifier: Apache-2.0
// fstool ops: runs a script of single system calls from stdin and prints each with its outcome, so
// that a test's golden file reads like a table of calls and errors.
//
// One call a line: `mkdir a 0755` prints `mkdir a 0755 = 0`; `rmdir b` may print `rmdir b =
// ENOENT`. A word %N stands for a name of N characters and %N:TEXT for TEXT followed by that many
// (so %254:a is 255 long); it is printed as written. Blank lines and lines that start with # are
// copied. Descriptors are named by any word: `open f path rdwr,creat 0644`, `write f 0 5 x`, `close
// f`.
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>

#include "tests/tools/fstool.h"

namespace fstool {
namespace {

std::map<std::string, int> g_fds;  // the script's named descriptors

// What a call returned: an errno (0 for success) and what to print after it.
struct Outcome {
  int error = 0;
  std::string text;
};

Outcome Errno(int64_t result) { return {result < 0 ? errno : 0, ""}; }

int Fd(const std::string& name) {
  const auto it = g_fds.find(name);
  return it == g_fds.end() ? -1 : it->second;
}

mode_t Mode(const std::string& text) {
  return static_cast<mode_t>(std::strtoul(text.c_str(), nullptr, 8));
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, separator);) out.push_back(word);
  return out;
}

int OpenFlags(const std::string& text) {
  static const std::map<std::string, int> kFlags = {
      {"rdonly", O_RDONLY},   {"wronly", O_WRONLY},     {"rdwr", O_RDWR},
      {"creat", O_CREAT},     {"excl", O_EXCL},         {"trunc", O_TRUNC},
      {"append", O_APPEND},   {"nofollow", O_NOFOLLOW}, {"directory", O_DIRECTORY},
      {"tmpfile", O_TMPFILE}, {"direct", O_DIRECT},     {"sync", O_SYNC},
      {"path", O_PATH},       {"noatime", O_NOATIME},   {"nonblock", O_NONBLOCK},
  };
  int flags = 0;
  for (const std::string& word : Split(text, ',')) {
    const auto it = kFlags.find(word);
    if (it == kFlags.end()) std::exit(Fail("unknown open flag %s", word.c_str()));
    flags |= it->second;
  }
  return flags;
}

std::string TypeName(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return "file";
    case S_IFDIR:
      return "dir";
    case S_IFLNK:
      return "symlink";
    case S_IFIFO:
      return "fifo";
    case S_IFSOCK:
      return "socket";
    case S_IFCHR:
      return "char";
    case S_IFBLK:
      return "block";
    default:
      return "unknown";
  }
}

std::string Octal(mode_t mode) {
  char text[16];
  std::snprintf(text, sizeof(text), "%04o", mode & 07777);
  return text;
}

std::string TimeText(const timespec& time) {
  char text[48];
  std::snprintf(text, sizeof(text), "%lld.%09ld", static_cast<long long>(time.tv_sec),
                time.tv_nsec);
  return text;
}

std::string StatFields(const struct stat& st, const std::string& fields) {
  std::string out;
  for (const std::string& field : Split(fields, ',')) {
    std::string value = "?";
    if (field == "type") value = TypeName(st.st_mode);
    if (field == "mode") value = Octal(st.st_mode);
    if (field == "nlink") value = std::to_string(st.st_nlink);
    if (field == "uid") value = std::to_string(st.st_uid);
    if (field == "gid") value = std::to_string(st.st_gid);
    if (field == "size") value = std::to_string(st.st_size);
    if (field == "blocks") value = std::to_string(st.st_blocks);
    if (field == "blksize") value = std::to_string(st.st_blksize);
    if (field == "rdev")
      value = std::to_string(major(st.st_rdev)) + ":" + std::to_string(minor(st.st_rdev));
    if (field == "atime") value = TimeText(st.st_atim);
    if (field == "mtime") value = TimeText(st.st_mtim);
    out += " " + field + "=" + value;
  }
  return out;
}

// Runs of equal bytes: "a*3 \0*5".
std::string RunLengths(const std::string& data) {
  std::string out;
  for (size_t i = 0; i < data.size();) {
    size_t j = i;
    while (j < data.size() && data[j] == data[i]) ++j;
    out += data[i] == '\0' ? " \\0" : std::string(" ") + data[i];
    out += "*" + std::to_string(j - i);
    i = j;
  }
  return out;
}

Outcome OpenOp(const Args& a) {
  const int fd = open(a[2].c_str(), OpenFlags(a[3]), a.size() > 4 ? Mode(a[4]) : 0);
  if (fd < 0) return Errno(fd);
  if (Fd(a[1]) >= 0) close(Fd(a[1]));
  g_fds[a[1]] = fd;
  return {};
}

Outcome CloseOp(const Args& a) {
  const int rc = close(Fd(a[1]));
  const Outcome outcome = Errno(rc);
  g_fds.erase(a[1]);
  return outcome;
}

Outcome CreateOp(const Args& a) {
  const int fd = open(a[1].c_str(), O_CREAT | O_EXCL | O_WRONLY, Mode(a[2]));
  if (fd < 0) return Errno(fd);
  return Errno(close(fd));
}

Outcome WriteOp(const Args& a) {
  const std::string data(static_cast<size_t>(ParseNumber(a[3])), a[4][0]);
  const ssize_t n = pwrite(Fd(a[1]), data.data(), data.size(), ParseNumber(a[2]));
  Outcome outcome = Errno(n);
  if (n >= 0 && static_cast<size_t>(n) != data.size()) outcome.text = " short";
  return outcome;
}

Outcome ReadOp(const Args& a) {
  std::string data(static_cast<size_t>(ParseNumber(a[3])), '?');
  const ssize_t n = pread(Fd(a[1]), data.data(), data.size(), ParseNumber(a[2]));
  if (n < 0) return Errno(n);
  data.resize(static_cast<size_t>(n));
  return {0, RunLengths(data)};
}

Outcome StatOp(const Args& a) {
  struct stat st;
  const int rc = lstat(a[1].c_str(), &st);
  if (rc != 0) return Errno(rc);
  return {0, StatFields(st, a[2])};
}

Outcome FstatOp(const Args& a) {
  struct stat st;
  const int rc = fstat(Fd(a[1]), &st);
  if (rc != 0) return Errno(rc);
  return {0, StatFields(st, a[2])};
}

Outcome ReadlinkOp(const Args& a) {
  std::string target(8192, '\0');
  const ssize_t n = readlink(a[1].c_str(), target.data(), target.size());
  if (n < 0) return Errno(n);
  target.resize(static_cast<size_t>(n));
  if (n > 100) return {0, " length=" + std::to_string(n)};
  return {0, " " + target};
}

Outcome ListOp(const Args& a) {
  DIR* dir = opendir(a[1].c_str());
  if (dir == nullptr) return Errno(-1);
  std::vector<std::string> names;
  static const std::map<int, char> kTypes = {{DT_REG, '-'},  {DT_DIR, 'd'},  {DT_LNK, 'l'},
                                             {DT_FIFO, 'p'}, {DT_SOCK, 's'}, {DT_CHR, 'c'},
                                             {DT_BLK, 'b'}};
  while (const dirent* entry = readdir(dir)) {
    const auto type = kTypes.find(entry->d_type);
    std::string name = entry->d_name;
    if (name.size() > 100) name = name.substr(0, 8) + "..(" + std::to_string(name.size()) + ")";
    names.push_back(name + ":" + (type == kTypes.end() ? '?' : type->second));
  }
  closedir(dir);
  std::sort(names.begin(), names.end());
  std::string out;
  for (const std::string& name : names) out += " " + name;
  return {0, out};
}

Outcome Rename2Op(const Args& a) {
  static const std::map<std::string, unsigned> kFlags = {{"none", 0},
                                                         {"noreplace", RENAME_NOREPLACE},
                                                         {"exchange", RENAME_EXCHANGE},
                                                         {"whiteout", RENAME_WHITEOUT}};
  unsigned flags = 0;
  for (const std::string& word : Split(a[3], ',')) {
    const auto it = kFlags.find(word);
    flags |= it == kFlags.end() ? 1u << 31 : it->second;
  }
  return Errno(renameat2(AT_FDCWD, a[1].c_str(), AT_FDCWD, a[2].c_str(), flags));
}

Outcome MknodOp(const Args& a) {
  static const std::map<std::string, mode_t> kTypes = {
      {"f", S_IFREG}, {"p", S_IFIFO}, {"c", S_IFCHR}, {"b", S_IFBLK}, {"s", S_IFSOCK}};
  const auto type = kTypes.find(a[2]);
  if (type == kTypes.end()) std::exit(Fail("unknown node type %s", a[2].c_str()));
  dev_t device = 0;
  if (a.size() > 5) {
    device =
        makedev(static_cast<unsigned>(ParseNumber(a[4])), static_cast<unsigned>(ParseNumber(a[5])));
  }
  return Errno(mknod(a[1].c_str(), type->second | Mode(a[3]), device));
}

timespec ParseTime(const std::string& text) {
  if (text == "now") return {0, UTIME_NOW};
  if (text == "omit") return {0, UTIME_OMIT};
  const size_t dot = text.find('.');
  timespec time = {std::strtoll(text.c_str(), nullptr, 10), 0};
  if (dot != std::string::npos) time.tv_nsec = std::strtol(text.c_str() + dot + 1, nullptr, 10);
  return time;
}

// utimens PATH ATIME MTIME, each SECONDS[.NNNNNNNNN], now, or omit.
Outcome UtimensOp(const Args& a) {
  const timespec times[2] = {ParseTime(a[2]), ParseTime(a[3])};
  return Errno(utimensat(AT_FDCWD, a[1].c_str(), times, AT_SYMLINK_NOFOLLOW));
}

Outcome SeekOp(const Args& a, int whence) {
  const off_t at = lseek(Fd(a[1]), ParseNumber(a[2]), whence);
  if (at < 0) return Errno(at);
  return {0, " " + std::to_string(at)};
}

Outcome LinkFdOp(const Args& a) {
  const std::string path = "/proc/self/fd/" + std::to_string(Fd(a[1]));
  return Errno(linkat(AT_FDCWD, path.c_str(), AT_FDCWD, a[2].c_str(), AT_SYMLINK_FOLLOW));
}

// as UID GID [GROUP,...]: the effective ids of the lines that follow.
Outcome AsOp(const Args& a) {
  if (seteuid(0) != 0) return Errno(-1);
  std::vector<gid_t> groups;
  if (a.size() > 3) {
    for (const std::string& group : Split(a[3], ','))
      groups.push_back(static_cast<gid_t>(ParseNumber(group)));
  }
  if (setgroups(groups.size(), groups.data()) != 0) return Errno(-1);
  if (setegid(static_cast<gid_t>(ParseNumber(a[2]))) != 0) return Errno(-1);
  return Errno(seteuid(static_cast<uid_t>(ParseNumber(a[1]))));
}

Outcome FallocateOp(const Args& a) {
  return Errno(fallocate(Fd(a[1]), static_cast<int>(ParseNumber(a[2])), ParseNumber(a[3]),
                         ParseNumber(a[4])));
}

Outcome GetxattrOp(const Args& a) {
  char value[256];
  const ssize_t n = lgetxattr(a[1].c_str(), a[2].c_str(), value, sizeof(value));
  if (n < 0) return Errno(n);
  return {0, " " + std::string(value, static_cast<size_t>(n))};
}

int FlockWord(const std::string& word) {
  const int kind = word == "sh" ? LOCK_SH : word == "ex" ? LOCK_EX : LOCK_UN;
  return kind | LOCK_NB;
}

Outcome Lock(int fd, const Args& a) {
  struct flock lock = {};
  lock.l_type = static_cast<short>(a[2] == "rd" ? F_RDLCK : a[2] == "wr" ? F_WRLCK : F_UNLCK);
  lock.l_whence = SEEK_SET;
  lock.l_start = ParseNumber(a[3]);
  lock.l_len = ParseNumber(a[4]);
  return Errno(fcntl(fd, F_SETLK, &lock));
}

// Runs `attempt` on a fresh descriptor of `path` in another process and reports what it saw.
Outcome InOtherProcess(const std::string& path, const std::function<Outcome(int)>& attempt) {
  std::fflush(stdout);
  const pid_t pid = fork();
  if (pid < 0) return Errno(-1);
  if (pid == 0) {
    const int fd = open(path.c_str(), O_RDWR);
    _exit(fd < 0 ? errno : attempt(fd).error);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : EPROTO, ""};
}

Outcome StatvfsOp(const Args& a) {
  struct statvfs st;
  const int rc = statvfs(a[1].c_str(), &st);
  if (rc != 0) return Errno(rc);
  return {0, " namemax=" + std::to_string(st.f_namemax) + " bsize=" + std::to_string(st.f_bsize)};
}

Outcome SyncfsOp(const Args& a) {
  const int fd = open(a[1].c_str(), O_RDONLY);
  if (fd < 0) return Errno(fd);
  const Outcome outcome = Errno(syncfs(fd));
  close(fd);
  return outcome;
}

struct Op {
  size_t words;  // the fewest, its own name included
  std::function<Outcome(const Args&)> run;
};

const std::map<std::string, Op>& NameOps() {
  static const std::map<std::string, Op> kOps = {
      {"mkdir", {3, [](const Args& a) { return Errno(mkdir(a[1].c_str(), Mode(a[2]))); }}},
      {"rmdir", {2, [](const Args& a) { return Errno(rmdir(a[1].c_str())); }}},
      {"unlink", {2, [](const Args& a) { return Errno(unlink(a[1].c_str())); }}},
      {"create", {3, CreateOp}},
      {"link", {3, [](const Args& a) { return Errno(link(a[1].c_str(), a[2].c_str())); }}},
      {"symlink", {3, [](const Args& a) { return Errno(symlink(a[1].c_str(), a[2].c_str())); }}},
      {"readlink", {2, ReadlinkOp}},
      {"rename", {3, [](const Args& a) { return Errno(rename(a[1].c_str(), a[2].c_str())); }}},
      {"rename2", {4, Rename2Op}},
      {"mknod", {4, MknodOp}},
      {"chmod", {3, [](const Args& a) { return Errno(chmod(a[1].c_str(), Mode(a[2]))); }}},
      {"chown",
       {4,
        [](const Args& a) {
          return Errno(lchown(a[1].c_str(), static_cast<uid_t>(ParseNumber(a[2])),
                              static_cast<gid_t>(ParseNumber(a[3]))));
        }}},
      {"access",
       {3,
        [](const Args& a) {
          return Errno(
              faccessat(AT_FDCWD, a[1].c_str(), static_cast<int>(ParseNumber(a[2])), AT_EACCESS));
        }}},
      {"truncate",
       {3, [](const Args& a) { return Errno(truncate(a[1].c_str(), ParseNumber(a[2]))); }}},
      {"utimens", {4, UtimensOp}},
      {"stat", {3, StatOp}},
      {"ls", {2, ListOp}},
      {"statvfs", {2, StatvfsOp}},
      {"syncfs", {2, SyncfsOp}},
      {"chdir", {2, [](const Args& a) { return Errno(chdir(a[1].c_str())); }}},
      {"setxattr",
       {4,
        [](const Args& a) {
          return Errno(lsetxattr(a[1].c_str(), a[2].c_str(), a[3].data(), a[3].size(), 0));
        }}},
      {"getxattr", {3, GetxattrOp}},
      {"listxattr",
       {2,
        [](const Args& a) {
          char names[1024];
          return Errno(llistxattr(a[1].c_str(), names, sizeof(names)));
        }}},
      {"removexattr",
       {3, [](const Args& a) { return Errno(lremovexattr(a[1].c_str(), a[2].c_str())); }}},
      {"tryflock",
       {3,
        [](const Args& a) {
          return InOtherProcess(a[1], [&](int fd) { return Errno(flock(fd, FlockWord(a[2]))); });
        }}},
      {"trylockf",
       {5,
        [](const Args& a) { return InOtherProcess(a[1], [&](int fd) { return Lock(fd, a); }); }}},
  };
  return kOps;
}

const std::map<std::string, Op>& OtherOps() {
  static const std::map<std::string, Op> kOps = {
      {"open", {4, OpenOp}},
      {"close", {2, CloseOp}},
      {"write", {5, WriteOp}},
      {"read", {4, ReadOp}},
      {"fstat", {3, FstatOp}},
      {"fsync", {2, [](const Args& a) { return Errno(fsync(Fd(a[1]))); }}},
      {"fdatasync", {2, [](const Args& a) { return Errno(fdatasync(Fd(a[1]))); }}},
      {"ftruncate",
       {3, [](const Args& a) { return Errno(ftruncate(Fd(a[1]), ParseNumber(a[2]))); }}},
      {"fchmod", {3, [](const Args& a) { return Errno(fchmod(Fd(a[1]), Mode(a[2]))); }}},
      {"linkfd", {3, LinkFdOp}},
      {"seekdata", {3, [](const Args& a) { return SeekOp(a, SEEK_DATA); }}},
      {"seekhole", {3, [](const Args& a) { return SeekOp(a, SEEK_HOLE); }}},
      {"fallocate", {5, FallocateOp}},
      {"flock", {3, [](const Args& a) { return Errno(flock(Fd(a[1]), FlockWord(a[2]))); }}},
      {"lockf", {5, [](const Args& a) { return Lock(Fd(a[1]), a); }}},
      {"umask",
       {2,
        [](const Args& a) {
          umask(Mode(a[1]));
          return Outcome{};
        }}},
      {"as", {3, AsOp}},
      {"sync",
       {1,
        [](const Args&) {
          sync();
          return Outcome{};
        }}},
  };
  return kOps;
}

// Expands the %N and %N:TEXT words inside a path, component by component.
std::string Expand(const std::string& word) {
  if (word.find('%') == std::string::npos) return word;
  std::string out;
  for (const std::string& part : Split(word, '/')) {
    if (!out.empty() || word[0] == '/') out += '/';
    if (part.empty() || part[0] != '%') {
      out += part;
      continue;
    }
    const size_t colon = part.find(':');
    const std::string text = colon == std::string::npos ? "" : part.substr(colon + 1);
    out += text + std::string(std::strtoul(part.c_str() + 1, nullptr, 10), 'n');
  }
  return out;
}

bool RunLine(const std::string& line) {
  std::istringstream in(line);
  Args words;
  for (std::string word; in >> word;) words.push_back(Expand(word));
  const auto& names = NameOps();
  const auto& others = OtherOps();
  auto it = names.find(words[0]);
  if (it == names.end()) it = others.find(words[0]);
  if (it == others.end() || words.size() < it->second.words) {
    Fail("bad line: %s", line.c_str());
    return false;
  }
  const Outcome outcome = it->second.run(words);
  std::printf("%s = %s%s\n", line.c_str(), ErrnoName(outcome.error).c_str(), outcome.text.c_str());
  return true;
}

}  // namespace

int RunOps(const Args& args) {
  if (args.size() > 1) return 2;
  if (args.size() == 1 && chdir(args[0].c_str()) != 0) {
    return Fail("chdir %s: %s", args[0].c_str(), ErrnoName(errno).c_str());
  }
  umask(022);
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty() || line[0] == '#') {
      std::printf("%s\n", line.c_str());
    } else if (!RunLine(line)) {
      return 2;
    }
  }
  return 0;
}

}  // namespace fstool
