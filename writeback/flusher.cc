// SPDX-License-Identifier: Apache-2.0
#include "writeback/flusher.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace sluice {
namespace {

// Pages written of one file before the next file has its turn: 4 MiB, as the kernel's smallest
// writeback chunk.
constexpr size_t kChunkPages = 1024;

}  // namespace

struct Flusher::Impl {
  Impl(const FlusherOptions& options, MemoryBudget* budget) : options(options), budget(budget) {}

  void Run();
  // Targets that are due: dirty since before `now - expire`, or all.
  std::vector<std::shared_ptr<FlushTarget>> Due(Nanoseconds now, bool all);
  void WritePass(const std::vector<std::shared_ptr<FlushTarget>>& targets, IoKind kind);
  void ForgetClean();

  struct Entry {
    std::shared_ptr<FlushTarget> target;
    Nanoseconds since = 0;
  };

  const FlusherOptions options;
  MemoryBudget* const budget;
  Mutex mutex;
  CondVar wake;
  absl::flat_hash_map<FlushTarget*, Entry> dirty ABSL_GUARDED_BY(mutex);
  bool pressure ABSL_GUARDED_BY(mutex) = false;
  bool stop ABSL_GUARDED_BY(mutex) = false;
  std::atomic<bool> writes{true};
  std::thread thread;
};

Flusher::Flusher(const FlusherOptions& options, MemoryBudget* budget)
    : impl_(std::make_unique<Impl>(options, budget)) {
  Impl* impl = impl_.get();
  budget->SetOnPressure([impl] {
    MutexLock lock(&impl->mutex);
    if (impl->pressure) return;
    impl->pressure = true;
    impl->wake.SignalAll();
  });
  if (!options.manual) impl->thread = std::thread([impl] { impl->Run(); });
}

Flusher::~Flusher() { Stop(); }

void Flusher::Stop() {
  {
    MutexLock lock(&impl_->mutex);
    impl_->stop = true;
    impl_->wake.SignalAll();
  }
  if (impl_->thread.joinable()) impl_->thread.join();
}

void Flusher::StopWriting() { impl_->writes.store(false); }

void Flusher::Add(std::shared_ptr<FlushTarget> target) {
  const Nanoseconds now = impl_->options.clock->MonotonicTime();
  MutexLock lock(&impl_->mutex);
  FlushTarget* key = target.get();
  impl_->dirty.try_emplace(key, Impl::Entry{std::move(target), now});
}

std::vector<std::shared_ptr<FlushTarget>> Flusher::Impl::Due(Nanoseconds now, bool all) {
  std::vector<std::pair<Nanoseconds, std::shared_ptr<FlushTarget>>> due;
  {
    MutexLock lock(&mutex);
    for (const auto& [key, entry] : dirty) {
      if (all || now - entry.since >= options.expire) due.emplace_back(entry.since, entry.target);
    }
  }
  std::sort(due.begin(), due.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::shared_ptr<FlushTarget>> targets;
  targets.reserve(due.size());
  for (auto& [since, target] : due) targets.push_back(std::move(target));
  return targets;
}

// Round robin in chunks, oldest first; the waits bound what is in flight. A file whose writes fail
// has its next turn in the next pass: its pages stay dirty, so this one would never end.
void Flusher::Impl::WritePass(const std::vector<std::shared_ptr<FlushTarget>>& targets,
                              IoKind kind) {
  struct Turn {
    FlushTarget* target;
    uint64_t errors;
    bool more;
  };
  std::vector<Turn> todo;
  if (!writes.load()) return;
  for (const std::shared_ptr<FlushTarget>& target : targets) {
    todo.push_back({target.get(), target->WriteErrors(), false});
  }
  while (!todo.empty()) {
    for (Turn& turn : todo) {
      // Only who had a whole chunk may have more.
      turn.more = turn.target->StartWriteback(kChunkPages, kind) == kChunkPages;
    }
    for (const Turn& turn : todo) turn.target->WaitWriteback(kind);
    std::erase_if(todo, [](const Turn& turn) {
      return !turn.more || turn.target->WriteErrors() != turn.errors;
    });
  }
}

void Flusher::Impl::ForgetClean() {
  std::vector<Entry> clean;  // destroyed without the mutex: it may be the last reference
  MutexLock lock(&mutex);
  for (auto entry = dirty.begin(); entry != dirty.end();) {
    auto current = entry++;
    if (current->second.target->DirtyPages() > 0) continue;
    clean.push_back(std::move(current->second));
    dirty.erase(current);
  }
}

void Flusher::Impl::Run() {
  for (;;) {
    bool all = false;
    {
      MutexLock lock(&mutex);
      if (!pressure && !stop) {
        wake.WaitWithTimeout(&mutex, absl::Nanoseconds(options.wake_interval));
      }
      if (stop) return;
      all = std::exchange(pressure, false);
    }
    WritePass(Due(options.clock->MonotonicTime(), all), IoKind::kBackgroundWrite);
    ForgetClean();
    budget->PassEnded();
  }
}

void Flusher::FlushAll() {
  impl_->WritePass(impl_->Due(0, true), IoKind::kSyncWrite);
  impl_->ForgetClean();
  impl_->budget->PassEnded();
}

}  // namespace sluice
