// SPDX-License-Identifier: Apache-2.0
// fstool stress: many processes change names at once. Each works in a directory of its own against
// a model in memory, where every outcome is known, and in a shared one, where only wild errors
// count.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "tests/tools/fstool.h"

namespace fstool {
namespace {

enum class Kind { kFile, kDir, kLink };

struct Node {
  Kind kind = Kind::kFile;
  size_t size = 0;
  uint64_t seed = 0;
};

std::string Content(const Node& node) {
  std::string data(node.size, '\0');
  FillPattern(node.seed, 0, data.data(), data.size());
  return data;
}

// One process's directory and what must be in it. Paths are relative to it, "a/b/c".
class Worker {
 public:
  Worker(int root, int shared, uint64_t seed) : root_(root), shared_(shared), random_(seed) {}

  bool Step() {
    if (random_.Below(4) == 0) return Shared();
    switch (random_.Below(9)) {
      case 0:
      case 1:
        return Create();
      case 2:
        return MakeDir();
      case 3:
        return Rewrite();
      case 4:
        return Rename();
      case 5:
        return Remove();
      case 6:
        return Symlink();
      case 7:
        return Check(Pick());
      default:
        return Sync();
    }
  }

  bool CheckAll() {
    for (const auto& [path, unused] : model_) {
      if (!Check(path)) return false;
    }
    size_t found = 0;
    if (!Count(root_, &found)) return false;
    if (found == model_.size()) return true;
    return Wrong("the tree as a whole", "names too many or too few");
  }

 private:
  bool Wrong(const std::string& path, const char* what) {
    return Fail("%s: %s (%s)", path.c_str(), what, ErrnoName(errno).c_str()) == 0;
  }

  std::string Pick() {
    if (model_.empty()) return "";
    auto it = model_.begin();
    std::advance(it, static_cast<long>(random_.Below(model_.size())));
    return it->first;
  }

  // A path that is not there, in the root or in one of the model's directories.
  std::string NewPath() {
    const std::string base = Pick();
    const std::string name = "x" + std::to_string(counter_++);
    if (base.empty() || model_[base].kind != Kind::kDir || base.size() > 150) return name;
    return base + "/" + name;
  }

  bool HasChildren(const std::string& path) {
    const auto next = model_.upper_bound(path + "/");
    return next != model_.end() && next->first.compare(0, path.size() + 1, path + "/") == 0;
  }

  bool Write(const std::string& path, int flags, const Node& node) {
    const int fd = openat(root_, path.c_str(), O_WRONLY | flags, 0644);
    if (fd < 0) return Wrong(path, "open");
    const std::string data = Content(node);
    const bool good = WriteAll(fd, data.data(), data.size(), 0);
    if (close(fd) != 0 || !good) return Wrong(path, "write");
    model_[path] = node;
    return true;
  }

  Node NewFile() { return {Kind::kFile, random_.Below(30000), random_.Next()}; }

  bool Create() {
    if (model_.size() > 400) return Remove();
    return Write(NewPath(), O_CREAT | O_EXCL, NewFile());
  }

  bool Rewrite() {
    const std::string path = Pick();
    if (path.empty() || model_[path].kind != Kind::kFile) return true;
    return Write(path, O_TRUNC, NewFile());
  }

  bool MakeDir() {
    const std::string path = NewPath();
    if (mkdirat(root_, path.c_str(), 0755) != 0) return Wrong(path, "mkdir");
    model_[path] = {Kind::kDir, 0, 0};
    return true;
  }

  bool Symlink() {
    const std::string path = NewPath();
    const Node node = {Kind::kLink, 1 + random_.Below(200), random_.Next()};
    std::string target = "t" + std::to_string(node.seed);
    target.resize(node.size + 1, 'x');
    if (symlinkat(target.c_str(), root_, path.c_str()) != 0) return Wrong(path, "symlink");
    model_[path] = node;
    return true;
  }

