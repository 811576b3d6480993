// SPDX-License-Identifier: Apache-2.0
//
// Reading: what is dirty comes from memory, the rest from the device straight into the caller's
// buffer, many pieces in flight. The kernel caches what it reads; nothing clean is kept here.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "fs/atime.h"
#include "fs/file_data.h"
#include "fs/filesystem_impl.h"

namespace sluice {
namespace {

class ReadOperation;

// One physically contiguous piece. If the caller's memory is not block-aligned for it, it is read
// into a bounce buffer and copied.
class ReadPiece : public IoRequest {
 public:
  ReadPiece(ReadOperation* operation, BlockNumber block, std::span<std::byte> out, uint32_t skip);
  void Done(Error error) override;

 private:
  ReadOperation* const operation_;
  const std::span<std::byte> out_;
  const uint32_t skip_;  // bytes of the first block that were not asked for
  AlignedBuffer bounce_;
};

// A read in flight. Deletes itself when the last piece is in.
class ReadOperation {
 public:
  ReadOperation(InodeRef inode, RangeLock::Token token, size_t length, ReadDone done)
      : inode_(std::move(inode)),
        token_(std::move(token)),
        length_(length),
        done_(std::move(done)) {}

  void Add(BlockNumber block, std::span<std::byte> out, uint32_t skip) {
    pieces_.push_back(std::make_unique<ReadPiece>(this, block, out, skip));
  }

  void Start(Device* device) {
    // One more than the pieces: they may complete before the loop of Submit is over.
    pending_.store(pieces_.size() + 1, std::memory_order_relaxed);
    std::vector<IoRequest*> requests;
    requests.reserve(pieces_.size());
    for (const std::unique_ptr<ReadPiece>& piece : pieces_) requests.push_back(piece.get());
    if (!requests.empty()) device->Submit(requests);
    PieceDone(Error::kOk);
  }

  void PieceDone(Error error) {
    if (error != Error::kOk) error_.store(error, std::memory_order_relaxed);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    token_.Release();
    const Error result = error_.load(std::memory_order_relaxed);
    done_(result == Error::kOk ? Result<size_t>(length_) : Result<size_t>(result));
    delete this;
  }

 private:
  const InodeRef inode_;
  RangeLock::Token token_;
  const size_t length_;
  const ReadDone done_;
  std::vector<std::unique_ptr<ReadPiece>> pieces_;
  std::atomic<size_t> pending_{0};
  std::atomic<Error> error_{Error::kOk};
};

ReadPiece::ReadPiece(ReadOperation* operation, BlockNumber block, std::span<std::byte> out,
                     uint32_t skip)
    : operation_(operation), out_(out), skip_(skip) {
  op = IoOp::kRead;
  kind = IoKind::kRead;
  offset = block * kBlockSize;
  const size_t whole = BlocksForBytes(skip + out.size()) * kBlockSize;
  length = whole;
  if (skip == 0 && whole == out.size()) {
    buffers.push_back(out);
  } else {
    bounce_ = AlignedBuffer(whole);
    buffers.push_back(bounce_.span());
  }
}

void ReadPiece::Done(Error error) {
  if (error == Error::kOk && bounce_.size() > 0) {
    std::memcpy(out_.data(), bounce_.data() + skip_, out_.size());
  }
  operation_->PieceDone(error);
}

// Lays one mapped or missing stretch [offset, offset + out.size()) into the operation.
void AddStretch(ReadOperation* operation, const Mapping& mapping, uint64_t offset,
                std::span<std::byte> out) {
  if (mapping.physical == kNoBlock || mapping.unwritten) {
    std::memset(out.data(), 0, out.size());
    return;
  }
  const BlockNumber block = mapping.physical + (PageOf(offset) - mapping.logical);
  const uint32_t skip = OffsetInPage(offset);
  // The aligned middle goes straight into the caller's memory; a ragged head and tail are bounced
  // on their own, so that they do not drag the rest along.
  size_t head = skip == 0 ? 0 : std::min<size_t>(out.size(), kBlockSize - skip);
  if (head > 0) operation->Add(block, out.first(head), skip);
  std::span<std::byte> rest = out.subspan(head);
  const BlockNumber next = block + (head > 0 ? 1 : 0);
  const size_t middle = rest.size() / kBlockSize * kBlockSize;
  if (middle > 0) operation->Add(next, rest.first(middle), 0);
  if (middle < rest.size()) operation->Add(next + middle / kBlockSize, rest.subspan(middle), 0);
}

}  // namespace

Error Filesystem::Read(Attempt& attempt, const InodeRef& inode, uint64_t offset,
                       std::span<std::byte> out, ReadDone done) {
  Impl* fs = impl_.get();
  RETURN_IF_ERROR(fs->CheckAlive());
  if (inode->is_directory()) return Error::kIsDirectory;
  std::unique_ptr<ReadOperation> operation;
  bool touch = false;
  {
    ReaderMutexLock lock(&inode->mutex);
    const uint64_t size = inode->fields.size;
    const size_t length = offset >= size ? 0 : std::min<uint64_t>(out.size(), size - offset);
    const uint64_t end = offset + length;
    RangeLock::Token token;
    if (length > 0) {
      ASSIGN_OR_RETURN(
          token, inode->range_lock.TryAcquire(attempt, offset, end, RangeLock::Mode::kShared));
    }
    operation = std::make_unique<ReadOperation>(inode, std::move(token), length, std::move(done));
    const ExtentTree tree = TreeOf(fs, inode);
    for (uint64_t at = offset; at < end;) {
      const FileBlock page = PageOf(at);
      std::span<std::byte> rest = out.subspan(at - offset, end - at);
      const size_t in_page = std::min<size_t>(rest.size(), kBlockSize - OffsetInPage(at));
      if (inode->pages.Read(page, OffsetInPage(at), rest.first(in_page))) {
        at += in_page;
        continue;
      }
      auto mapping = tree.Lookup(attempt, page);
      if (!mapping.ok()) return mapping.error();
      const FileBlock limit = inode->pages.NextInMemory(
          page + 1, std::min(mapping->logical + mapping->length, BlocksForBytes(end)));
      const size_t stretch = std::min<uint64_t>(rest.size(), limit * kBlockSize - at);
      AddStretch(operation.get(), *mapping, at, rest.first(stretch));
      at += stretch;
    }
    touch = length > 0 && !read_only() && AtimeIsDue(fs->options, *inode, fs->Now());
  }
  if (touch) TouchAtime(fs, inode);
  operation.release()->Start(fs->device);
  return Error::kOk;
}

}  // namespace sluice
