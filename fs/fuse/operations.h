// SPDX-License-Identifier: Apache-2.0
//
// The operations, by group: each file fills its part of libfuse's table and offers its raw
// operations. They translate and reply, nothing else.
#ifndef SLUICE_FS_FUSE_OPERATIONS_H_
#define SLUICE_FS_FUSE_OPERATIONS_H_

#include <span>

#include "fs/fuse/fuse_server.h"

namespace sluice {

void AddNamespaceOperations(fuse_lowlevel_ops* operations);  // names, links, nodes
void AddAttributeOperations(fuse_lowlevel_ops* operations);  // stat, chmod, statfs, chattr
void AddOpenOperations(fuse_lowlevel_ops* operations);       // open, create, close
void AddDataOperations(fuse_lowlevel_ops* operations);       // read, write, fallocate
void AddDirectoryOperations(fuse_lowlevel_ops* operations);  // readdir
void AddSyncOperations(fuse_lowlevel_ops* operations);       // fsync
void AddXattrOperations(fuse_lowlevel_ops* operations);      // extended attributes

// Answers an administrator's ioctl; false if `command` is none.
// `argument` is the third word of the caller's ioctl(2), `in` what the kernel read from there.
bool HandleAdminIoctl(fuse_req_t req, unsigned command, const void* argument, const void* in,
                      size_t in_size);

// `argument` is only valid while the request's buffer is.
void HandleTmpfile(FuseServer* server, const RawRequest& request,
                   std::span<const std::byte> argument);
void HandleStatx(FuseServer* server, const RawRequest& request,
                 std::span<const std::byte> argument);
void HandleSyncfs(FuseServer* server, const RawRequest& request);

}  // namespace sluice

#endif  // SLUICE_FS_FUSE_OPERATIONS_H_
