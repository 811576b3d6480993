// SPDX-License-Identifier: Apache-2.0
#include "block/joined_device.h"

#include <atomic>
#include <numeric>

#include "block/inline_completion.h"

namespace sluice {

// A request at its place on one of the devices, on behalf of `request`; deletes itself.
class JoinedDevice::Moved final : public IoRequest {
 public:
  Moved(IoRequest* request, uint64_t place) : request_(request) {
    op = request->op;
    kind = request->kind;
    flow = request->flow;
    offset = place;
    length = request->length;
    buffers = request->buffers;
  }
  void Done(Error error) override {
    IoRequest* const request = request_;
    delete this;
    request->Done(error);
  }
  bool IsUrgent() const override { return request_->IsUrgent(); }

 private:
  IoRequest* const request_;
};

// A flush of each device; deletes itself when both are done.
class JoinedDevice::BothFlushes {
 public:
  explicit BothFlushes(IoRequest* request) : request_(request) {
    for (Half& half : halves_) {
      half.both = this;
      half.op = IoOp::kFlush;
      half.kind = request->kind;
      half.flow = request->flow;
    }
  }
  void Submit(Device* first, Device* second) {
    // Neither may find this gone while the other has not been submitted: the count sees to it.
    IoRequest* const one = &halves_[0];
    IoRequest* const other = &halves_[1];
    first->Submit({&one, 1});
    second->Submit({&other, 1});
  }

 private:
  struct Half final : public IoRequest {
    void Done(Error error) override { both->HalfDone(error); }
    BothFlushes* both = nullptr;
  };

  void HalfDone(Error error) {
    if (error != Error::kOk) error_.store(error);
    if (left_.fetch_sub(1) != 1) return;
    IoRequest* const request = request_;
    const Error result = error_.load();
    delete this;
    request->Done(result);
  }

  IoRequest* const request_;
  std::atomic<int> left_{2};
  std::atomic<Error> error_{Error::kOk};
  Half halves_[2];
};

Result<JoinedDevice::Place> JoinedDevice::Find(uint64_t offset, uint64_t length) const {
  if (offset >= first_bytes_) return Place{second_, offset - first_bytes_ + second_offset_};
  if (length > first_bytes_ - offset) return Error::kInvalid;
  return Place{first_, offset};
}

void JoinedDevice::Submit(std::span<IoRequest* const> requests) {
  for (IoRequest* request : requests) {
    const Error error = CheckRequest(*this, *request);
    if (error != Error::kOk) {
      CompleteInline(request, error);
      continue;
    }
    if (request->op == IoOp::kFlush) {
      (new BothFlushes(request))->Submit(first_, second_);
      continue;
    }
    const Result<Place> place = Find(request->offset, request->length);
    if (!place.ok()) {
      CompleteInline(request, place.error());
      continue;
    }
    IoRequest* const moved = new Moved(request, place->offset);
    place->device->Submit({&moved, 1});
  }
}

void JoinedDevice::Promote() {
  first_->Promote();
  second_->Promote();
}

Error JoinedDevice::Read(uint64_t offset, std::span<std::byte> data, IoKind kind) {
  RETURN_IF_ERROR(CheckRange(*this, IoOp::kRead, offset, data.size()));
  ASSIGN_OR_RETURN(const Place place, Find(offset, data.size()));
  return place.device->Read(place.offset, data, kind);
}

Error JoinedDevice::Write(uint64_t offset, std::span<const std::byte> data, IoKind kind) {
  RETURN_IF_ERROR(CheckRange(*this, IoOp::kWrite, offset, data.size()));
  ASSIGN_OR_RETURN(const Place place, Find(offset, data.size()));
  return place.device->Write(place.offset, data, kind);
}

Error JoinedDevice::WriteGather(uint64_t offset, std::span<const std::span<const std::byte>> pieces,
                                IoKind kind) {
  const uint64_t length =
      std::accumulate(pieces.begin(), pieces.end(), uint64_t{0},
                      [](uint64_t sum, const auto& piece) { return sum + piece.size(); });
  RETURN_IF_ERROR(CheckRange(*this, IoOp::kWrite, offset, length));
  ASSIGN_OR_RETURN(const Place place, Find(offset, length));
  return place.device->WriteGather(place.offset, pieces, kind);
}

Error JoinedDevice::Flush(IoKind kind) {
  RETURN_IF_ERROR(first_->Flush(kind));
  return second_->Flush(kind);
}

Error JoinedDevice::Discard(uint64_t offset, uint64_t length) {
  RETURN_IF_ERROR(CheckRange(*this, IoOp::kDiscard, offset, length));
  ASSIGN_OR_RETURN(const Place place, Find(offset, length));
  return place.device->Discard(place.offset, length);
}

}  // namespace sluice
