// SPDX-License-Identifier: Apache-2.0
// fstool syncwriter and syncverify: a writer that reports each operation before it starts and after
// its fsync has returned, and the judge of what is there after the daemon was killed.
//
// Report lines (the writer's stdout, read by the test from a pipe; they outlive the mount):
//   B OP NAME SIZE SEED [NAME2]   the operation starts
//   E                             the operation and its fsync have returned 0
// OP is create (new file, written, fsynced), append (SIZE = new size, fsynced), replace (a new file
// is written, fsynced, renamed over NAME, the directory fsynced), rename (NAME to NAME2, directory
// fsynced), unlink (directory fsynced).
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "tests/tools/fstool.h"

namespace fstool {
namespace {

struct File {
  size_t size = 0;
  uint64_t seed = 0;
};

using Model = std::map<std::string, File>;

struct Op {
  std::string kind;
  std::string name;
  File file;
  std::string name2;
};

std::string Content(const File& file) {
  std::string data(file.size, '\0');
  FillPattern(file.seed, 0, data.data(), data.size());
  return data;
}

void Apply(const Op& op, Model* model) {
  if (op.kind == "unlink") {
    model->erase(op.name);
  } else if (op.kind == "rename") {
    (*model)[op.name2] = (*model)[op.name];
    model->erase(op.name);
  } else {
    (*model)[op.name] = op.file;
  }
}

void Report(const std::string& line) {
  if (write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    std::exit(Fail("cannot report"));
  }
}

// One writer in its own directory. A false return means that the filesystem is gone.
class Writer {
 public:
  Writer(int dir, uint64_t seed) : dir_(dir), random_(seed) {}

  bool Step() {
    const Op op = Choose();
    std::ostringstream line;
    line << "B " << op.kind << ' ' << op.name << ' ' << op.file.size << ' ' << op.file.seed;
    if (!op.name2.empty()) line << ' ' << op.name2;
    Report(line.str() + '\n');
    if (!Do(op)) return false;
    Report("E\n");
    Apply(op, &model_);
    return true;
  }

 private:
  Op Choose() {
    const uint64_t dice = random_.Below(10);
    Op op;
    op.file = {static_cast<size_t>(1 + random_.Below(20000)), random_.Next() >> 16};
    op.name = "n" + std::to_string(counter_++);
    op.kind = "create";
    if (model_.size() < 4 || dice < 4) return op;
    auto victim = model_.begin();
    std::advance(victim, static_cast<long>(random_.Below(model_.size())));
    op.name2 = op.name;
    op.name = victim->first;
    if (dice == 7 || model_.size() > 300) {
      op.kind = "unlink";
      op.name2.clear();
    } else if (dice == 6) {
      op.kind = "rename";
    } else if (dice >= 8) {
      op.kind = "replace";
      op.name2.clear();
    } else {
      op.kind = "append";
      op.name2.clear();
      op.file = {victim->second.size + 1 + static_cast<size_t>(random_.Below(9000)),
                 victim->second.seed};
    }
    return op;
  }

  bool WriteFile(const std::string& name, int flags, size_t from, const File& file) {
    const int fd = openat(dir_, name.c_str(), flags, 0644);
    if (fd < 0) return false;
    const std::string data = Content(file);
    const bool good =
        WriteAll(fd, data.data() + from, data.size() - from, static_cast<off_t>(from)) &&
        fsync(fd) == 0;
    close(fd);
    return good;
  }

  bool Do(const Op& op) {
    if (op.kind == "create") return WriteFile(op.name, O_WRONLY | O_CREAT | O_EXCL, 0, op.file);
    if (op.kind == "append") return WriteFile(op.name, O_WRONLY, model_[op.name].size, op.file);
    if (op.kind == "unlink") return unlinkat(dir_, op.name.c_str(), 0) == 0 && fsync(dir_) == 0;
    if (op.kind == "rename") {
      return renameat(dir_, op.name.c_str(), dir_, op.name2.c_str()) == 0 && fsync(dir_) == 0;
    }
    return WriteFile("tmp", O_WRONLY | O_CREAT | O_TRUNC, 0, op.file) &&
           renameat(dir_, "tmp", dir_, op.name.c_str()) == 0 && fsync(dir_) == 0;
  }

