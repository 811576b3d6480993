// SPDX-License-Identifier: Apache-2.0
#include "block/backing_file.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace sluice {
namespace {

// Used where the kernel does not say (before Linux 6.1, and on hosts without an answer): a page
// satisfies every common device.
constexpr uint32_t kSafeAlignment = kBlockSize;

// Bytes transferred, or minus an errno; 0 is the end of the file.
ssize_t TransferSome(IoOp op, int fd, const iovec* pieces, int count, uint64_t offset) {
  for (;;) {
    const ssize_t n = op == IoOp::kRead ? ::preadv(fd, pieces, count, static_cast<off_t>(offset))
                                        : ::pwritev(fd, pieces, count, static_cast<off_t>(offset));
    if (n >= 0) return n;
    if (errno != EINTR && errno != EAGAIN) return -errno;
  }
}

Error TransferAll(IoOp op, int fd, uint64_t offset, std::span<const iovec> pieces) {
  PieceCursor cursor(pieces);
  while (!cursor.done()) {
    const ssize_t n = TransferSome(op, fd, cursor.data(), cursor.count(), offset);
    if (n < 0) return TransferError(static_cast<int>(-n));
    if (n == 0) return Error::kIo;
    offset += static_cast<uint64_t>(n);
    cursor.Advance(static_cast<uint64_t>(n));
  }
  return Error::kOk;
}

uint64_t TotalLength(std::span<const iovec> pieces) {
  uint64_t sum = 0;
  for (const iovec& piece : pieces) sum += piece.iov_len;
  return sum;
}

}  // namespace

Error ErrorFromErrno(int number) {
  switch (number) {
    case 0:
      return Error::kOk;
    case ENOENT:
      return Error::kNotFound;
    case EEXIST:
      return Error::kExists;
    case ENOTDIR:
      return Error::kNotDirectory;
    case EISDIR:
      return Error::kIsDirectory;
    case EACCES:
      return Error::kAccess;
    case EPERM:
      return Error::kNotPermitted;
    case EROFS:
      return Error::kReadOnly;
    case EBUSY:
    case ETXTBSY:
      return Error::kBusy;
    case ELOOP:
      return Error::kLoop;
    case ENAMETOOLONG:
      return Error::kNameTooLong;
    case EFBIG:
    case EOVERFLOW:
      return Error::kFileTooLarge;
    case ENOSPC:
      return Error::kNoSpace;
    case EDQUOT:
      return Error::kQuota;
    case EINVAL:
      return Error::kInvalid;
    case ENOMEM:
      return Error::kNoMemory;
    case ENXIO:
    case ENODEV:
      return Error::kNoDevice;
    case EOPNOTSUPP:
      return Error::kNotSupported;
    case ENOSYS:
    case ENOTTY:
      return Error::kNotImplemented;
    default:
      return Error::kIo;
  }
}

Error TransferError(int number) {
  return number == ENOSPC || number == EDQUOT ? Error::kNoSpace : Error::kIo;
}

