// SPDX-License-Identifier: Apache-2.0
//
// See transport.h.
#include "fs/fuse/transport.h"

#include <unistd.h>

#include <cerrno>

namespace sluice {

ssize_t DevFuseTransport::Receive(std::byte* data, size_t capacity) {
  const ssize_t size = read(fd_, data, capacity);
  if (size >= 0) return size;
  // ENOENT: the request was interrupted before we could read it.
  if (errno == EINTR || errno == EAGAIN || errno == ENOENT) return 0;
  return -errno;
}

ssize_t DevFuseTransport::Reply(const iovec* pieces, int count) {
  const ssize_t size = writev(fd_, pieces, count);
  return size >= 0 ? size : -errno;
}

}  // namespace sluice
