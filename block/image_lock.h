// SPDX-License-Identifier: Apache-2.0
//
// One writer per image: the lock that mount, mkfs and fsck take before they touch an image.
//
// The lock is flock(2) on the backing file. A loop device is resolved to the file behind it, so the
// image and a loop device over it are one lock; any other block device is locked at its node. flock
// belongs to the open file description: it ends with the process (kill -9 included), and
// /proc/locks names the process that took it. So take it *after* daemonizing.
//
// A holder that is on its way out says so with MarkUnmounting(): it adds a read lock (fcntl, open
// file description) on one byte far beyond any file's end. Who finds the flock taken waits only
// while that mark is there; without the mark it is refused, with the holder's pid, after a short
// grace, since the daemon learns of an unmount a little later than the person who typed it.
#ifndef SLUICE_BLOCK_IMAGE_LOCK_H_
#define SLUICE_BLOCK_IMAGE_LOCK_H_

#include <sys/types.h>

#include <optional>
#include <string>

namespace sluice {

enum class ImageLockMode {
  kExclusive,  // mount, mkfs, repairing fsck
  kShared,     // tools that only read: they exclude writers, not each other
};

// What a refused Acquire does about a holder that is not (yet) marked as unmounting.
enum class ImageLockWait {
  kGrace,      // looks again for about a second
  kNoWaiting,  // refuses at once, even while the holder is unmounting
};

// Owns the lock and the descriptor it hangs on. Movable; thread-compatible.
class ImageLock {
 public:
  ImageLock() = default;
  ImageLock(ImageLock&& other) noexcept;
  ImageLock& operator=(ImageLock&& other) noexcept;
  ImageLock(const ImageLock&) = delete;
  ImageLock& operator=(const ImageLock&) = delete;
  ~ImageLock() { Release(); }

  // Locks the image at `path` (file, loop device or other block device). Blocks only while the
  // holder is unmounting. On failure returns nullopt and sets `why` to one line for a person, for
  // example "disk.img is in use by process 4711 (sluicefs)".
  [[nodiscard]] static std::optional<ImageLock> Acquire(const std::string& path, ImageLockMode mode,
                                                        std::string* why,
                                                        ImageLockWait wait = ImageLockWait::kGrace);

  bool held() const { return fd_ >= 0; }

  // Tells those who want the image that it will be free soon. Call when the mount is gone.
  void MarkUnmounting();

  // Idempotent.
  void Release();

 private:
  explicit ImageLock(int fd) : fd_(fd) {}

  int fd_ = -1;
};

// The process that holds the image's lock, as /proc/locks tells; nullopt when nobody does or the
// holder is not visible from here.
std::optional<pid_t> ImageLockHolder(const std::string& path);

// Whether the image's holder has called MarkUnmounting(). For umount helpers.
bool ImageHolderIsUnmounting(const std::string& path);

// The file behind `path` when that is a loop device whose backing file can be found, else `path`.
std::string ResolveBackingFile(const std::string& path);

}  // namespace sluice

#endif  // SLUICE_BLOCK_IMAGE_LOCK_H_
