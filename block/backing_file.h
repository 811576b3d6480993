// SPDX-License-Identifier: Apache-2.0
//
// The image as the host knows it: a regular file or a block device, opened for direct I/O where
// the host allows it and buffered where it does not, with whole transfers (short ones are
// continued, interrupted ones repeated) and a flush that never forgets a failure. FileDevice and
// UringDevice stand on it.
//
// Direct and buffered. Direct I/O wants offset, length and memory aligned to what the host's
// device says. Memory that is not is copied through aligned memory; a range that is not (a
// 512-byte superblock write on a 4 KiB disk) goes through a second, buffered descriptor of the
// same file, which the kernel keeps coherent with direct I/O.
//
// Flush. After a failed fdatasync the kernel marks the lost pages clean and a second fdatasync
// succeeds, so repeating it would turn a loss into a success. Therefore the first failure sticks:
// every later flush fails too, until the file is opened anew.
#ifndef SLUICE_BLOCK_BACKING_FILE_H_
#define SLUICE_BLOCK_BACKING_FILE_H_

#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/container/inlined_vector.h"
#include "base/aligned_buffer.h"
#include "base/error.h"
#include "block/device.h"

namespace sluice {

// The meaning of an errno of the host's for an open, a resize and the like.
Error ErrorFromErrno(int number);
// The same for a transfer: kNoSpace when the host is full (a sparse image grows as it is written),
// else kIo.
Error TransferError(int number);

// Thread-safe.
class BackingFile {
 public:
  struct Options {
    bool read_only = false;
    bool direct = true;
  };

  // kNotFound, kAccess, kReadOnly, kIsDirectory, ...; kInvalid if `path` is neither a regular
  // file nor a block device.
  static Result<std::unique_ptr<BackingFile>> Open(const std::string& path, const Options& options);
  ~BackingFile();
  BackingFile(const BackingFile&) = delete;
  BackingFile& operator=(const BackingFile&) = delete;

  uint64_t size() const { return size_; }  // bytes, rounded down to whole sectors
  bool read_only() const { return read_only_; }
  bool direct() const { return direct_fd_ >= 0; }
  bool is_block_device() const { return is_block_device_; }

  // Transfers all of `pieces` from or to `offset`, on this thread. Range and sector alignment have
  // been checked. A read beyond the end of a file that shrank is kIo.
  Error Transfer(IoOp op, uint64_t offset, std::span<const iovec> pieces);
  Error Flush();
  Error Discard(uint64_t offset, uint64_t length);

  // For those who do the transfer themselves: whether a range may go through direct_fd(), and
  // whether these pieces may without a bounce buffer.
  bool MayBeDirect(uint64_t offset, uint64_t length) const;
  bool MemoryAligned(std::span<const iovec> pieces) const;
  int direct_fd() const { return direct_fd_; }
  int buffered_fd() const { return buffered_fd_; }
  // Files fdatasync's result (an errno, 0 for success) and returns what the flush is to answer.
  Error FlushResult(int number);
  bool flush_failed() const { return flush_failed_.load(std::memory_order_acquire); }

 private:
  BackingFile() = default;
  Error Inspect();
  void OpenDirect(const std::string& path);

  int buffered_fd_ = -1;
  int direct_fd_ = -1;  // -1: the host refuses O_DIRECT, or the caller does not want it
  uint64_t size_ = 0;
  uint32_t memory_alignment_ = kSectorSize;
  uint32_t range_alignment_ = kSectorSize;
  bool read_only_ = false;
  bool is_block_device_ = false;
  std::atomic<bool> flush_failed_{false};
};

// Aligned memory that stands in for pieces that direct I/O cannot use. Movable.
class BounceBuffer {
 public:
  BounceBuffer() = default;
  // For a write the bytes are copied in now; for a read CopyOut brings them back.
  BounceBuffer(IoOp op, uint64_t length, std::span<const iovec> pieces);
  void CopyOut(std::span<const iovec> pieces) const;
  iovec piece() { return {memory_.data(), memory_.size()}; }
  explicit operator bool() const { return memory_.size() != 0; }

 private:
  AlignedBuffer memory_;
};

// What is left of a list of pieces while a transfer advances. Keeps its own copy of the list.
class PieceCursor {
 public:
  explicit PieceCursor(std::span<const iovec> pieces) : pieces_(pieces.begin(), pieces.end()) {
    Advance(0);
  }
  bool done() const { return next_ == pieces_.size(); }
  iovec* data() { return pieces_.data() + next_; }
  size_t left() const { return pieces_.size() - next_; }
  int count() const;  // left, but at most what one system call takes
  void Advance(uint64_t bytes);

 private:
  absl::InlinedVector<iovec, 4> pieces_;
  size_t next_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_BLOCK_BACKING_FILE_H_
