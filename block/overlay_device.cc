// SPDX-License-Identifier: Apache-2.0
#include "block/overlay_device.h"

#include <cstring>
#include <vector>

#include "block/inline_completion.h"

namespace sluice {
namespace {

constexpr uint64_t kSectorsPerBlock = kBlockSize / kSectorSize;

}  // namespace

// Asks the base on behalf of `request`; deletes itself.
class OverlayDevice::PatchedRead final : public IoRequest {
 public:
  PatchedRead(const OverlayDevice* overlay, IoRequest* request)
      : overlay_(overlay), request_(request) {
    op = IoOp::kRead;
    kind = request->kind;
    flow = request->flow;
    offset = request->offset;
    length = request->length;
    buffers = request->buffers;
  }

  void Done(Error error) override {
    if (error == Error::kOk) {
      uint64_t at = offset;
      for (std::span<std::byte> buffer : buffers) {
        overlay_->Patch(at, buffer);
        at += buffer.size();
      }
    }
    IoRequest* const request = request_;
    delete this;
    request->Done(error);
  }

 private:
  const OverlayDevice* const overlay_;
  IoRequest* const request_;
};

void OverlayDevice::Submit(std::span<IoRequest* const> requests) {
  std::vector<IoRequest*> reads;
  for (IoRequest* request : requests) {
    Error error = Error::kOk;
    if (Serve(request, &error)) {
      CompleteInline(request, error);
    } else {
      reads.push_back(new PatchedRead(this, request));
    }
  }
  if (!reads.empty()) base_->Submit(reads);
}

Error OverlayDevice::Read(uint64_t offset, std::span<std::byte> data, IoKind kind) {
  RETURN_IF_ERROR(base_->Read(offset, data, kind));
  Patch(offset, data);
  return Error::kOk;
}

bool OverlayDevice::Serve(IoRequest* request, Error* error) {
  *error = CheckRequest(*this, *request);
  if (*error != Error::kOk) return true;
  if (request->op == IoOp::kRead) return false;
  if (request->op == IoOp::kWrite) {
    uint64_t at = request->offset;
    for (std::span<std::byte> buffer : request->buffers) {
      Store(at, buffer);
      at += buffer.size();
    }
  }
  // A flush has nothing to make durable, and a discarded range may read as what it was.
  return true;
}

void OverlayDevice::Store(uint64_t offset, std::span<const std::byte> data) {
  MutexLock lock(&mutex_);
  for (uint64_t done = 0; done < data.size(); done += kSectorSize) {
    const uint64_t sector = (offset + done) / kSectorSize;
    std::unique_ptr<Block>& block = blocks_[sector / kSectorsPerBlock];
    if (block == nullptr) block = std::make_unique<Block>();
    const uint64_t index = sector % kSectorsPerBlock;
    std::memcpy(block->bytes.data() + index * kSectorSize, data.data() + done, kSectorSize);
    block->written |= static_cast<uint8_t>(1u << index);
  }
}

void OverlayDevice::Patch(uint64_t offset, std::span<std::byte> data) const {
  ReaderMutexLock lock(&mutex_);
  if (blocks_.empty()) return;
  for (uint64_t done = 0; done < data.size(); done += kSectorSize) {
    const uint64_t sector = (offset + done) / kSectorSize;
    const auto found = blocks_.find(sector / kSectorsPerBlock);
    if (found == blocks_.end()) continue;
    const uint64_t index = sector % kSectorsPerBlock;
    if ((found->second->written >> index & 1) == 0) continue;
    std::memcpy(data.data() + done, found->second->bytes.data() + index * kSectorSize, kSectorSize);
  }
}

uint64_t OverlayDevice::memory() const {
  ReaderMutexLock lock(&mutex_);
  return blocks_.size() * kBlockSize;
}

}  // namespace sluice