  bool Rename() {
    const std::string from = Pick();
    const std::string onto = random_.Below(2) == 0 ? Pick() : NewPath();
    if (from.empty() || onto.empty() || from == onto) return true;
    const int want = RenameError(from, onto);
    const int got = renameat(root_, from.c_str(), root_, onto.c_str()) == 0 ? 0 : errno;
    if (got != want && !(got == EEXIST && want == ENOTEMPTY)) {
      return Fail("rename %s to %s: %s, not %s", from.c_str(), onto.c_str(), ErrnoName(got).c_str(),
                  ErrnoName(want).c_str()) == 0;
    }
    if (got == 0) MoveInModel(from, onto);
    return true;
  }

  int RenameError(const std::string& from, const std::string& onto) {
    if (onto.compare(0, from.size() + 1, from + "/") == 0) return EINVAL;
    if (from.compare(0, onto.size() + 1, onto + "/") == 0) return ENOTEMPTY;
    const auto target = model_.find(onto);
    if (target == model_.end()) return 0;
    const bool from_dir = model_[from].kind == Kind::kDir;
    const bool onto_dir = target->second.kind == Kind::kDir;
    if (from_dir && !onto_dir) return ENOTDIR;
    if (!from_dir && onto_dir) return EISDIR;
    return onto_dir && HasChildren(onto) ? ENOTEMPTY : 0;
  }

  void MoveInModel(const std::string& from, const std::string& onto) {
    std::map<std::string, Node> moved;
    for (auto it = model_.begin(); it != model_.end();) {
      if (it->first == from || it->first.compare(0, from.size() + 1, from + "/") == 0) {
        moved[onto + it->first.substr(from.size())] = it->second;
        it = model_.erase(it);
      } else {
        ++it;
      }
    }
    model_.erase(onto);
    model_.insert(moved.begin(), moved.end());
  }

  bool Remove() {
    const std::string path = Pick();
    if (path.empty()) return true;
    const bool dir = model_[path].kind == Kind::kDir;
    const int want = dir && HasChildren(path) ? ENOTEMPTY : 0;
    const int got = unlinkat(root_, path.c_str(), dir ? AT_REMOVEDIR : 0) == 0 ? 0 : errno;
    if (got != want) return Wrong(path, "remove");
    if (got == 0) model_.erase(path);
    return true;
  }

  bool Check(const std::string& path) {
    if (path.empty()) return true;
    const Node& node = model_[path];
    struct stat st;
    if (fstatat(root_, path.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return Wrong(path, "stat");
    if (node.kind == Kind::kDir) return S_ISDIR(st.st_mode) || Wrong(path, "not a directory");
    if (node.kind == Kind::kLink) {
      const bool good = S_ISLNK(st.st_mode) && static_cast<size_t>(st.st_size) == node.size + 1;
      return good || Wrong(path, "not the symlink");
    }
    const int fd = openat(root_, path.c_str(), O_RDONLY);
    std::string data(static_cast<size_t>(st.st_size), '\0');
    const bool good = fd >= 0 && ReadAll(fd, data.data(), data.size(), 0) && data == Content(node);
    if (fd >= 0) close(fd);
    return good || Wrong(path, "wrong content");
  }

  bool Sync() {
    const std::string path = Pick();
    if (path.empty() || model_[path].kind == Kind::kLink || random_.Below(4) != 0) return true;
    const int fd = openat(root_, path.c_str(), O_RDONLY);
    if (fd < 0) return Wrong(path, "open");
    const bool good = fsync(fd) == 0;
    close(fd);
    return good || Wrong(path, "fsync");
  }

  bool Count(int dir, size_t* found) {
    DIR* stream = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY));
    if (stream == nullptr) return Wrong("directory", "open");
    while (const dirent* entry = readdir(stream)) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      ++*found;
      struct stat st;
      if (fstatat(dirfd(stream), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return Wrong(name, "listed, but not there");
      }
      if (!S_ISDIR(st.st_mode)) continue;
      const int child = openat(dirfd(stream), entry->d_name, O_RDONLY | O_DIRECTORY);
      const bool good = child >= 0 && Count(child, found);
      if (child >= 0) close(child);
      if (!good) return false;
    }
    closedir(stream);
    return true;
  }

