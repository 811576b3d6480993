// SPDX-License-Identifier: Apache-2.0
//
// Can every directory be reached from the root, and does every inode have the names it counts?
#include <dirent.h>

#include <vector>

#include "fsck/check_state.h"

namespace sluice {

namespace {

using Reach = DirectoryInfo::Reach;

class LinksCheck {
 public:
  explicit LinksCheck(CheckState* state) : state_(state) {}

  void Run();

 private:
  DirectoryInfo* Find(InodeNumber ino);
  void CheckReach(DirectoryInfo* directory);
  void CheckDirectory(const DirectoryInfo& directory);
  void CheckFile(InodeNumber ino, const InodeInfo& info);
  void ReportLinks(InodeNumber ino, uint64_t found, uint64_t expected);
  void ReportUnlinked(InodeNumber ino);

  CheckState* const state_;
  uint64_t unclear_ = 0;
};

void LinksCheck::Run() {
  for (DirectoryInfo& directory : state_->directories) CheckReach(&directory);
  for (const DirectoryInfo& directory : state_->directories) CheckDirectory(directory);
  InodeNumber ino = 1;
  for (const GroupInfo& group : state_->groups) {
    for (size_t i = 0; i < group.inodes.size(); ++i) CheckFile(ino + i, group.inodes[i]);
    ino += state_->geometry.inodes_per_group();
  }
  if (unclear_ != 0) state_->Report(FindingId::kNamesUnclear)->count = unclear_;
}

DirectoryInfo* LinksCheck::Find(InodeNumber ino) {
  const InodeInfo* info = state_->InfoOfInode(ino);
  return info != nullptr && info->type == DT_DIR ? &state_->directories[info->directory] : nullptr;
}

// Goes up until something known, then notes for the whole way what was found there.
void LinksCheck::CheckReach(DirectoryInfo* directory) {
  std::vector<DirectoryInfo*> way;
  DirectoryInfo* top = directory;
  while (top != nullptr && top->reach == Reach::kUnknown) {
    top->reach = Reach::kOnTheWay;
    way.push_back(top);
    if (top->ino == format::kRootInode || top->found_parent == 0) break;
    top = Find(top->found_parent);
  }
  Reach reach = Reach::kLost;
  if (top != nullptr && (top->reach == Reach::kReached || top->ino == format::kRootInode)) {
    reach = Reach::kReached;
  } else if (top != nullptr && top->reach == Reach::kOnTheWay && top->found_parent != 0) {
    state_->Report(FindingId::kDirCycle)->ino = top->ino;
  }
  for (DirectoryInfo* passed : way) passed->reach = reach;
}

void LinksCheck::ReportLinks(InodeNumber ino, uint64_t found, uint64_t expected) {
  Finding* finding = state_->Report(FindingId::kLinksWrong);
  finding->ino = ino;
  finding->found = found;
  finding->expected = expected;
}

void LinksCheck::ReportUnlinked(InodeNumber ino) {
  if (state_->orphans_unclear || state_->orphans.contains(ino)) return;
  state_->Report(FindingId::kUnlinkedNotOrphan)->ino = ino;
}

void LinksCheck::CheckDirectory(const DirectoryInfo& directory) {
  if (directory.ino < format::kFirstUserInode && directory.ino != format::kRootInode) return;
  if (directory.ino == format::kRootInode && directory.parent != format::kRootInode) {
    Finding* finding = state_->Report(FindingId::kDirParentWrong);
    finding->ino = finding->other = format::kRootInode;
    finding->found = directory.parent;
  }
  const bool named = directory.found_parent != 0 || directory.ino == format::kRootInode;
  if (directory.links == 0) {
    if (!named) return ReportUnlinked(directory.ino);
    return ReportLinks(directory.ino, 0, 2);
  }
  if (!named) {
    if (state_->names_unclear) {
      ++unclear_;
    } else {
      state_->Report(FindingId::kDirUnconnected)->ino = directory.ino;
    }
  }
  if (directory.damaged) return;
  const uint64_t expected = 2 + uint64_t{directory.subdirectories};
  if (directory.links == expected) return;
  ReportLinks(directory.ino, directory.links, expected);
}

void LinksCheck::CheckFile(InodeNumber ino, const InodeInfo& info) {
  if (info.type == InodeInfo::kFree || info.type == InodeInfo::kDamaged || info.type == DT_DIR) {
    return;
  }
  if (ino < format::kFirstUserInode) {
    const bool special = ino == format::kJournalInode || ino == format::kOrphanInode;
    if (special && info.links != 1) ReportLinks(ino, info.links, 1);
    return;
  }
  if (info.links == info.names) {
    if (info.links == 0) ReportUnlinked(ino);
    return;
  }
  if (info.names < info.links && state_->names_unclear) {
    ++unclear_;
  } else if (info.names == 0) {
    Finding* finding = state_->Report(FindingId::kInodeUnreferenced);
    finding->ino = ino;
    finding->found = info.links;
  } else {
    ReportLinks(ino, info.links, info.names);
  }
}

}  // namespace

void LinksPass(CheckState* state) { LinksCheck(state).Run(); }

}  // namespace sluice
