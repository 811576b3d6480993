// SPDX-License-Identifier: Apache-2.0
#include "fsck/check_state.h"

#include <cstring>

namespace sluice {

Finding* CheckState::Report(FindingId id) {
  const bool error = InfoOf(id).severity == Severity::kError;
  ++(error ? report_->errors : report_->notes);
  Finding finding;
  finding.id = id;
  if (report_->findings.size() >= options_.max_findings) {
    dropped_ = std::move(finding);
    return &dropped_;
  }
  report_->findings.push_back(std::move(finding));
  return &report_->findings.back();
}

void CheckState::Read(BlockNumber first, std::span<std::byte> data) {
  if (device()->Read(first << kBlockShift, data) == Error::kOk) return;
  for (size_t done = 0; done < data.size(); done += kBlockSize) {
    const BlockNumber block = first + (done >> kBlockShift);
    const std::span<std::byte> piece = data.subspan(done, kBlockSize);
    const Error error = device()->Read(block << kBlockShift, piece);
    if (error == Error::kOk) continue;
    std::memset(piece.data(), 0, piece.size());
    Finding* finding = Report(FindingId::kUnreadable);
    finding->block = block;
    finding->text = std::string(ErrorText(error));
  }
}

format::ConstBlockSpan CheckState::ReadOne(BlockNumber block) {
  Read(block, block_.span());
  return format::ConstBlockSpan(block_.data(), kBlockSize);
}

Error CheckState::Step(CheckPass pass, uint64_t done, uint64_t total) {
  if (options_.progress) options_.progress(pass, done, total);
  if (options_.cancelled && options_.cancelled()) {
    report_->message = "interrupted";
    return Error::kInterrupted;
  }
  return Error::kOk;
}

InodeInfo* CheckState::InfoOfInode(InodeNumber ino) {
  if (!geometry.ValidInode(ino)) return nullptr;
  std::vector<InodeInfo>& inodes = groups[geometry.GroupOfInode(ino)].inodes;
  const uint32_t index = geometry.IndexInGroup(ino);
  return index < inodes.size() ? &inodes[index] : nullptr;
}

}  // namespace sluice
