// SPDX-License-Identifier: Apache-2.0
//
// The filesystem as a library: everything a mounted sluicefs can do, without FUSE. fs/fuse/
// translates requests to these calls; tests and tools call them directly.
//
// Operations are attempts (block/attempt.h): they may answer kWouldBlock, having changed nothing,
// and are run again after the wait. They never wait themselves. Names are bytes, 1 to 255, without
// '/' or NUL; longer ones are kNameTooLong, "." and ".." where they make no sense kInvalid (or as
// rename(2), rmdir(2) say). Permission bits are the caller's affair (the kernel's
// default_permissions): operations check what only the filesystem can know (types, immutable flag,
// link limits, read-only).
#ifndef SLUICE_FS_FILESYSTEM_H_
#define SLUICE_FS_FILESYSTEM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"
#include "base/units.h"
#include "block/attempt.h"
#include "block/device.h"
#include "fs/inode.h"
#include "journal/journal.h"

namespace sluice {

enum class OnError { kRemountReadOnly, kContinue, kPanic };
// How Shutdown stops, as ext4's EXT4_GOING_FLAGS_DEFAULT, LOGFLUSH and NOLOGFLUSH.
enum class ShutdownMode {
  kFlushAll,  // everything accepted becomes durable first
  kFlushLog,  // what has been done to names and attributes does; data of files in the running
              // transaction as data=ordered says
  kNoFlush,   // nothing more is written
};

// What the metadata that names data waits for.
enum class DataMode {
  kOrdered,    // the data's write: no crash shows what was not written
  kWriteback,  // nothing: after a crash new parts of files may show what their blocks held before
};

enum class AtimeMode { kRelative, kStrict, kNone };

struct MountOptions {
  bool read_only = false;
  bool norecovery = false;  // with read_only: the log is ignored
  AtimeMode atime = AtimeMode::kRelative;
  bool nodiratime = false;
  bool sync = false;     // every write and namespace change is durable before it returns
  bool dirsync = false;  // every namespace change is
  Nanoseconds commit_interval = 5'000'000'000;
  bool barrier = true;
  DataMode data = DataMode::kOrdered;
  OnError on_error = OnError::kRemountReadOnly;
  size_t cache_bytes = 256u << 20;  // dirty file data
  size_t metadata_cache_blocks = 65536;
  std::string mountpoint;  // for the superblock and messages
  // Holds the log of an image whose journal is external; outlives the filesystem.
  Device* journal_device = nullptr;
  Clock* clock = Clock::System();
  // No background threads: commits, checkpoints and writeout happen only in Sync, Fsync and
  // Unmount, on the caller's thread. For deterministic tests.
  bool manual = false;
  // Tests: as JournalOptions::on_point.
  std::function<void(JournalPoint)> on_journal_point;
};

struct Caller {
  uint32_t uid = 0;
  uint32_t gid = 0;
  int32_t pid = 0;
  bool privileged() const { return uid == 0; }  // may use reserved blocks
};

struct Attributes {
  InodeNumber ino = 0;
  uint32_t generation = 0;
  uint16_t mode = 0;
  uint32_t links = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint64_t size = 0;
  uint64_t sectors = 0;  // of 512 bytes, as st_blocks
  uint32_t major = 0;
  uint32_t minor = 0;
  uint32_t flags = 0;  // format::kInode*
  Nanoseconds atime = 0, mtime = 0, ctime = 0, btime = 0;
};

// What SetAttr changes; absent: stays. `now` for a time means the clock's.
struct AttributeChange {
  std::optional<uint16_t> mode;  // permission bits
  std::optional<uint32_t> uid;
  std::optional<uint32_t> gid;
  std::optional<uint64_t> size;
  std::optional<Nanoseconds> atime;
  std::optional<Nanoseconds> mtime;
  std::optional<Nanoseconds> ctime;
  bool atime_now = false;
  bool mtime_now = false;
  bool kill_suid_sgid = false;  // FUSE's HANDLE_KILLPRIV_V2: clear set-id bits as chown/truncate do
};

struct NewNode {
  uint16_t mode = 0;   // type and permissions, umask applied
  uint32_t major = 0;  // device files
  uint32_t minor = 0;
};

struct SpaceInfo {
  uint64_t blocks = 0, free_blocks = 0, available_blocks = 0;  // of 4096 bytes
  uint64_t inodes = 0, free_inodes = 0;
};

enum class RenameFlags : uint8_t { kNone, kNoReplace, kExchange };

// Bits of Fallocate's mode, Linux's FALLOC_FL_*.
inline constexpr uint32_t kFallocateKeepSize = 0x01;
inline constexpr uint32_t kFallocatePunchHole = 0x02;  // only with kFallocateKeepSize
inline constexpr uint32_t kFallocateZeroRange = 0x10;

enum class XattrSetMode : uint8_t { kAny, kCreate, kReplace };

// Called for each directory entry; returns false to stop (the entry was not taken). `cookie` is
// what Readdir takes to go on behind this entry.
using DirSink =
    std::function<bool(std::string_view name, InodeNumber ino, uint8_t type, uint64_t cookie)>;

using Done = std::function<void(Error)>;
using ReadDone = std::function<void(Result<size_t>)>;

// A reference that keeps an inode's descriptor state: one per open(2).
struct OpenFile {
  InodeRef inode;
  uint64_t error_sequence = 0;  // writeout errors already reported to this descriptor
  bool writable = false;
  bool sync = false;  // O_SYNC / O_DSYNC
};

// Thread-safe.
class Filesystem {
 public:
  // Reads the superblock (falling back to a backup: logged), replays the journal (in memory if
  // read_only: the device is wrapped in an overlay), loads the group table, marks the image
  // mounted, processes orphans, starts threads. `device` outlives the filesystem. `message` gets a
  // text for a person on error. May wait.
  static Result<std::unique_ptr<Filesystem>> Mount(Device* device, const MountOptions& options,
                                                   std::string* message);
  // Crash semantics if Unmount was not called: nothing more is written.
  ~Filesystem();

