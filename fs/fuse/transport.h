// SPDX-License-Identifier: Apache-2.0
//
// How requests come from the kernel and replies go back. /dev/fuse is the first; FUSE over io_uring
// will be another, and no operation will notice.
#ifndef SLUICE_FS_FUSE_TRANSPORT_H_
#define SLUICE_FS_FUSE_TRANSPORT_H_

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>

namespace sluice {

// Thread-safe.
class Transport {
 public:
  virtual ~Transport() = default;

  // Blocks for one request and puts it, header first, at `data`. Its size; 0 for "ask again"; a
  // negative errno at the connection's end (-ENODEV: unmounted).
  virtual ssize_t Receive(std::byte* data, size_t capacity) = 0;

  // Sends one reply: a fuse_out_header and its payload. Returns as writev(2) does, with a negative
  // errno on failure.
  virtual ssize_t Reply(const iovec* pieces, int count) = 0;
};

// Over a connected /dev/fuse descriptor, which stays the caller's.
class DevFuseTransport : public Transport {
 public:
  explicit DevFuseTransport(int fd) : fd_(fd) {}
  ssize_t Receive(std::byte* data, size_t capacity) override;
  ssize_t Reply(const iovec* pieces, int count) override;

 private:
  const int fd_;
};

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_TRANSPORT_H_
