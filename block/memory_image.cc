// SPDX-License-Identifier: Apache-2.0
#include "block/memory_image.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace sluice {
namespace {

// Calls `f(block, offset in block, offset in range, length)` for each block the range touches.
template <typename F>
void ForEachBlock(uint64_t offset, uint64_t length, F f) {
  for (uint64_t done = 0; done < length;) {
    const uint64_t at = offset + done;
    const uint64_t within = at % kBlockSize;
    const uint64_t piece = std::min<uint64_t>(length - done, kBlockSize - within);
    f(at / kBlockSize, within, done, piece);
    done += piece;
  }
}

}  // namespace

MemoryImage MemoryImage::Share() {
  for (auto& [block, slot] : blocks_) slot.owned = false;
  return *this;
}

const MemoryImage::Block* MemoryImage::Find(BlockNumber block) const {
  for (const MemoryImage* image = this; image != nullptr; image = image->parent_.get()) {
    const auto found = image->blocks_.find(block);
    if (found != image->blocks_.end()) return found->second.bytes.get();
  }
  return nullptr;
}

void MemoryImage::Read(uint64_t offset, std::span<std::byte> data) const {
  SLUICE_CHECK(offset <= size_ && data.size() <= size_ - offset);
  ForEachBlock(offset, data.size(), [&](uint64_t block, size_t within, size_t at, size_t length) {
    const Block* bytes = Find(block);
    if (bytes != nullptr) {
      std::memcpy(data.data() + at, bytes->data() + within, length);
    } else {
      std::memset(data.data() + at, static_cast<int>(fill_), length);
    }
  });
}

void MemoryImage::Write(uint64_t offset, std::span<const std::byte> data) {
  SLUICE_CHECK(offset <= size_ && data.size() <= size_ - offset);
  ForEachBlock(offset, data.size(), [&](uint64_t block, size_t within, size_t at, size_t length) {
    std::memcpy(Writable(block) + within, data.data() + at, length);
  });
}

void MemoryImage::Erase(uint64_t offset, uint64_t length) {
  SLUICE_CHECK(offset <= size_ && length <= size_ - offset);
  ForEachBlock(offset, length, [&](uint64_t block, size_t within, size_t, size_t piece) {
    if (piece == kBlockSize && parent_ == nullptr) {
      blocks_.erase(block);
    } else {
      std::memset(Writable(block) + within, static_cast<int>(fill_), piece);
    }
  });
}

void MemoryImage::Adopt(BlockNumber block, std::shared_ptr<const Block> bytes) {
  SLUICE_CHECK(block < BlocksForBytes(size_));
  blocks_[block] = Slot{std::move(bytes), false};
}

std::byte* MemoryImage::Writable(BlockNumber block) {
  Slot& slot = blocks_[block];
  if (!slot.owned) {
    // A slot just made is empty, so the parent is asked; otherwise its own shared block is copied.
    const Block* old = slot.bytes.get();
    if (old == nullptr && parent_ != nullptr) old = parent_->Find(block);
    auto copy = std::make_shared<Block>();
    if (old != nullptr) {
      *copy = *old;
    } else {
      copy->fill(fill_);
    }
    slot.bytes = std::move(copy);
    slot.owned = true;
  }
  // Owned blocks were made above, as mutable ones.
  return const_cast<std::byte*>(slot.bytes->data());
}

}  // namespace sluice