Result<std::unique_ptr<BackingFile>> BackingFile::Open(const std::string& path,
                                                       const Options& options) {
  std::unique_ptr<BackingFile> file(new BackingFile);
  file->read_only_ = options.read_only;
  file->buffered_fd_ = ::open(path.c_str(), (options.read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
  if (file->buffered_fd_ < 0) return ErrorFromErrno(errno);
  RETURN_IF_ERROR(file->Inspect());
  if (options.direct) file->OpenDirect(path);
  return file;
}

BackingFile::~BackingFile() {
  if (direct_fd_ >= 0) ::close(direct_fd_);
  if (buffered_fd_ >= 0) ::close(buffered_fd_);
}

Error BackingFile::Inspect() {
  struct stat status;
  if (::fstat(buffered_fd_, &status) != 0) return ErrorFromErrno(errno);
  if (S_ISBLK(status.st_mode)) {
    is_block_device_ = true;
    if (::ioctl(buffered_fd_, BLKGETSIZE64, &size_) != 0) return ErrorFromErrno(errno);
  } else if (S_ISREG(status.st_mode)) {
    size_ = static_cast<uint64_t>(status.st_size);
  } else {
    return S_ISDIR(status.st_mode) ? Error::kIsDirectory : Error::kInvalid;
  }
  size_ -= size_ % kSectorSize;
  return Error::kOk;
}

void BackingFile::OpenDirect(const std::string& path) {
  const int fd = ::open(path.c_str(), (read_only_ ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_DIRECT);
  if (fd < 0) return;
  memory_alignment_ = range_alignment_ = kSafeAlignment;
  struct statx status;
  struct stat buffered;
  if (::fstat(buffered_fd_, &buffered) != 0 ||
      ::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN | STATX_INO, &status) != 0 ||
      status.stx_ino != buffered.st_ino) {
    ::close(fd);  // the path has changed under us: one descriptor is enough
    return;
  }
  if ((status.stx_mask & STATX_DIOALIGN) != 0) {
    if (status.stx_dio_mem_align == 0 || status.stx_dio_offset_align == 0) {
      ::close(fd);  // the host says that it has no direct I/O for this file
      return;
    }
    memory_alignment_ = status.stx_dio_mem_align;
    range_alignment_ = status.stx_dio_offset_align;
  }
  // Some hosts accept the flag and refuse the transfer.
  AlignedBuffer probe(kSafeAlignment);
  const iovec piece = {probe.data(), probe.size()};
  if (TransferSome(IoOp::kRead, fd, &piece, 1, 0) < 0) {
    ::close(fd);
    return;
  }
  direct_fd_ = fd;
}

bool BackingFile::MayBeDirect(uint64_t offset, uint64_t length) const {
  return direct_fd_ >= 0 && (offset | length) % range_alignment_ == 0;
}

bool BackingFile::MemoryAligned(std::span<const iovec> pieces) const {
  return std::all_of(pieces.begin(), pieces.end(), [this](const iovec& piece) {
    return reinterpret_cast<uintptr_t>(piece.iov_base) % memory_alignment_ == 0 &&
           piece.iov_len % range_alignment_ == 0;
  });
}

Error BackingFile::Transfer(IoOp op, uint64_t offset, std::span<const iovec> pieces) {
  const uint64_t length = TotalLength(pieces);
  if (!MayBeDirect(offset, length)) return TransferAll(op, buffered_fd_, offset, pieces);
  if (MemoryAligned(pieces)) return TransferAll(op, direct_fd_, offset, pieces);
  BounceBuffer bounce(op, length, pieces);
  const iovec piece = bounce.piece();
  RETURN_IF_ERROR(TransferAll(op, direct_fd_, offset, {&piece, 1}));
  if (op == IoOp::kRead) bounce.CopyOut(pieces);
  return Error::kOk;
}

Error BackingFile::Flush() {
  if (read_only_) return Error::kOk;
  if (flush_failed()) return Error::kIo;
  int number = 0;
  do {
    number = ::fdatasync(buffered_fd_) == 0 ? 0 : errno;
  } while (number == EINTR);
  return FlushResult(number);
}

Error BackingFile::FlushResult(int number) {
  if (number != 0 && !flush_failed_.exchange(true, std::memory_order_acq_rel)) {
    LogError("flush of the image failed: ", std::strerror(number),
             "; writes may be lost, no later flush can succeed until it is opened again");
  }
  // Also for a success that was running while another flush failed: whose writes were lost is
  // not known.
  return flush_failed() ? Error::kIo : Error::kOk;
}

Error BackingFile::Discard(uint64_t offset, uint64_t length) {
  if (length == 0) return Error::kOk;
  if (is_block_device_) {
    uint64_t range[2] = {offset, length};
    return ::ioctl(buffered_fd_, BLKDISCARD, range) == 0 ? Error::kOk : ErrorFromErrno(errno);
  }
  int result = 0;
  do {
    result = ::fallocate(buffered_fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         static_cast<off_t>(offset), static_cast<off_t>(length));
  } while (result != 0 && errno == EINTR);
  return result == 0 ? Error::kOk : ErrorFromErrno(errno);
}

BounceBuffer::BounceBuffer(IoOp op, uint64_t length, std::span<const iovec> pieces)
    : memory_(length) {
  if (op != IoOp::kWrite) return;
  std::byte* to = memory_.data();
  for (const iovec& piece : pieces) {
    std::memcpy(to, piece.iov_base, piece.iov_len);
    to += piece.iov_len;
  }
}

void BounceBuffer::CopyOut(std::span<const iovec> pieces) const {
  const std::byte* from = memory_.data();
  for (const iovec& piece : pieces) {
    std::memcpy(piece.iov_base, from, piece.iov_len);
    from += piece.iov_len;
  }
}

int PieceCursor::count() const {
  return static_cast<int>(std::min<size_t>(pieces_.size() - next_, IOV_MAX));
}

void PieceCursor::Advance(uint64_t bytes) {
  while (next_ < pieces_.size()) {
    iovec& piece = pieces_[next_];
    if (bytes < piece.iov_len) {
      piece.iov_base = static_cast<char*>(piece.iov_base) + bytes;
      piece.iov_len -= bytes;
      return;
    }
    bytes -= piece.iov_len;
    ++next_;
  }
}

}  // namespace sluice
