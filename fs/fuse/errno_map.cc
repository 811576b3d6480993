// SPDX-License-Identifier: Apache-2.0
//
// See errno_map.h. A switch without default: the compiler names a missing Error.
#include "fs/fuse/errno_map.h"

#include <cerrno>

#include "base/check.h"

namespace sluice {

int ErrnoOf(Error error) {
  SLUICE_CHECK(error != Error::kWouldBlock);
  switch (error) {
    case Error::kOk:
      return 0;
    case Error::kNotFound:
      return ENOENT;
    case Error::kExists:
      return EEXIST;
    case Error::kNotDirectory:
      return ENOTDIR;
    case Error::kIsDirectory:
      return EISDIR;
    case Error::kNotEmpty:
      return ENOTEMPTY;
    case Error::kNoSpace:
      return ENOSPC;
    case Error::kQuota:
      return EDQUOT;
    case Error::kFileTooLarge:
      return EFBIG;
    case Error::kNameTooLong:
      return ENAMETOOLONG;
    case Error::kInvalid:
      return EINVAL;
    case Error::kNotPermitted:
      return EPERM;
    case Error::kAccess:
      return EACCES;
    case Error::kCrossDevice:
      return EXDEV;
    case Error::kTooManyLinks:
      return EMLINK;
    case Error::kLoop:
      return ELOOP;
    case Error::kBusy:
      return EBUSY;
    case Error::kReadOnly:
      return EROFS;
    case Error::kNoData:
      return ENODATA;
    case Error::kRange:
      return ERANGE;
    case Error::kOverflow:
      return EOVERFLOW;
    case Error::kStale:
      return ESTALE;
    case Error::kNoEntryAtOffset:
      return ENXIO;
    case Error::kBadDescriptor:
      return EBADF;
    case Error::kInterrupted:
      return EINTR;
    case Error::kNoMemory:
      return ENOMEM;
    case Error::kNotSupported:
      return EOPNOTSUPP;
    case Error::kNotImplemented:
      return ENOSYS;
    case Error::kIo:
      return EIO;
    case Error::kCorrupt:
      return EUCLEAN;
    case Error::kUnknownFormat:
      return EUCLEAN;
    case Error::kNewerFormat:
      return EUCLEAN;
    case Error::kNoDevice:
      return ENODEV;
    case Error::kShutdown:
      return EIO;
    case Error::kWouldBlock:
      break;
    case Error::kHandleTooLarge:
      return ENOSPC;
  }
  return EIO;
}

}  // namespace sluice
