// SPDX-License-Identifier: Apache-2.0
#include "fsck/file_blocks.h"

#include <algorithm>

namespace sluice {

namespace {

constexpr uint64_t kMaxLoadedBlocks = 16384;  // 64 MiB

}  // namespace

class FileBlocks::Visitor final : public ExtentVisitor {
 public:
  explicit Visitor(FileBlocks* file) : file_(file) {}

  bool OnNode(BlockNumber block) override {
    const bool good = file_->state_->geometry.IsDataRange(block, 1);
    file_->damaged_ = file_->damaged_ || !good;
    return good;
  }
  void OnExtent(const format::Extent& extent) override {
    const FileBlock first = extent.logical;
    if (first + extent.length > file_->blocks_) file_->beyond_ = true;
    if (first >= file_->blocks_) return;
    if (!file_->state_->geometry.IsDataRange(extent.physical, extent.length)) {
      file_->damaged_ = true;
      return;
    }
    if ((extent.flags & format::kExtentUnwritten) != 0) return;
    file_->runs_.push_back(
        {first, extent.physical, std::min<BlockCount>(extent.length, file_->blocks_ - first)});
  }
  void OnBadNode(BlockNumber, const char*) override { file_->damaged_ = true; }

 private:
  FileBlocks* const file_;
};

void FileBlocks::Open(InodeNumber ino, uint32_t generation, const std::byte* root,
                      uint64_t blocks) {
  blocks_ = blocks;
  runs_.clear();
  holes_.clear();
  beyond_ = false;
  damaged_ = false;
  Visitor visitor(this);
  walk_.Run(ino, generation, root, &visitor);
  FileBlock next = 0;
  for (const Run& run : runs_) {
    if (run.logical > next) holes_.push_back({next, run.logical - next});
    next = run.logical + run.count;
  }
  if (next < blocks_) holes_.push_back({next, blocks_ - next});
  Load();
}

void FileBlocks::Load() {
  loaded_ = holes_.empty() && blocks_ > 1 && blocks_ <= kMaxLoadedBlocks;
  if (!loaded_) return;
  if (all_.size() < blocks_ << kBlockShift) all_ = AlignedBuffer(blocks_ << kBlockShift);
  for (const Run& run : runs_) {
    state_->Read(run.physical,
                 all_.span().subspan(run.logical << kBlockShift, run.count << kBlockShift));
  }
}

BlockNumber FileBlocks::Physical(FileBlock logical) const {
  auto run = std::ranges::upper_bound(runs_, logical, {}, &Run::logical);
  if (run == runs_.begin()) return 0;
  --run;
  return logical - run->logical < run->count ? run->physical + (logical - run->logical) : 0;
}

format::ConstBlockSpan FileBlocks::Read(FileBlock logical) {
  if (loaded_) return format::ConstBlockSpan(all_.data() + (logical << kBlockShift), kBlockSize);
  state_->Read(Physical(logical), block_.span());
  return format::ConstBlockSpan(block_.data(), kBlockSize);
}

}  // namespace sluice
