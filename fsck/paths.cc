// SPDX-License-Identifier: Apache-2.0
//
// Where in the tree the inodes are that findings name. Only looked for when somebody will read it.
#include <dirent.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fsck/directory_walk.h"

namespace sluice {

namespace {

// Findings that get a path; a person does not read more.
constexpr size_t kMaxPaths = 200;
constexpr size_t kMaxPathLength = 4096;

// Notes under what name the wanted inodes are found.
class NameVisitor final : public DirectoryVisitor {
 public:
  struct Place {
    InodeNumber parent;
    std::string name;
  };

  void Want(InodeNumber ino) { wanted_.insert(ino); }
  bool wants_any() const { return !wanted_.empty(); }
  void set_directory(InodeNumber ino) { directory_ = ino; }
  const Place* Find(InodeNumber ino) const {
    const auto found = places_.find(ino);
    return found == places_.end() ? nullptr : &found->second;
  }

  void OnEntry(const format::DirEntry& entry, std::string_view name) override {
    if (!wanted_.contains(entry.inode)) return;
    places_.try_emplace(entry.inode, Place{directory_, std::string(name)});
  }
  void OnBadBlock(FileBlock, BlockNumber, const char*) override {}
  void OnSeenBlock(FileBlock) override {}

 private:
  InodeNumber directory_ = 0;
  absl::flat_hash_set<InodeNumber> wanted_;
  absl::flat_hash_map<InodeNumber, Place> places_;
};

class PathFinder {
 public:
  explicit PathFinder(CheckState* state) : state_(state), walk_(state) {}

  Error Run();

 private:
  DirectoryInfo* DirectoryOf(InodeNumber ino) {
    const InodeInfo* info = state_->InfoOfInode(ino);
    const bool is = info != nullptr && info->type == DT_DIR;
    return is ? &state_->directories[info->directory] : nullptr;
  }
  static bool Reached(const DirectoryInfo* directory) {
    return directory != nullptr && directory->reach == DirectoryInfo::Reach::kReached;
  }
  Error FindFiles();
  void FindDirectories();
  void WantWay(InodeNumber directory);
  std::string PathOf(InodeNumber ino);

  CheckState* const state_;
  DirectoryWalk walk_;
  NameVisitor files_;
  NameVisitor directories_;
  absl::flat_hash_set<InodeNumber> parents_;  // directories to look into for directories
};

Error PathFinder::Run() {
  std::vector<Finding>& findings = state_->report()->findings;
  const size_t count = std::min(findings.size(), kMaxPaths);
  for (size_t i = 0; i < count; ++i) {
    const InodeNumber ino = findings[i].ino;
    if (ino >= format::kFirstUserInode && DirectoryOf(ino) == nullptr) files_.Want(ino);
  }
  RETURN_IF_ERROR(FindFiles());
  for (size_t i = 0; i < count; ++i) {
    const NameVisitor::Place* place = files_.Find(findings[i].ino);
    WantWay(place != nullptr ? place->parent : findings[i].ino);
  }
  FindDirectories();
  for (size_t i = 0; i < count; ++i) findings[i].path = PathOf(findings[i].ino);
  return Error::kOk;
}

Error PathFinder::FindFiles() {
  if (!files_.wants_any()) return Error::kOk;
  const size_t total = state_->directories.size();
  for (size_t i = 0; i < total; ++i) {
    const DirectoryInfo& directory = state_->directories[i];
    files_.set_directory(directory.ino);
    if (directory.links != 0) walk_.Run(directory, &files_);
    if (i % 64 == 0) RETURN_IF_ERROR(state_->Step(CheckPass::kDirectories, i, total));
  }
  return Error::kOk;
}

void PathFinder::WantWay(InodeNumber ino) {
  for (DirectoryInfo* directory = DirectoryOf(ino);
       Reached(directory) && directory->ino != format::kRootInode;
       directory = DirectoryOf(directory->found_parent)) {
    directories_.Want(directory->ino);
    // The rest of the way is wanted already by who came here first, or is looked at once more.
    parents_.insert(directory->found_parent);
  }
}

void PathFinder::FindDirectories() {
  for (const InodeNumber ino : parents_) {
    const DirectoryInfo* directory = DirectoryOf(ino);
    if (directory == nullptr) continue;
    directories_.set_directory(ino);
    walk_.Run(*directory, &directories_);
  }
}

std::string PathFinder::PathOf(InodeNumber ino) {
  std::string path;
  const NameVisitor::Place* place = files_.Find(ino);
  DirectoryInfo* directory = DirectoryOf(ino);
  if (place != nullptr) {
    path = "/" + place->name;
    directory = DirectoryOf(place->parent);
  }
  if (!Reached(directory)) return "";
  while (directory->ino != format::kRootInode && path.size() < kMaxPathLength) {
    place = directories_.Find(directory->ino);
    if (place == nullptr) return "";
    path = "/" + place->name + path;
    directory = DirectoryOf(directory->found_parent);
    if (directory == nullptr) return "";
  }
  return path.empty() ? "/" : path;
}

}  // namespace

Error PathsPass(CheckState* state) {
  if (state->report()->findings.empty() || state->groups.empty()) return Error::kOk;
  return PathFinder(state).Run();
}

}  // namespace sluice