  // Flushes everything, empties the log, marks the image clean. Every Inode reference of callers
  // must be gone; lookups that the kernel never forgot are forgotten here (F19): unlinked inodes
  // are deleted. May wait.
  Error Unmount();

  // --- Names ---
  Result<InodeRef> Lookup(Attempt& attempt, const InodeRef& parent, std::string_view name);
  // By number, for FUSE's node ids and file handles; kStale if `generation` is given and differs or
  // the inode is free.
  Result<InodeRef> GetInode(Attempt& attempt, InodeNumber ino,
                            std::optional<uint32_t> generation = std::nullopt);
  Result<InodeRef> Create(Attempt& attempt, const Caller& caller, const InodeRef& parent,
                          std::string_view name, const NewNode& node);  // any type but symlink
  Result<InodeRef> Symlink(Attempt& attempt, const Caller& caller, const InodeRef& parent,
                           std::string_view name, std::string_view target);
  Result<std::string> Readlink(Attempt& attempt, const InodeRef& inode);
  Error Link(Attempt& attempt, const InodeRef& inode, const InodeRef& parent,
             std::string_view name);
  Error Unlink(Attempt& attempt, const InodeRef& parent, std::string_view name);
  Error Rmdir(Attempt& attempt, const InodeRef& parent, std::string_view name);
  Error Rename(Attempt& attempt, const InodeRef& from_parent, std::string_view from,
               const InodeRef& to_parent, std::string_view to, RenameFlags flags);
  // O_TMPFILE: a file without a name, in the orphan list until linked.
  Result<InodeRef> CreateTemporary(Attempt& attempt, const Caller& caller, const InodeRef& parent,
                                   const NewNode& node);
  // Entries behind `cookie` (0: from the start) in key order, "." and ".." first. Inodes are not
  // loaded. Each untouched name exactly once, however the directory changes meanwhile. May stop
  // early, but not before one entry: call again with the last cookie; none means the end.
  Error Readdir(Attempt& attempt, const InodeRef& directory, uint64_t cookie, const DirSink& sink);

  // --- Attributes ---
  Attributes GetAttributes(const InodeRef& inode);
  Result<Attributes> SetAttributes(Attempt& attempt, const Caller& caller, const InodeRef& inode,
                                   const AttributeChange& change);
  SpaceInfo Statfs() const;
  // chattr flags (format::kInode*); kNotSupported for bits that have no meaning here.
  Error SetFlags(Attempt& attempt, const InodeRef& inode, uint32_t flags);

