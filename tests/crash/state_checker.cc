// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/state_checker.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/crash/deterministic_random.h"
#include "tests/crash/judge.h"
#include "tests/support/fs_fixture.h"
#include "tests/support/fsck_problems.h"

namespace sluice::crash {
namespace {

using testing_support::Files;
using testing_support::FsckProblems;

constexpr char kAfterwards[] = "used after the crash";

}  // namespace

void StateChecker::StartOver() {
  RestartRandom();
  clock_ = StepClock();
}

std::string StateChecker::Mount(Device* device, std::unique_ptr<Filesystem>* fs) {
  std::string message;
  auto mounted = Filesystem::Mount(device, CrashMountOptions(&clock_), &message);
  if (!mounted.ok()) {
    return absl::StrCat("does not mount: ", message, " (", std::string(ErrorText(mounted.error())),
                        ")\n", errors_.Take());
  }
  *fs = std::move(mounted).value();
  const std::string errors = errors_.Take();
  return errors.empty() ? "" : "the mount complains: " + errors;
}

std::string StateChecker::CheckMounted(Filesystem* fs, size_t returned, Tree* tree) {
  std::string problem = ReadTree(fs, tree);
  const std::string errors = errors_.Take();
  if (problem.empty() && !errors.empty()) problem = "it complains: " + errors;
  if (!problem.empty()) return absl::StrCat(problem, "\nthere is:\n", Describe(*tree));
  return Judge(history_, returned, *tree);
}

std::string StateChecker::Check(MemoryDevice* device, size_t returned, Depth depth,
                                std::string* fingerprint) {
  std::string problem = depth == Depth::kUse ? FsckProblems(device) : "";
  if (!problem.empty()) return "before the recovery: " + problem;
  std::unique_ptr<Filesystem> fs;
  problem = Mount(device, &fs);
  Tree tree;
  if (problem.empty()) problem = CheckMounted(fs.get(), returned, &tree);
  if (fingerprint != nullptr) *fingerprint = Fingerprint(tree);
  if (problem.empty() && depth == Depth::kUse) problem = Grow(fs.get(), tree);
  if (problem.empty() && depth == Depth::kUse) problem = Use(fs.get());
  if (!problem.empty()) return problem;
  if (fs->Unmount() != Error::kOk) return "does not unmount: " + errors_.Take();
  fs.reset();
  problem = FsckProblems(device);
  if (!problem.empty()) return "after the recovery: " + problem;
  return depth == Depth::kUse ? CheckUse(device) : "";
}

// What a crash has left behind the end of a file does not come to light when the file grows.
std::string StateChecker::Grow(Filesystem* fs, const Tree& tree) {
  const Files files(fs);
  for (const auto& [ino, node] : tree.nodes) {
    const uint64_t size = node.attributes.size;
    if (!S_ISREG(node.attributes.mode) || size % kBlockSize == 0) continue;
    const auto inode =
        RunBlocking([&, id = ino](Attempt& attempt) { return fs->GetInode(attempt, id); });
    if (!inode.ok()) return "a file is gone: " + std::string(ErrorText(inode.error()));
    AttributeChange change;
    change.size = size + kBlockSize;
    if (!files.SetAttributes(*inode, change).ok()) return "a file cannot grow: " + errors_.Take();
    const Result<std::string> content = files.Read(*inode, 0, *change.size);
    if (!content.ok() || *content != node.content + std::string(kBlockSize, '\0')) {
      return absl::StrCat("inode ", ino, " shows what lay behind its end of ", size, "\n",
                          Describe(tree));
    }
  }
  return "";
}

// A file is created, written and synced.
std::string StateChecker::Use(Filesystem* fs) {
  const Files files(fs);
  const Result<InodeRef> file = files.Create(files.Root(), kAfterwards);
  if (!file.ok()) {
    return "no file can be created: " + std::string(ErrorText(file.error())) + errors_.Take();
  }
  Error error = files.Write(*file, 0, kAfterwards);
  Error synced = Error::kWouldBlock;
  if (error == Error::kOk) {
    error = RunBlocking([&](Attempt& attempt) {
      return fs->Fsync(attempt, nullptr, *file, false, [&](Error e) { synced = e; });
    });
  }
  if (error == Error::kOk) error = synced;
  if (error == Error::kOk) return "";
  return "it cannot be used: " + std::string(ErrorText(error)) + errors_.Take();
}

std::string StateChecker::CheckUse(Device* device) {
  std::unique_ptr<Filesystem> fs;
  std::string problem = Mount(device, &fs);
  if (!problem.empty()) return "the second time: " + problem;
  {
    const Files files(fs.get());
    const Result<InodeRef> file = files.Lookup(files.Root(), kAfterwards);
    if (!file.ok()) return "what was created after the recovery is gone";
    const Result<std::string> text = files.Read(*file, 0, 100);
    if (!text.ok() || *text != kAfterwards) {
      return "what was synced after the recovery is gone";
    }
  }
  return fs->Unmount() == Error::kOk ? "" : "does not unmount the second time";
}

}  // namespace sluice::crash
