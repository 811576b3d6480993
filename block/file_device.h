// SPDX-License-Identifier: Apache-2.0
//
// An image file or block device with plain system calls on the caller's thread: for tools, and
// for anything that wants no more than one request at a time. And what mkfs needs to make a file.
#ifndef SLUICE_BLOCK_FILE_DEVICE_H_
#define SLUICE_BLOCK_FILE_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "block/device.h"

namespace sluice {

struct FileDeviceOptions {
  bool read_only = false;
  bool direct = true;  // where the host refuses O_DIRECT the file is used buffered
};

// Errors of open(2); kInvalid for what is neither a regular file nor a block device. A file's last
// incomplete sector is not part of the device. Requests are done before Submit returns. A flush
// that failed once fails until the device is opened anew (block/backing_file.h says why); kNoSpace
// of a write: the file is sparse and the host full.
Result<std::unique_ptr<Device>> OpenFileDevice(const std::string& path,
                                               const FileDeviceOptions& options);

// Makes the regular file `path` exactly `size` bytes long: creates it (mode 0666 less the umask)
// if it is missing, grows it with a hole or cuts it otherwise. kFileTooLarge: the host cannot have
// so large a file; kInvalid: it exists and is no regular file.
Error CreateImageFile(const std::string& path, uint64_t size);

// Has the host allocate [offset, offset + length) of an image file, contents kept (new space reads
// as zeros). Nothing to do for a block device. kNoSpace: the host is full; kNotSupported: the host
// cannot.
Error Preallocate(const std::string& path, uint64_t offset, uint64_t length);

}  // namespace sluice

#endif  // SLUICE_BLOCK_FILE_DEVICE_H_