  // --- Data ---
  // Reads up to out.size() bytes; `done` gets the count (short only at the end of the file), on
  // this or a device thread, once; `out` stays valid until then. If the call itself returns an
  // error (kWouldBlock too), `done` is not called.
  Error Read(Attempt& attempt, const InodeRef& inode, uint64_t offset, std::span<std::byte> out,
             ReadDone done);
  // Returns the bytes accepted, at least one: fewer than asked when it would have to wait in the
  // middle (call again for the rest), or at the largest file size. `append`: at the end, whatever
  // `offset`. Set-id bits are cleared if asked.
  Result<size_t> Write(Attempt& attempt, const Caller& caller, const InodeRef& inode,
                       uint64_t offset, std::span<const std::byte> data, bool append,
                       bool kill_suid_sgid);
  // fallocate(2) on [offset, offset + length) of a regular file, as ext4 has it: allocates blocks
  // that read as zeros (mode 0), frees them (punch hole), or makes them read as zeros without
  // freeing (zero range). Parts of blocks are zeroed in memory. Modes and combinations that are not
  // named above are kNotSupported; kInvalid for length 0, kFileTooLarge past the largest size,
  // kNotPermitted for immutable files and, but for plain allocation, append-only ones, kNoDevice
  // for anything but a file. A long range takes several transactions: after an error or a crash a
  // part of it may be done, in any case the size moves last. Set-id bits are dropped unless the
  // caller is privileged.
  Error Fallocate(Attempt& attempt, const Caller& caller, const InodeRef& inode, uint32_t mode,
                  uint64_t offset, uint64_t length);
  // Offset of the next data / hole at or after `offset`; kNoEntryAtOffset past the end.
  Result<uint64_t> SeekData(Attempt& attempt, const InodeRef& inode, uint64_t offset);
  Result<uint64_t> SeekHole(Attempt& attempt, const InodeRef& inode, uint64_t offset);

  // Makes the inode durable (promise 1), then calls `done`, on this thread or another. Returns
  // kWouldBlock or another error without calling `done`, else kOk. Reports writeout errors of
  // `file` once (null: of the inode since mount).
  Error Fsync(Attempt& attempt, OpenFile* file, const InodeRef& inode, bool data_only, Done done);
  // Everything accepted so far is durable when it returns kOk. May wait.
  Error Sync();

  // --- Extended attributes ---
  // Of any inode, in the name spaces user, trusted and security; all of an inode's in one block
  // (kNoSpace). kNotSupported: another name space. Get and List answer the size, and fill `out` if
  // it is not empty: kRange if it is too small. kNoData: there is none of that name.
  Result<size_t> GetXattr(Attempt& attempt, const InodeRef& inode, std::string_view name,
                          std::span<std::byte> out);
  // Full names, each with a NUL behind it; those of trusted for privileged callers only.
  Result<size_t> ListXattr(Attempt& attempt, const Caller& caller, const InodeRef& inode,
                           std::span<std::byte> out);
  // kExists / kNoData as `mode` says.
  Error SetXattr(Attempt& attempt, const Caller& caller, const InodeRef& inode,
                 std::string_view name, std::span<const std::byte> value, XattrSetMode mode);
  Error RemoveXattr(Attempt& attempt, const InodeRef& inode, std::string_view name);

  // --- References ---
  // The kernel has learnt of the inode (one lookup reference) / has forgotten `count` of them.
  // Forget of the last reference to an unlinked inode deletes it, in the background.
  void AddLookup(const InodeRef& inode, uint64_t count = 1);
  void Forget(InodeNumber ino, uint64_t count);
  Result<std::unique_ptr<OpenFile>> Open(const InodeRef& inode, bool writable, bool truncate_known);
  // Deletes the inode in the background if it was the last descriptor of an unlinked one.
  void Release(std::unique_ptr<OpenFile> file);
  // Writeout errors that this descriptor has not seen (close(2), fsync).
  Error TakeError(OpenFile* file);

  // --- Standing still ---
  // From kOk on nothing changes: operations that would are parked until Thaw. Everything accepted
  // is in its place, the log is empty, the image is marked clean: a copy of it made now is a
  // filesystem that needs neither replay nor check (files that are unlinked but open are in its
  // orphan list). kBusy: frozen already. May wait; no lock, no handle.
  Error Freeze();
  // kInvalid: not frozen; kBusy: somebody freezes or thaws it now. May wait.
  Error Thaw();
  // Stops for good, as a crash would: from now on nothing is written, and whatever would read,
  // open, change or sync a file is kShutdown. A frozen filesystem is thawed. kOk if it was shut
  // down before. May wait.
  Error Shutdown(ShutdownMode mode);

  // --- State ---
  bool read_only() const;
  // Fatal or corrupt metadata was met: acts as `errors=` says. Logged once per place.
  void ReportCorruption(InodeNumber ino, BlockNumber block, std::string_view what);
  Journal* journal();
  const MountOptions& options() const;
  std::string label() const;
  std::string uuid() const;

  // The parts behind this; defined in fs/filesystem_impl.h, private to fs/.
  struct Impl;
  Impl* impl() { return impl_.get(); }

 private:
  Filesystem();
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_FS_FILESYSTEM_H_