  const int dir_;
  Random random_;
  Model model_;
  uint64_t counter_ = 0;
};

// Reads a report. `*pending` is the operation that had started and not returned, if any. A last
// line cut short is no report.
bool ReadReport(const std::string& path, Model* model, Op* pending, int* done) {
  std::ifstream in(path);
  if (!in) return false;
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::istringstream lines(text.substr(0, text.rfind('\n') + 1));
  for (std::string line; std::getline(lines, line);) {
    if (line == "E") {
      Apply(*pending, model);
      *pending = {};
      ++*done;
      continue;
    }
    std::istringstream words(line);
    std::string tag;
    *pending = {};
    words >> tag >> pending->kind >> pending->name >> pending->file.size >> pending->file.seed;
    words >> pending->name2;
    if (tag != "B") return false;
  }
  return true;
}

bool Load(int dir, const std::string& name, std::string* data) {
  const int fd = openat(dir, name.c_str(), O_RDONLY);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0) return false;
  data->resize(static_cast<size_t>(st.st_size));
  const bool good = ReadAll(fd, data->data(), data->size(), 0);
  close(fd);
  return good;
}

// A write that had not returned may be there in part: each byte is the one written or zero, never
// anything else; bytes before `durable` are exact.
bool PartOf(const std::string& data, const File& file, size_t durable) {
  if (data.size() < durable || data.size() > file.size) return false;
  const std::string want = Content(file);
  for (size_t i = 0; i < data.size(); ++i) {
    if (data[i] != want[i] && (i < durable || data[i] != '\0')) return false;
  }
  return true;
}

int Judge(int dir, const std::set<std::string>& present, const Model& model, const Op& pending) {
  std::set<std::string> allowed = {".", "..", "tmp"};
  for (const auto& [name, file] : model) {
    allowed.insert(name);
    const bool touched = name == pending.name;
    std::string data;
    if (present.count(name) == 0) {
      if (touched && (pending.kind == "unlink" || pending.kind == "rename")) continue;
      return Fail("%s is gone", name.c_str());
    }
    if (!Load(dir, name, &data)) return Fail("cannot read %s", name.c_str());
    if (data == Content(file)) continue;
    if (touched && pending.kind == "append" && PartOf(data, pending.file, file.size)) continue;
    if (touched && pending.kind == "replace" && data == Content(pending.file)) continue;
    return Fail("%s has wrong content (%zu bytes, fsynced %zu)", name.c_str(), data.size(),
                file.size);
  }
  if (pending.kind == "create") allowed.insert(pending.name);
  if (pending.kind == "rename") allowed.insert(pending.name2);
  for (const std::string& name : present) {
    if (allowed.count(name) == 0) return Fail("%s should not be there", name.c_str());
  }
  std::string data;
  if (pending.kind == "create" && Load(dir, pending.name, &data) &&
      !PartOf(data, pending.file, 0)) {
    return Fail("%s holds bytes nobody wrote to it", pending.name.c_str());
  }
  if (pending.kind == "rename" && model.count(pending.name) != 0) {
    if (present.count(pending.name) + present.count(pending.name2) != 1) {
      return Fail("%s and %s: not exactly one", pending.name.c_str(), pending.name2.c_str());
    }
    if (present.count(pending.name2) != 0 &&
        (!Load(dir, pending.name2, &data) || data != Content(model.at(pending.name)))) {
      return Fail("%s has wrong content", pending.name2.c_str());
    }
  }
  return 0;
}

}  // namespace

// syncwriter DIR SEED [OPS]: runs until the filesystem goes away or OPS operations are done.
int RunSyncWriter(const Args& args) {
  if (args.size() < 2) return 2;
  const int dir = open(args[0].c_str(), O_RDONLY | O_DIRECTORY);
  if (dir < 0) return Fail("open %s: %s", args[0].c_str(), ErrnoName(errno).c_str());
  Writer writer(dir, static_cast<uint64_t>(ParseNumber(args[1])));
  const int64_t ops = args.size() > 2 ? ParseNumber(args[2]) : INT64_MAX;
  for (int64_t i = 0; i < ops; ++i) {
    if (writer.Step()) continue;
    const std::set<int> gone = {EIO, ENOTCONN, ECONNABORTED, ENODEV, ESHUTDOWN, EROFS};
    return gone.count(errno) != 0 ? 0 : Fail("operation failed: %s", ErrnoName(errno).c_str());
  }
  return 0;
}

// syncverify DIR REPORT: prints how many reported operations were found to hold.
int RunSyncVerify(const Args& args) {
  if (args.size() != 2) return 2;
  Model model;
  Op pending;
  int done = 0;
  if (!ReadReport(args[1], &model, &pending, &done)) return Fail("bad report %s", args[1].c_str());
  DIR* stream = opendir(args[0].c_str());
  if (stream == nullptr) return Fail("opendir %s: %s", args[0].c_str(), ErrnoName(errno).c_str());
  std::set<std::string> present;
  while (const dirent* entry = readdir(stream)) present.insert(entry->d_name);
  const int status = Judge(dirfd(stream), present, model, pending);
  closedir(stream);
  if (status != 0) {
    return Fail("after %d reported operations; in flight: %s %s", done, pending.kind.c_str(),
                pending.name.c_str());
  }
  std::printf("%d\n", done);
  return 0;
}

}  // namespace fstool
