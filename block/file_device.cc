// SPDX-License-Identifier: Apache-2.0
#include "block/file_device.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "block/backing_file.h"
#include "block/inline_completion.h"

namespace sluice {
namespace {

// Thread-safe.
class FileDevice final : public Device {
 public:
  explicit FileDevice(std::unique_ptr<BackingFile> file) : file_(std::move(file)) {}

  uint64_t size() const override { return file_->size(); }
  bool read_only() const override { return file_->read_only(); }
  void Submit(std::span<IoRequest* const> requests) override {
    for (IoRequest* request : requests) CompleteInline(request, Serve(*request));
  }

 private:
  Error Serve(const IoRequest& request) {
    RETURN_IF_ERROR(CheckRequest(*this, request));
    if (request.op == IoOp::kFlush) return file_->Flush();
    if (request.op == IoOp::kDiscard) return file_->Discard(request.offset, request.length);
    std::vector<iovec> pieces;
    pieces.reserve(request.buffers.size());
    for (std::span<std::byte> buffer : request.buffers) {
      pieces.push_back({buffer.data(), buffer.size()});
    }
    return file_->Transfer(request.op, request.offset, pieces);
  }

  const std::unique_ptr<BackingFile> file_;
};

// Closes at the end of a scope.
class ScopedFd {
 public:
  explicit ScopedFd(int fd) : fd_(fd) {}
  ~ScopedFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  ScopedFd(const ScopedFd&) = delete;
  ScopedFd& operator=(const ScopedFd&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

Result<std::unique_ptr<Device>> OpenFileDevice(const std::string& path,
                                               const FileDeviceOptions& options) {
  ASSIGN_OR_RETURN(auto file, BackingFile::Open(path, {options.read_only, options.direct}));
  return std::unique_ptr<Device>(std::make_unique<FileDevice>(std::move(file)));
}

Error CreateImageFile(const std::string& path, uint64_t size) {
  ScopedFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (fd.get() < 0) return ErrorFromErrno(errno);
  struct stat status;
  if (::fstat(fd.get(), &status) != 0) return ErrorFromErrno(errno);
  if (!S_ISREG(status.st_mode)) return Error::kInvalid;
  if (size > static_cast<uint64_t>(INT64_MAX)) return Error::kFileTooLarge;
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return ErrorFromErrno(errno);
  return Error::kOk;
}

Error Preallocate(const std::string& path, uint64_t offset, uint64_t length) {
  ScopedFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (fd.get() < 0) return ErrorFromErrno(errno);
  struct stat status;
  if (::fstat(fd.get(), &status) != 0) return ErrorFromErrno(errno);
  if (S_ISBLK(status.st_mode) || length == 0) return Error::kOk;
  int result = 0;
  do {
    result = ::fallocate(fd.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(length));
  } while (result != 0 && errno == EINTR);
  return result == 0 ? Error::kOk : ErrorFromErrno(errno);
}

}  // namespace sluice
