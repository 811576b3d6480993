// SPDX-License-Identifier: Apache-2.0
//
// absl::Mutex under names of our own, so that thread-sanitizer builds can see it: Debian's abseil
// is not instrumented, so there the same interface stands on std::shared_mutex, whose pthread
// calls the sanitizer intercepts. The annotations are checked by clang as errors.
//
// Lock order of the whole program (docs/DESIGN.md): namespace and inode -> range -> handle ->
// extent tree -> group -> buffer.
#ifndef SLUICE_BASE_MUTEX_H_
#define SLUICE_BASE_MUTEX_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#if defined(__SANITIZE_THREAD__)
#define SLUICE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLUICE_TSAN 1
#endif
#endif

#ifdef SLUICE_TSAN
#include <condition_variable>
#include <shared_mutex>
#endif

namespace sluice {

class CondVar;

// A reader-writer mutex; exclusive by default.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

#ifdef SLUICE_TSAN
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }
  void ReaderLock() ABSL_SHARED_LOCK_FUNCTION() { mutex_.lock_shared(); }
  void ReaderUnlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock_shared(); }
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}
  void AssertReaderHeld() const ABSL_ASSERT_SHARED_LOCK() {}
#else
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.Lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.TryLock(); }
  void ReaderLock() ABSL_SHARED_LOCK_FUNCTION() { mutex_.ReaderLock(); }
  void ReaderUnlock() ABSL_UNLOCK_FUNCTION() { mutex_.ReaderUnlock(); }
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() { mutex_.AssertHeld(); }
  void AssertReaderHeld() const ABSL_ASSERT_SHARED_LOCK() { mutex_.AssertReaderHeld(); }
#endif

 private:
  friend class CondVar;
#ifdef SLUICE_TSAN
  std::shared_mutex mutex_;
#else
  absl::Mutex mutex_;
#endif
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

class ABSL_SCOPED_LOCKABLE ReaderMutexLock {
 public:
  explicit ReaderMutexLock(Mutex* mutex) ABSL_SHARED_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->ReaderLock();
  }
  ~ReaderMutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->ReaderUnlock(); }
  ReaderMutexLock(const ReaderMutexLock&) = delete;
  ReaderMutexLock& operator=(const ReaderMutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// Waits release `mutex` (held exclusively) and take it again before they return. Wake-ups may be
// spurious: wait in a loop.
class CondVar {
 public:
#ifdef SLUICE_TSAN
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { cond_.wait(mutex->mutex_); }
  // True on timeout.
  bool WaitWithTimeout(Mutex* mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return cond_.wait_for(mutex->mutex_, absl::ToChronoNanoseconds(timeout)) ==
           std::cv_status::timeout;
  }
  void Signal() { cond_.notify_one(); }
  void SignalAll() { cond_.notify_all(); }

 private:
  std::condition_variable_any cond_;
#else
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { cond_.Wait(&mutex->mutex_); }
  // True on timeout.
  bool WaitWithTimeout(Mutex* mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return cond_.WaitWithTimeout(&mutex->mutex_, timeout);
  }
  void Signal() { cond_.Signal(); }
  void SignalAll() { cond_.SignalAll(); }

 private:
  absl::CondVar cond_;
#endif
};

// Abseil as Debian builds it records the order of all lock acquisitions in a graph. Tests want that
// (their main makes it abort on a cycle); a program that serves users pays up to a third of its
// time for it, and turns it off first thing in main.
inline void TurnOffDeadlockDetector() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace sluice

#endif  // SLUICE_BASE_MUTEX_H_
