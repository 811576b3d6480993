// SPDX-License-Identifier: Apache-2.0
//
// Writing: user data is copied into pages before any handle is open; then, for each hole of the
// range, one handle maps one run of blocks (or, where blocks are allocated but unwritten, makes one
// run of them written), puts the filled pages in, moves the size, and joins the inode to the
// transaction's ordered data. Overwrites of mapped blocks within the size need no
// handle: their times are journaled lazily.
#include <algorithm>
#include <utility>
#include <vector>

#include "fs/file_data.h"
#include "fs/filesystem_impl.h"

namespace sluice {
namespace {

// Blocks mapped by one handle at most; bounds the memory staged for it.
constexpr BlockCount kMaxRunBlocks = 1024;

// State of one Write call. The inode's mutex is held throughout.
class Writer {
 public:
  Writer(Filesystem::Impl* fs, Attempt& attempt, const Caller& caller, const InodeRef& inode,
         uint64_t offset, std::span<const std::byte> data, bool drop_privileges)
      : fs_(fs),
        attempt_(attempt),
        caller_(caller),
        inode_(inode),
        offset_(offset),
        data_(data),
        drop_privileges_(drop_privileges),
        tree_(TreeOf(fs, inode)) {}

  Result<size_t> Run();

 private:
  // Reads the edge pages that the write covers only in part, and cleans the old tail of the file.
  Error PrepareEdges();
  // Writes on from done_: one stretch of mapped blocks, or one run of a hole.
  Error Step();
  Error Overwrite(const Mapping& mapping);
  Error FillHole(const Mapping& hole);
  // As FillHole, where blocks are allocated already: they become written.
  Error FillUnwritten(const Mapping& mapping);
  // Pages filled with this write's data for [first, first + count), zeros around it.
  std::vector<PageMemory> StagePages(FileBlock first, size_t count) const;
  // Bytes of this write that lie in pages before `page`, counted from its start.
  size_t BytesBefore(FileBlock page) const {
    const uint64_t position = page * kBlockSize;
    return position <= offset_ ? 0 : std::min<uint64_t>(position - offset_, data_.size());
  }
  // A handle whose only work is the inode: size moved over mapped blocks, or set-id bits dropped.
  Error CommitFields(uint64_t new_size);
  void ApplyFields(uint64_t new_size);