  // Races with the other workers on few names: any of these errors is right, others are not.
  bool Shared() {
    static const std::set<int> kFine = {0,      ENOENT, EEXIST, ENOTEMPTY, EISDIR, ENOTDIR,
                                        EINVAL, ELOOP,  EMLINK, ESTALE,    EBUSY};
    const std::string a = "s" + std::to_string(random_.Below(12));
    const std::string b =
        (random_.Below(3) == 0 ? a + "/" : std::string()) + "s" + std::to_string(random_.Below(12));
    errno = 0;
    switch (random_.Below(8)) {
      case 0:
        mkdirat(shared_, b.c_str(), 0755);
        break;
      case 1:
        unlinkat(shared_, a.c_str(), 0);
        break;
      case 2:
        unlinkat(shared_, b.c_str(), AT_REMOVEDIR);
        break;
      case 3:
        renameat(shared_, a.c_str(), shared_, b.c_str());
        break;
      case 4:
        renameat(shared_, b.c_str(), shared_, a.c_str());
        break;
      case 5:
        linkat(shared_, a.c_str(), shared_, b.c_str(), 0);
        break;
      case 6:
        symlinkat(a.c_str(), shared_, b.c_str());
        break;
      default: {
        const int fd = openat(shared_, b.c_str(), O_RDWR | O_CREAT, 0644);
        if (fd < 0) break;
        const std::string data(1 + random_.Below(9000), 'z');
        const ssize_t n = pwrite(fd, data.data(), data.size(), 0);
        if (n < 0) return Wrong(b, "write");
        close(fd);
        errno = 0;
      }
    }
    // EPERM: link of a directory.
    return kFine.count(errno) != 0 || errno == EPERM || Wrong(a + " " + b, "shared operation");
  }

  const int root_;
  const int shared_;
  Random random_;
  std::map<std::string, Node> model_;
  uint64_t counter_ = 0;
};

int RunWorker(const std::string& base, int index, int64_t ops, uint64_t seed) {
  const std::string own = base + "/w" + std::to_string(index);
  if (mkdir(own.c_str(), 0755) != 0) return Fail("mkdir: %s", ErrnoName(errno).c_str());
  const int root = open(own.c_str(), O_RDONLY | O_DIRECTORY);
  const int shared = open((base + "/shared").c_str(), O_RDONLY | O_DIRECTORY);
  if (root < 0 || shared < 0) return Fail("open: %s", ErrnoName(errno).c_str());
  Worker worker(root, shared, seed * 1000 + static_cast<uint64_t>(index));
  for (int64_t i = 0; i < ops; ++i) {
    if (!worker.Step()) {
      return Fail("worker %d, operation %lld, seed %llu", index, static_cast<long long>(i),
                  static_cast<unsigned long long>(seed));
    }
  }
  return worker.CheckAll() ? 0 : 1;
}

}  // namespace

// stress DIR PROCESSES OPS SEED
int RunStress(const Args& args) {
  if (args.size() != 4) return 2;
  if (mkdir((args[0] + "/shared").c_str(), 0755) != 0) {
    return Fail("mkdir: %s", ErrnoName(errno).c_str());
  }
  const int processes = static_cast<int>(ParseNumber(args[1]));
  for (int i = 0; i < processes; ++i) {
    if (fork() == 0) {
      _exit(
          RunWorker(args[0], i, ParseNumber(args[2]), static_cast<uint64_t>(ParseNumber(args[3]))));
    }
  }
  int failed = 0;
  for (int status = 0; wait(&status) > 0;) {
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) failed = 1;
  }
  return failed;
}

}  // namespace fstool
