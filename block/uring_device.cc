// SPDX-License-Identifier: Apache-2.0
#include "block/uring_device.h"

#include <utility>

#include "absl/container/inlined_vector.h"
#include "block/inline_completion.h"

namespace sluice {
namespace {

using Pieces = absl::InlinedVector<iovec, 8>;

Pieces PiecesOf(const IoRequest& request) {
  Pieces pieces;
  pieces.reserve(request.buffers.size());
  for (std::span<std::byte> buffer : request.buffers) {
    pieces.push_back({buffer.data(), buffer.size()});
  }
  return pieces;
}

uint64_t LengthOf(std::span<const iovec> pieces) {
  uint64_t sum = 0;
  for (const iovec& piece : pieces) sum += piece.iov_len;
  return sum;
}

}  // namespace

UringDevice::UringDevice(std::unique_ptr<BackingFile> file, const UringDeviceOptions& options)
    : file_(std::move(file)) {
  auto finish = [this](IoOperation* operation, Error error) { Finish(operation, error); };
  if (options.use_ring) {
    engine_ = MakeRingEngine(file_.get(), options.queue_depth, &counters_, finish);
  }
  uses_ring_ = engine_ != nullptr;
  if (!uses_ring_) engine_ = MakePoolEngine(file_.get(), options.queue_depth, &counters_, finish);
}

void UringDevice::Submit(std::span<IoRequest* const> requests) {
  absl::InlinedVector<IoOperation*, 16> operations;
  absl::InlinedVector<std::pair<IoRequest*, Error>, 4> done;
  for (IoRequest* request : requests) {
    Error error = Error::kOk;
    if (IoOperation* const operation = Accept(request, &error); operation != nullptr) {
      operations.push_back(operation);
    } else {
      done.emplace_back(request, error);
    }
  }
  if (!operations.empty()) engine_->Start(operations);
  for (const auto& [request, error] : done) CompleteInline(request, error);
}

IoOperation* UringDevice::Accept(IoRequest* request, Error* error) {
  *error = CheckRequest(*this, *request);
  if (*error != Error::kOk) return nullptr;
  Count(request->op, request->length);
  if (request->op == IoOp::kFlush) {
    if (file_->flush_failed()) *error = Error::kIo;
    if (file_->flush_failed() || file_->read_only()) return nullptr;
    return new IoOperation(request, {});
  }
  if (request->length == 0) return nullptr;
  if (request->op == IoOp::kDiscard) return new IoOperation(request, {});

  const Pieces pieces = PiecesOf(*request);
  const bool direct = file_->MayBeDirect(request->offset, request->length);
  auto operation = std::make_unique<IoOperation>(request, pieces);
  operation->direct = direct;
  if (direct && !file_->MemoryAligned(pieces)) {
    operation->bounce = BounceBuffer(request->op, request->length, pieces);
    const iovec piece = operation->bounce.piece();
    operation->cursor = PieceCursor({&piece, 1});
  }
  return operation.release();
}

void UringDevice::Finish(IoOperation* operation, Error error) {
  IoRequest* const request = operation->request;
  if (operation->bounce && request->op == IoOp::kRead && error == Error::kOk) {
    operation->bounce.CopyOut(PiecesOf(*request));
  }
  delete operation;
  request->Done(error);
}

void UringDevice::Count(IoOp op, uint64_t length) {
  requests_[static_cast<size_t>(op)].fetch_add(1, std::memory_order_relaxed);
  if (op == IoOp::kRead) bytes_read_.fetch_add(length, std::memory_order_relaxed);
  if (op == IoOp::kWrite) bytes_written_.fetch_add(length, std::memory_order_relaxed);
}

Error UringDevice::TransferNow(IoOp op, uint64_t offset, std::span<const iovec> pieces) {
  counters_.Begin();
  const Error error = file_->Transfer(op, offset, pieces);
  counters_.End();
  return error;
}

Error UringDevice::Read(uint64_t offset, std::span<std::byte> data, IoKind) {
  const uint64_t length = data.size();
  RETURN_IF_ERROR(CheckRange(*this, IoOp::kRead, offset, length));
  Count(IoOp::kRead, length);
  const iovec piece = {data.data(), data.size()};
  return TransferNow(IoOp::kRead, offset, {&piece, 1});
}

Error UringDevice::WriteGather(uint64_t offset, std::span<const std::span<const std::byte>> pieces,
                               IoKind) {
  Pieces memory;
  memory.reserve(pieces.size());
  for (std::span<const std::byte> piece : pieces) {
    if (piece.size() % kSectorSize != 0) return Error::kInvalid;
    memory.push_back({const_cast<std::byte*>(piece.data()), piece.size()});
  }
  const uint64_t length = LengthOf(memory);
  RETURN_IF_ERROR(CheckRange(*this, IoOp::kWrite, offset, length));
  Count(IoOp::kWrite, length);
  return TransferNow(IoOp::kWrite, offset, memory);
}

Error UringDevice::Flush(IoKind) {
  Count(IoOp::kFlush, 0);
  counters_.Begin();
  const Error error = file_->Flush();
  counters_.End();
  return error;
}

Error UringDevice::Discard(uint64_t offset, uint64_t length) {
  RETURN_IF_ERROR(CheckRange(*this, IoOp::kDiscard, offset, length));
  Count(IoOp::kDiscard, length);
  return file_->Discard(offset, length);
}

UringDevice::Stats UringDevice::stats() const {
  const auto requests = [this](IoOp op) {
    return requests_[static_cast<size_t>(op)].load(std::memory_order_relaxed);
  };
  return {.in_flight = counters_.in_flight(),
          .max_in_flight = counters_.max_in_flight(),
          .reads = requests(IoOp::kRead),
          .writes = requests(IoOp::kWrite),
          .flushes = requests(IoOp::kFlush),
          .discards = requests(IoOp::kDiscard),
          .bytes_read = bytes_read_.load(std::memory_order_relaxed),
          .bytes_written = bytes_written_.load(std::memory_order_relaxed)};
}

Result<std::unique_ptr<UringDevice>> OpenUringDevice(const std::string& path,
                                                     const UringDeviceOptions& options) {
  ASSIGN_OR_RETURN(auto file, BackingFile::Open(path, {options.read_only, options.direct}));
  return std::make_unique<UringDevice>(std::move(file), options);
}

}  // namespace sluice