  Filesystem::Impl* const fs_;
  Attempt& attempt_;
  const Caller& caller_;
  const InodeRef& inode_;
  const uint64_t offset_;
  const std::span<const std::byte> data_;
  const bool drop_privileges_;
  const ExtentTree tree_;
  size_t done_ = 0;  // bytes accepted
};

Error Writer::PrepareEdges() {
  const uint64_t end = offset_ + data_.size();
  if (end > inode_->fields.size) RETURN_IF_ERROR(ZeroTail(fs_, attempt_, inode_));
  Mapping mapping;
  const bool ragged_start = OffsetInPage(offset_) != 0;
  if (ragged_start) {
    RETURN_IF_ERROR(EnsurePage(fs_, attempt_, inode_, PageOf(offset_), &mapping));
  }
  const bool ragged_end = OffsetInPage(end) != 0 && end < inode_->fields.size;
  if (ragged_end && !(ragged_start && PageOf(end) == PageOf(offset_))) {
    RETURN_IF_ERROR(EnsurePage(fs_, attempt_, inode_, PageOf(end), &mapping));
  }
  return Error::kOk;
}

void Writer::ApplyFields(uint64_t new_size) {
  InodeFields& fields = inode_->fields;
  fields.size = std::max(fields.size, new_size);
  fields.mtime = fields.ctime = fs_->Now();
  if (drop_privileges_) DropPrivileges(&fields);
}

Error Writer::CommitFields(uint64_t new_size) {
  inode_->mutex.AssertHeld();
  ASSIGN_OR_RETURN(Handle handle,
                   fs_->journal->TryStart(attempt_, OpType::kInode, kInodeRecordCredits));
  const bool grows = new_size > inode_->fields.size;
  ApplyFields(new_size);
  inode_->WriteBack(handle, grows);
  // The bytes that the new size uncovers reach the device before the size does.
  if (grows) JoinOrderedData(fs_, handle, inode_);
  return Error::kOk;
}

Error Writer::Overwrite(const Mapping& mapping) {
  const FileBlock page = PageOf(offset_ + done_);
  const size_t stretch_end = std::max(BytesBefore(mapping.logical + mapping.length), done_);
  const uint64_t new_size = offset_ + stretch_end;
  // The pages go in before the handle opens: no user data is copied under a handle. A size that
  // stays behind them for a moment hides nothing that matters: bytes past the end are not read.
  FileBlock index = page;
  for (size_t at = done_; at < stretch_end; ++index) {
    const uint32_t in_page = OffsetInPage(offset_ + at);
    const size_t count = std::min<size_t>(stretch_end - at, kBlockSize - in_page);
    inode_->pages.Write(index, in_page, data_.subspan(at, count),
                        mapping.physical + (index - mapping.logical));
    at += count;
  }
  const bool drops = drop_privileges_ && (inode_->fields.mode & 06000) != 0;
  if (new_size > inode_->fields.size || drops) {
    RETURN_IF_ERROR(CommitFields(new_size));
  } else {
    ApplyFields(new_size);
    inode_->lazy_dirty = true;
  }
  done_ = stretch_end;
  return Error::kOk;
}

std::vector<PageMemory> Writer::StagePages(FileBlock first, size_t count) const {
  std::vector<PageMemory> pages;
  pages.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    PageMemory memory = fs_->budget->NewPage();
    const FileBlock index = first + i;
    const size_t from = BytesBefore(index);
    const size_t to = BytesBefore(index + 1);
    const uint32_t head = from == 0 ? OffsetInPage(offset_) * (index == PageOf(offset_)) : 0;
    const std::span<std::byte> out = memory->span();
    std::fill_n(out.begin(), head, std::byte{0});
    std::copy_n(data_.begin() + from, to - from, out.begin() + head);
    std::fill(out.begin() + head + (to - from), out.end(), std::byte{0});
    pages.push_back(std::move(memory));
  }
  return pages;
}

Error Writer::FillHole(const Mapping& hole) {
  inode_->mutex.AssertHeld();
  const FileBlock first = PageOf(offset_ + done_);
  const FileBlock end =
      std::min(hole.logical + hole.length, BlocksForBytes(offset_ + data_.size()));
  const BlockCount want = std::min<BlockCount>(end - first, kMaxRunBlocks);
  BlockNumber goal = fs_->blocks->GoalForGroup(fs_->geometry.GroupOfInode(inode_->ino));
  if (first > 0) {
    ASSIGN_OR_RETURN(const Mapping before, tree_.Lookup(attempt_, first - 1));
    if (before.physical != kNoBlock) goal = before.physical + (first - before.logical);
  }
  ExtentTree tree = tree_;
  RETURN_IF_ERROR(tree.PrepareInsert(attempt_, first));
  const BlockCount metadata = tree.InsertBlocks();
  const bool privileged = caller_.privileged();
  ASSIGN_OR_RETURN(BlockReservation tree_blocks,
                   ReserveBlocks(fs_, attempt_, goal, metadata, metadata, privileged));
  ASSIGN_OR_RETURN(BlockReservation data_blocks,
                   ReserveBlocks(fs_, attempt_, goal, want, /*at_least=*/1, privileged));
  const BlockCount count = data_blocks.left();
  std::vector<PageMemory> pages = StagePages(first, count);
  ASSIGN_OR_RETURN(Handle handle,
                   fs_->journal->TryStart(attempt_, OpType::kMapBlocks,
                                          kInodeRecordCredits + BlockAllocator::kCreditsPerRun +
                                              tree.InsertCredits()));
  const BlockRun run = fs_->blocks->Allocate(handle, data_blocks, goal, count);
  tree.Insert(handle, tree_blocks, first, run, /*unwritten=*/false);
  inode_->pages.InsertDirty(first, std::span(pages).first(run.length), run.start);
  done_ = BytesBefore(first + run.length);
  ApplyFields(offset_ + done_);
  inode_->WriteBack(handle, /*data_reachability=*/true);
  JoinOrderedData(fs_, handle, inode_);
  return Error::kOk;
}

// The blocks turn written in the transaction that waits for the data: before it is durable they
// read as zeros after a crash, behind it as what was written here.
Error Writer::FillUnwritten(const Mapping& mapping) {
  inode_->mutex.AssertHeld();
  const FileBlock first = PageOf(offset_ + done_);
  const FileBlock end = std::min({mapping.logical + mapping.length,
                                  BlocksForBytes(offset_ + data_.size()), first + kMaxRunBlocks});
  ExtentTree tree = tree_;
  ASSIGN_OR_RETURN(const ExtentTree::ChangePlan plan,
                   tree.PrepareChange(attempt_, first, end, ExtentTree::Change::kWritten));
  // These blocks were promised to the file: the tree may take of the reserve for them.
  ASSIGN_OR_RETURN(BlockReservation tree_blocks,
                   ReserveBlocks(fs_, attempt_, plan.physical, plan.tree_blocks, plan.tree_blocks,
                                 /*privileged=*/true));
  std::vector<PageMemory> pages = StagePages(first, plan.length());
  ASSIGN_OR_RETURN(Handle handle, fs_->journal->TryStart(attempt_, OpType::kExtentConvert,
                                                         kInodeRecordCredits + plan.credits));
  RETURN_IF_ERROR(tree.ApplyChange(handle, tree_blocks, plan));
  inode_->pages.InsertDirty(first, std::span(pages), plan.physical);
  done_ = BytesBefore(plan.end);
  ApplyFields(offset_ + done_);
  inode_->WriteBack(handle, /*data_reachability=*/true);
  JoinOrdered(handle, inode_);
  return Error::kOk;
}

Error Writer::Step() {
  ASSIGN_OR_RETURN(const Mapping mapping, tree_.Lookup(attempt_, PageOf(offset_ + done_)));
  if (mapping.physical == kNoBlock) return FillHole(mapping);
  return mapping.unwritten ? FillUnwritten(mapping) : Overwrite(mapping);
}

Result<size_t> Writer::Run() {
  RETURN_IF_ERROR(ContinueTruncate(fs_, attempt_, inode_));
  RETURN_IF_ERROR(PrepareEdges());
  while (done_ < data_.size()) {
    const Error error = Step();
    if (error == Error::kOk) continue;
    if (done_ > 0) break;  // a short write: the caller comes back for the rest
    return error;
  }
  return done_;
}

}  // namespace

Result<size_t> Filesystem::Write(Attempt& attempt, const Caller& caller, const InodeRef& inode,
                                 uint64_t offset, std::span<const std::byte> data, bool append,
                                 bool kill_suid_sgid) {
  Impl* fs = impl_.get();
  ASSIGN_OR_RETURN(const FreezeGate::Pass pass, fs->BeginChange(attempt));
  if (!inode->is_regular()) return Error::kInvalid;
  if (data.empty()) return size_t{0};
  RETURN_IF_ERROR(fs->budget->Admit(attempt));
  MutexLock lock(&inode->mutex);
  const uint32_t flags = inode->fields.flags;
  if ((flags & format::kInodeImmutable) != 0) return Error::kNotPermitted;
  if (append) offset = inode->fields.size;
  if (offset >= format::kMaxFileSize) return Error::kFileTooLarge;
  data = data.first(std::min<uint64_t>(data.size(), format::kMaxFileSize - offset));
  return Writer(fs, attempt, caller, inode, offset, data, kill_suid_sgid).Run();
}

}  // namespace sluice
