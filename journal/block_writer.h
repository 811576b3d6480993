// SPDX-License-Identifier: Apache-2.0
//
// Writes block copies to their home places, many in flight. Shared by checkpoint and replay.
#ifndef SLUICE_JOURNAL_BLOCK_WRITER_H_
#define SLUICE_JOURNAL_BLOCK_WRITER_H_

#include <cstddef>
#include <deque>
#include <span>

#include "base/error.h"
#include "base/units.h"
#include "block/device.h"

namespace sluice {

struct HomeBlock {
  BlockNumber home;
  std::byte* copy;  // kBlockSize bytes, kept alive by the caller
};

// The writes of one batch. Used by one thread, but for MarkUrgent.
class HomeWrites {
 public:
  // `blocks` ascending by home; neighbours on the device go out in one request.
  HomeWrites(std::span<const HomeBlock> blocks, IoKind kind);
  ~HomeWrites();  // precondition: not submitted, or waited for

  // Submits all and waits. kOk only if every one was written; the first error otherwise. Does not
  // flush. Once.
  Error Write(Device* device);
  // Somebody waits for background writes (J3). At any time of the object's life, on any thread;
  // who calls it calls Device::Promote afterwards.
  void MarkUrgent();

 private:
  class Latch;
  class Request;
  std::deque<Request> requests_;  // their addresses must not move
};

// Both in one.
Error WriteHomeBlocks(Device* device, std::span<const HomeBlock> blocks, IoKind kind);

}  // namespace sluice

#endif  // SLUICE_JOURNAL_BLOCK_WRITER_H_
