// SPDX-License-Identifier: Apache-2.0
//
// The names: every directory's tree, and what its entries say of inodes.
#include <dirent.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fsck/directory_walk.h"

namespace sluice {

namespace {

class NamesCheck final : public DirectoryVisitor {
 public:
  explicit NamesCheck(CheckState* state) : state_(state), walk_(state) {}

  Error Run();

  void OnEntry(const format::DirEntry& entry, std::string_view name) override;
  void OnBadBlock(FileBlock logical, BlockNumber physical, const char* reason) override;
  void OnSeenBlock(FileBlock logical) override;

 private:
  void CheckDirectory(DirectoryInfo* directory);
  void CheckBlocks();
  void ReportLost(format::BlockRange* lost);
  // False if the name is there twice.
  bool NameIsNew(uint64_t key, std::string_view name);
  void CheckType(const format::DirEntry& entry, std::string_view name, uint8_t type);
  void EnterDirectory(InodeNumber ino, const InodeInfo& info, std::string_view name);
  void ReportSecondName(InodeNumber ino, DirectoryInfo* in, std::string_view name);
  Finding* ReportEntry(FindingId id, InodeNumber ino, std::string_view name);
  void Damaged();

  CheckState* const state_;
  DirectoryWalk walk_;
  DirectoryInfo* directory_ = nullptr;
  // The names seen so far whose keys have the same hash.
  uint64_t hash_ = 0;
  std::vector<std::string> names_;
  // Names of directories that are not where the directory says its parent is: the right one may
  // still come, and is then the one that counts.
  struct WrongName {
    DirectoryInfo* in;
    std::string name;
  };
  std::map<InodeNumber, WrongName> wrong_;
};

Error NamesCheck::Run() {
  std::vector<DirectoryInfo*> order;
  for (DirectoryInfo& directory : state_->directories) {
    // Those without links are empty, or half deleted.
    if (directory.links != 0) order.push_back(&directory);
  }
  // As they lie on the device.
  std::ranges::sort(order, {}, [](const DirectoryInfo* directory) {
    return uint64_t{format::ExtentsOf(directory->root.data())[0].physical};
  });
  for (size_t i = 0; i < order.size(); ++i) {
    CheckDirectory(order[i]);
    if (i % 64 == 0) RETURN_IF_ERROR(state_->Step(CheckPass::kDirectories, i, order.size()));
  }
  for (const auto& [ino, wrong] : wrong_) {
    directory_ = wrong.in;
    Finding* finding = ReportEntry(FindingId::kDirParentWrong, ino, wrong.name);
    finding->found = state_->directories[state_->InfoOfInode(ino)->directory].parent;
  }
  return state_->Step(CheckPass::kDirectories, order.size(), order.size());
}

void NamesCheck::Damaged() {
  directory_->damaged = true;
  state_->names_unclear = true;
}

void NamesCheck::CheckDirectory(DirectoryInfo* directory) {
  directory_ = directory;
  hash_ = 0;
  names_.clear();
  walk_.Run(*directory, this);
  CheckBlocks();
  state_->stats()->names += directory->found_entries;
  if (directory->damaged || directory->entries == directory->found_entries) return;
  Finding* finding = state_->Report(FindingId::kDirEntryCount);
  finding->ino = directory->ino;
  finding->found = directory->entries;
  finding->expected = directory->found_entries;
}

void NamesCheck::CheckBlocks() {
  const FileBlocks& file = walk_.file();
  if (file.damaged()) Damaged();
  if (file.beyond()) {
    Finding* finding = state_->Report(FindingId::kDirBeyondSize);
    finding->ino = directory_->ino;
    finding->expected = directory_->blocks;
  }
  if (!file.damaged() && !file.holes().empty()) {
    Damaged();
    for (const format::BlockRange& hole : file.holes()) {
      Finding* finding = state_->Report(FindingId::kDirHole);
      finding->ino = directory_->ino;
      finding->block = hole.start;
      finding->count = hole.count;
    }
  }
  // Below a damaged block everything is lost; that is said once.
  if (directory_->damaged) return;
  format::BlockRange lost;
  for (const FileBlocks::Run& run : file.runs()) {
    for (FileBlock logical = run.logical; logical < run.logical + run.count; ++logical) {
      if (walk_.Seen(logical)) {
        ReportLost(&lost);
      } else if (lost.count++ == 0) {
        lost.start = logical;
      }
      state_->stats()->directory_blocks += 1;
    }
  }
  ReportLost(&lost);
}

void NamesCheck::ReportLost(format::BlockRange* lost) {
  if (lost->count == 0) return;
  Finding* finding = state_->Report(FindingId::kDirBlockLost);
  finding->ino = directory_->ino;
  finding->block = lost->start;
  finding->count = lost->count;
  *lost = {};
  Damaged();
}

void NamesCheck::OnBadBlock(FileBlock logical, BlockNumber physical, const char* reason) {
  Finding* finding = state_->Report(FindingId::kDirBlockBad);
  finding->ino = directory_->ino;
  finding->block = physical;
  finding->found = logical;
  finding->text = reason;
  Damaged();
}

void NamesCheck::OnSeenBlock(FileBlock logical) {
  Finding* finding = state_->Report(FindingId::kDirBlockTwice);
  finding->ino = directory_->ino;
  finding->found = logical;
  Damaged();
}

Finding* NamesCheck::ReportEntry(FindingId id, InodeNumber ino, std::string_view name) {
  Finding* finding = state_->Report(id);
  finding->ino = directory_->ino;
  finding->other = ino;
  finding->name = std::string(name);
  return finding;
}

bool NamesCheck::NameIsNew(uint64_t key, std::string_view name) {
  const uint64_t hash = key / format::kDirKeySequences;
  if (hash != hash_) {
    hash_ = hash;
    names_.clear();
  }
  if (std::ranges::find(names_, name) != names_.end()) return false;
  if (names_.size() < format::kDirKeySequences) names_.emplace_back(name);
  return true;
}

void NamesCheck::OnEntry(const format::DirEntry& entry, std::string_view name) {
  const InodeNumber ino = entry.inode;
  ++directory_->found_entries;
  if (!NameIsNew(entry.key, name)) ReportEntry(FindingId::kEntryTwice, ino, name);
  if (!state_->geometry.ValidInode(ino)) {
    ReportEntry(FindingId::kEntryInvalid, ino, name);
    return;
  }
  if (ino < format::kFirstUserInode && ino != format::kRootInode) {
    ReportEntry(FindingId::kEntryReserved, ino, name);
    return;
  }
  InodeInfo* info = state_->InfoOfInode(ino);
  if (info == nullptr || info->type == InodeInfo::kFree) {
    ReportEntry(FindingId::kEntryFree, ino, name);
    return;
  }
  const bool damaged = info->type == InodeInfo::kDamaged;
  const uint8_t type = damaged ? entry.type : info->type;
  if (!damaged) CheckType(entry, name, type);
  if (type != DT_DIR) {
    ++info->names;
    return;
  }
  ++directory_->subdirectories;
  if (!damaged) EnterDirectory(ino, *info, name);
}

void NamesCheck::CheckType(const format::DirEntry& entry, std::string_view name, uint8_t type) {
  if (entry.type == type) return;
  Finding* finding = ReportEntry(FindingId::kEntryType, entry.inode, name);
  finding->found = entry.type;
  finding->expected = type;
}

void NamesCheck::EnterDirectory(InodeNumber ino, const InodeInfo& info, std::string_view name) {
  DirectoryInfo* child = &state_->directories[info.directory];
  if (ino == format::kRootInode) return ReportSecondName(ino, directory_, name);
  const bool right = child->parent == directory_->ino;
  const auto wrong = wrong_.find(ino);
  if (right && wrong != wrong_.end()) {
    ReportSecondName(ino, wrong->second.in, wrong->second.name);
    wrong_.erase(wrong);
  } else if (child->found_parent != 0) {
    return ReportSecondName(ino, directory_, name);
  }
  child->found_parent = directory_->ino;
  if (!right) wrong_.emplace(ino, WrongName{directory_, std::string(name)});
}

// The name counts neither for the link count nor for the way up.
void NamesCheck::ReportSecondName(InodeNumber ino, DirectoryInfo* in, std::string_view name) {
  Finding* finding = ReportEntry(FindingId::kDirTwoNames, ino, name);
  finding->ino = in->ino;
  --in->subdirectories;
}

}  // namespace

Error NamesPass(CheckState* state) { return NamesCheck(state).Run(); }

}  // namespace sluice
