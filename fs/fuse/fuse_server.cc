// SPDX-License-Identifier: Apache-2.0
//
// See fuse_server.h.
#include "fs/fuse/fuse_server.h"

#include "fs/fuse/operations.h"

namespace sluice {
namespace {

constexpr unsigned kMaxBackground = 128;

void Want(fuse_conn_info* connection, unsigned capability) {
  if ((connection->capable & capability) != 0) connection->want |= capability;
}

// The image has one owner, so nothing changes behind the kernel's back: its caches stay valid until
// it changes something itself, and mtime or size seen in a reply never invalidates data.
void Init(void* session, fuse_conn_info* connection) {
  Want(connection, FUSE_CAP_ASYNC_READ);
  Want(connection, FUSE_CAP_ASYNC_DIO);
  Want(connection, FUSE_CAP_PARALLEL_DIROPS);
  Want(connection, FUSE_CAP_EXPORT_SUPPORT);
  Want(connection, FUSE_CAP_READDIRPLUS);
  Want(connection, FUSE_CAP_READDIRPLUS_AUTO);
  Want(connection, FUSE_CAP_CACHE_SYMLINKS);
  Want(connection, FUSE_CAP_EXPLICIT_INVAL_DATA);
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_ATOMIC_O_TRUNC |
                                             FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_SPLICE_READ |
                                             FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE |
                                             FUSE_CAP_HANDLE_KILLPRIV);
  auto* const server = static_cast<FuseServer*>(static_cast<Session*>(session)->handler());
  server->set_protocol_minor(connection->proto_minor);
  connection->max_write = kMaxWrite;
  connection->max_background = kMaxBackground;
  connection->congestion_threshold = kMaxBackground;
  connection->time_gran = 1;
}

}  // namespace

bool FuseServer::HandleRaw(const fuse_in_header& header, std::span<const std::byte> argument) {
  const RawRequest request{session_, header};
  switch (header.opcode) {
    case kOpcodeTmpfile:
      HandleTmpfile(this, request, argument);
      return true;
    case kOpcodeStatx:
      HandleStatx(this, request, argument);
      return true;
    case kOpcodeSyncfs:
      HandleSyncfs(this, request);
      return true;
    default:
      return false;
  }
}

void FuseServer::Finish() {
  workers_.WaitIdle();
  open_files_.ReleaseAll(fs_);
}

void FuseServer::HandleDestroy() {
  Finish();
  on_destroy_();
}

fuse_lowlevel_ops MakeFuseOperations() {
  fuse_lowlevel_ops operations{};
  operations.init = Init;
  AddNamespaceOperations(&operations);
  AddAttributeOperations(&operations);
  AddOpenOperations(&operations);
  AddDataOperations(&operations);
  AddDirectoryOperations(&operations);
  AddSyncOperations(&operations);
  AddXattrOperations(&operations);
  return operations;
}

}  // namespace sluice
