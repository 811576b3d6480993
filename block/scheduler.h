// SPDX-License-Identifier: Apache-2.0
//
// A Device before a Device: everything that the filesystem asks of its medium goes through here, so
// that nobody who waits stands behind a crowd that nobody waits for.
//
// Two classes. Foreground (IoKind::kRead, kSyncWrite, kJournal): somebody waits; handed to the
// device at once. Background (kBackgroundWrite, kDiscard): few and small in the device, fewer still
// while a foreground request is there, but never none: background work always goes on. The rest
// queues here, in the order of arrival.
//
// Promotion (J3): who starts to wait for a background request that may still be queued sets its
// `urgent` mark and calls Promote(). From then on it is foreground. jbd2 and the block layer of
// Linux lack this: a commit there can wait for a page that the flusher queued long ago behind a
// throttled writer's (the first of the two reports that sluicefs grew from).
#ifndef SLUICE_BLOCK_SCHEDULER_H_
#define SLUICE_BLOCK_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "block/device.h"

namespace sluice {

struct SchedulerOptions {
  // Background requests and bytes that the device has at once; one request always may go.
  // While it has nothing else to do: enough to keep an SSD busy.
  unsigned alone_requests = 32;
  uint64_t alone_bytes = 4 << 20;
  // While somebody waits for it.
  unsigned beside_requests = 2;
  uint64_t beside_bytes = 256 << 10;
};

// Thread-safe. `device` outlives the scheduler. Adds no wait of its own to Submit; Done is called
// where the device calls it.
class Scheduler final : public Device {
 public:
  explicit Scheduler(Device* device, const SchedulerOptions& options = {});
  // Precondition: nothing is in flight.
  ~Scheduler() override;

  uint64_t size() const override { return device_->size(); }
  bool read_only() const override { return device_->read_only(); }
  // While a request is in flight its `buffers` are lent out (empty); Done finds them again.
  void Submit(std::span<IoRequest* const> requests) override;
  void Promote() override;

  Error Read(uint64_t offset, std::span<std::byte> data, IoKind kind = IoKind::kRead) override;
  Error WriteGather(uint64_t offset, std::span<const std::span<const std::byte>> pieces,
                    IoKind kind = IoKind::kSyncWrite) override;
  Error Flush(IoKind kind = IoKind::kJournal) override;

  struct Stats {
    uint64_t queued, max_queued;      // background requests held back: now, and the most so far
    uint64_t held_back;               // background requests that had to queue
    uint64_t promoted;                // of these, how many went out because somebody waited
    unsigned foreground, background;  // in the device now
  };
  Stats stats() const;

 private:
  class Passage;

  void FinishForeground();
  void Finished(const Passage& passage);
  bool RoomLocked(const Passage& next) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes out of the queue what may go now.
  void TakeLocked(std::vector<IoRequest*>* ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DispatchLocked(Passage* passage, std::vector<IoRequest*>* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SubmitReady(const std::vector<IoRequest*>& ready);

  Device* const device_;
  const SchedulerOptions options_;
  mutable Mutex mutex_;  // a leaf: nothing is submitted or completed under it
  std::deque<Passage*> queue_ ABSL_GUARDED_BY(mutex_);
  unsigned foreground_ ABSL_GUARDED_BY(mutex_) = 0;  // in the device
  unsigned background_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t background_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t max_queued_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t held_back_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t promoted_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice

#endif  // SLUICE_BLOCK_SCHEDULER_H_
