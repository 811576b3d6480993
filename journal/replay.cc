// SPDX-License-Identifier: Apache-2.0
#include "journal/replay.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/aligned_buffer.h"
#include "format/block_header.h"
#include "journal/block_writer.h"
#include "journal/log_scan.h"

namespace sluice {
namespace {

constexpr size_t kBatchBlocks = 256;

// The newest image of each block that no later (or the same) transaction revokes, in log order.
std::vector<LogImage> SelectImages(const LogContents& contents, uint64_t* revoked) {
  absl::flat_hash_map<BlockNumber, Tid> revokes;
  for (const LogRevoke& revoke : contents.revokes) {
    Tid& tid = revokes[revoke.block];
    tid = std::max(tid, revoke.tid);
  }
  absl::flat_hash_map<BlockNumber, LogImage> newest;
  for (const LogImage& image : contents.images) {
    const auto revoke = revokes.find(image.home);
    if (revoke != revokes.end() && image.tid <= revoke->second) {
      ++*revoked;
      continue;
    }
    newest[image.home] = image;
  }
  std::vector<LogImage> selected;
  selected.reserve(newest.size());
  for (const auto& [home, image] : newest) selected.push_back(image);
  std::sort(selected.begin(), selected.end(),
            [](const LogImage& a, const LogImage& b) { return a.index < b.index; });
  return selected;
}

// Reads the images again (the scan kept no copies), checks them again, and writes them home.
Error ApplyBatch(Device* device, const LogArea& log, std::span<const LogImage> images,
                 AlignedBuffer* buffer, std::string* problem) {
  std::vector<HomeBlock> blocks;
  for (size_t i = 0; i < images.size();) {
    size_t run = 1;
    while (i + run < images.size() && images[i + run].index == images[i].index + run) ++run;
    const std::span<std::byte> bytes = buffer->span().subspan(i * kBlockSize, run * kBlockSize);
    RETURN_IF_ERROR(log.ReadBlocks(device, images[i].index, bytes));
    for (size_t j = 0; j < run; ++j) {
      const std::span<std::byte> copy = bytes.subspan(j * kBlockSize, kBlockSize);
      if (format::Checksum(log.seed(), copy) != images[i + j].checksum) {
        *problem = absl::StrCat("log block ", images[i + j].index, " changed during the replay");
        return Error::kCorrupt;
      }
      blocks.push_back({images[i + j].home, copy.data()});
    }
    i += run;
  }
  std::sort(blocks.begin(), blocks.end(),
            [](const HomeBlock& a, const HomeBlock& b) { return a.home < b.home; });
  return WriteHomeBlocks(device, blocks, IoKind::kSyncWrite);
}

Error Apply(Device* device, const LogArea& log, std::span<const LogImage> images,
            std::string* problem) {
  AlignedBuffer buffer(std::min(kBatchBlocks, images.size()) * kBlockSize);
  while (!images.empty()) {
    const size_t count = std::min(kBatchBlocks, images.size());
    RETURN_IF_ERROR(ApplyBatch(device, log, images.first(count), &buffer, problem));
    images = images.subspan(count);
  }
  return device->Flush();
}

// The images are durable: from now on the log is not needed, and none of its records valid.
Error EmptyLog(Device* device, Tid next_tid, LogArea* log) {
  log->state.incarnation = LogArea::NewIncarnation(log->state.incarnation);
  log->state.tail_block = 0;
  log->state.tail_tid = next_tid;
  for (uint64_t slot = 0; slot < format::kLogFirst; ++slot) {
    RETURN_IF_ERROR(log->WriteState(device));
    RETURN_IF_ERROR(device->Flush());
  }
  return Error::kOk;
}

}  // namespace

Result<ReplayReport> Replay(Device* device, const format::Geometry& geometry, LogArea* log,
                            std::string* problem) {
  std::string ignored;
  if (problem == nullptr) problem = &ignored;
  ReplayReport report;
  if (log->state.tail_block == 0) return report;
  report.needed = true;

  LogScan scan(device, geometry, *log);
  Result<LogContents> contents = scan.Run();
  if (!contents.ok()) {
    *problem = scan.problem();
    return contents.error();
  }
  const std::vector<LogImage> images = SelectImages(*contents, &report.revoked);
  const Error applied = Apply(device, *log, images, problem);
  // A sparse image whose home blocks were never written. The log is untouched.
  if (applied == Error::kNoSpace) *problem = "its blocks have no room where the image lies";
  RETURN_IF_ERROR(applied);
  RETURN_IF_ERROR(EmptyLog(device, contents->next_tid, log));
  report.transactions = contents->transactions;
  report.blocks = images.size();
  report.last_tid = contents->transactions > 0 ? contents->next_tid - 1 : 0;
  return report;
}

}  // namespace sluice
